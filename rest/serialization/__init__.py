"""Keys and values with schemas: which schema, asked for at a registry, and the bytes of a value by it."""
