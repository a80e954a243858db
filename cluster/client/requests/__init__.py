"""Requests that are made again, that look for a coordinator, and that wait while a quota throttles the client."""
