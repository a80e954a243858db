"""How a client gets to a cluster and what it may do there: addresses, logins, rights, delegation tokens."""
