"""The audit of histories as joins of tables: what is read, what is looked for, how it is shown."""
