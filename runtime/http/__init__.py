"""Requests over HTTP that do not hold the event loop."""
