"""The console: a cluster watched, and changed, in a browser."""
