"""Data that was written with a schema of a registry: its frame, its schema, and what it says."""
