"""Chooses the scenarios that run what has changed since a commit."""
