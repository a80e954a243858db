"""Metrics and health of a node over HTTP. Imported only where `metrics.port` is set, and never in the simulator."""
