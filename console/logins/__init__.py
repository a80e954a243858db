"""Users who log in: their sessions, and what they have the right to."""
