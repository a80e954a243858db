"""Logins of HTTP clients of the REST proxy and the schema registry: each is a user of the cluster."""
