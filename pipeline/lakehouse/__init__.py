"""Tables of an open format that jobs write exactly once: Iceberg and Delta, and plain Parquet files."""
