"""Decisions about users and what they may do: SCRAM credentials, access control lists, quotas, tokens."""
