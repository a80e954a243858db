"""Settings of nodes with an authorizer, and with a listener on which clients log in."""

from __future__ import annotations

import random

PASSWORD = "secret"
WINDOW_MS = 2_000
"""The window of quotas, two samples of a second: a run takes some seconds."""
GUARDED_USERS = ("alice", "bob")
SUPER_USERS = ("root", "carol")
_USERS = " ".join(f'user_{user}="{PASSWORD}"' for user in (*GUARDED_USERS, *SUPER_USERS))

SETTINGS = {
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.login.plain.sasl.jaas.config": (
        f"org.apache.kafka.common.security.plain.PlainLoginModule required {_USERS};"
    ),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": ";".join(("User:ANONYMOUS", *(f"User:{user}" for user in SUPER_USERS))),
    "quota.window.num": "2",
}
"""The nodes, and the clients of the main load, do not log in: they are `User:ANONYMOUS`, and may do everything."""


def allows_without_acl(rng: random.Random) -> bool:
    """Whether `allow.everyone.if.no.acl.found` is set in a run."""
    return rng.random() < 0.5
