"""Calls of the APIs that the controller answers, for `authorization_calls.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from support.security.authorization_calls import Call, Fields, Ids
from support.security.authorization_users import UNKNOWN_ID

from raftwerk.wire.api_keys import ApiKey

_ACL = {"resource_type": 2, "resource_name": "other", "principal": "User:other", "host": "*", "operation": 3}
_FILTER = {"resource_type_filter": 2, "resource_name_filter": "nowhere", "pattern_type_filter": 3}
_ANY = {"principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1}


_NOBODY = {"principal_type": "Group", "principal_name": "nobody"}
_OWNER = {"owner_principal_type": "User", "owner_principal_name": "seen-user"}


def _named(*names: str, **fields: Any) -> list[Fields]:
    return [{"name": name, **fields} for name in names]


_CALLS: dict[str, tuple[ApiKey, int, Callable[[Ids], Fields]]] = {
    "create topics": (
        ApiKey.CREATE_TOPICS,
        7,
        lambda ids: {
            "topics": _named("missing", "seen", "hidden", num_partitions=1, replication_factor=1),
            "timeout": 10_000,
            "validate_only": True,
        },
    ),
    "delete missing topics": (
        ApiKey.DELETE_TOPICS,
        6,
        lambda ids: {
            "topics": [{"name": "missing"}, {"name": None, "topic_id": UNKNOWN_ID}],
            "timeout": 10_000,
        },
    ),
    "add partitions": (
        ApiKey.CREATE_PARTITIONS,
        3,
        lambda ids: {
            "topics": _named("missing", "seen", "hidden", count=3),
            "timeout": 10_000,
            "validate_only": True,
        },
    ),
    "elect leaders": (
        ApiKey.ELECT_LEADERS,
        2,
        lambda ids: {
            "election_type": 0,
            "topic_partitions": [{"topic": "seen", "partitions": [0]}],
            "timeout": 10_000,
        },
    ),
    "cancel reassignments": (
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        0,
        lambda ids: {
            "topics": _named("seen", partitions=[{"partition_index": 0, "replicas": None}]),
            "timeout": 10_000,
        },
    ),
    "list reassignments": (
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        0,
        lambda ids: {"timeout": 10_000, "topics": None},
    ),
    "unregister a broker": (ApiKey.UNREGISTER_BROKER, 0, lambda ids: {"broker_id": 99}),
    "describe the quorum": (
        ApiKey.DESCRIBE_QUORUM,
        1,
        lambda ids: {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]},
    ),
    "delete a password": (
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        0,
        lambda ids: {"deletions": [{"name": "alice", "mechanism": 1}], "upsertions": []},
    ),
    "change quotas": (
        ApiKey.ALTER_CLIENT_QUOTAS,
        1,
        lambda ids: {
            "entries": [
                {
                    "entity": [{"entity_type": "user", "entity_name": "alice"}],
                    "ops": [{"key": "producer_byte_rate", "value": 1000.0, "remove": False}],
                }
            ],
            "validate_only": True,
        },
    ),
    "make a token for another user": (
        ApiKey.CREATE_DELEGATION_TOKEN,
        3,
        lambda ids: {**_OWNER, "renewers": [_NOBODY], "max_lifetime": -1},
    ),
    "make a token": (
        ApiKey.CREATE_DELEGATION_TOKEN,
        3,
        lambda ids: {**dict.fromkeys(_OWNER), "renewers": [_NOBODY], "max_lifetime": -1},
    ),
    "renew an unknown token": (ApiKey.RENEW_DELEGATION_TOKEN, 2, lambda ids: {"hmac": b"x", "renew_period": 1}),
    "end an unknown token": (ApiKey.EXPIRE_DELEGATION_TOKEN, 2, lambda ids: {"hmac": b"x", "expiry_time_period": -1}),
    "list tokens": (ApiKey.DESCRIBE_DELEGATION_TOKEN, 3, lambda ids: {"owners": None}),
    "list the tokens of users": (
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        3,
        lambda ids: {"owners": [{"principal_type": "User", "principal_name": "hidden-user"}]},
    ),
    "list access control lists": (ApiKey.DESCRIBE_ACLS, 3, lambda ids: {**_FILTER, **_ANY}),
    "add an access control list": (
        ApiKey.CREATE_ACLS,
        3,
        lambda ids: {"creations": [{**_ACL, "resource_pattern_type": 3, "permission_type": 3}]},
    ),
    "remove access control lists": (ApiKey.DELETE_ACLS, 3, lambda ids: {"filters": [{**_FILTER, **_ANY}]}),
}
ADMIN_CALLS = tuple(Call(name, *what) for name, what in _CALLS.items())
"""The calls that brokers forward to the controller."""
