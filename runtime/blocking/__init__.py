"""Calls that may block for long: the threads that make them, and the library of Kerberos."""
