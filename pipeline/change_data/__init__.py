"""Changes of a database's rows, as Debezium writes them to topics, and what they make of a table."""
