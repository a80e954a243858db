"""Failures that are rehearsed by a click: faults of a local cluster, chaos runs, and a load that shows their effect."""
