"""JSON schemas: what they say, and what can read what."""
