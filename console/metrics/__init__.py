"""The metrics of the nodes of a local cluster."""
