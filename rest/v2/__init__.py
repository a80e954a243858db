"""Version 2 of the interface: topics, producing, and consumer instances."""
