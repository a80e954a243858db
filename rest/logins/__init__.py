"""Logins of HTTP clients: what they say who they are, and the clients by which each acts at the cluster."""
