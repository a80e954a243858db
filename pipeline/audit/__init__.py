"""The audit of chaos histories on Spark: reading them, finding anomalies by joins, and the report."""
