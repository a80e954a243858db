"""The clients by which each user of the proxy acts at the cluster."""
