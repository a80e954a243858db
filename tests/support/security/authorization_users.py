"""Users with different rights, whose calls show what each API checks."""

from __future__ import annotations

from typing import TypeAlias
from uuid import UUID

from raftwerk.security.authorizer.acl_binding import CLUSTER_NAME, WILDCARD, AclOperation, ResourceType

Right: TypeAlias = tuple[AclOperation, ResourceType]

RESOURCES = {
    ResourceType.TOPIC: ("seen", "missing", "a/b"),
    ResourceType.GROUP: ("seen-group", "seen-consumers", "mixed-consumers", "missing-group"),
    ResourceType.CLUSTER: (CLUSTER_NAME,),
    ResourceType.TRANSACTIONAL_ID: ("seen-open", "seen-idle"),
    ResourceType.DELEGATION_TOKEN: (WILDCARD,),
    ResourceType.USER: ("User:seen-user",),
}
"""What the users have rights on. Nobody but a super user has rights on what is called `hidden`."""
HIDDEN = ("hidden", "hidden-group", "hidden-open")
TOKEN_OWNERS = ("seen-user", "hidden-user")
"""Who owns the delegation tokens of the calls."""
UNKNOWN_ID = UUID(int=7)
"""The id of no topic."""

_OPERATIONS = {
    ResourceType.TOPIC: "READ WRITE CREATE DELETE ALTER DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS",
    ResourceType.GROUP: "READ DESCRIBE DELETE DESCRIBE_CONFIGS ALTER_CONFIGS",
    ResourceType.CLUSTER: "CREATE ALTER DESCRIBE CLUSTER_ACTION DESCRIBE_CONFIGS ALTER_CONFIGS IDEMPOTENT_WRITE",
    ResourceType.TRANSACTIONAL_ID: "WRITE DESCRIBE TWO_PHASE_COMMIT",
    ResourceType.DELEGATION_TOKEN: "DESCRIBE",
    ResourceType.USER: "CREATE_TOKENS DESCRIBE_TOKENS",
}
SINGLE_RIGHTS: tuple[Right, ...] = tuple(
    (AclOperation[name], resource_type) for resource_type, names in _OPERATIONS.items() for name in names.split()
)
"""Each right that an access control list can give on one resource."""


def right_name(right: Right) -> str:
    """What the user is called who has this right alone, such as `topic-read`."""
    operation, resource_type = right
    return f"{resource_type.name}-{operation.name}".lower().replace("_", "-")


def _rights(text: str) -> frozenset[Right]:
    by_name = {right_name(right): right for right in SINGLE_RIGHTS}
    return frozenset(by_name[name] for name in text.split())


NOBODY, SUPER_USER = "nothing", "super-user"
USERS: dict[str, frozenset[Right]] = {
    NOBODY: frozenset(),
    SUPER_USER: frozenset(),
    **{right_name(right): frozenset({right}) for right in SINGLE_RIGHTS},
    "consumer": _rights("topic-read group-read"),
    "producer": _rights("topic-write transactional-id-write"),
    "transactional-consumer": _rights(
        "topic-read group-read topic-write transactional-id-write transactional-id-two-phase-commit"
    ),
    "topic-creator": _rights("topic-describe topic-create"),
    "cluster-creator": _rights("topic-describe cluster-create"),
    "group-deleter": _rights("group-delete topic-read"),
    "group-describer": _rights("group-describe topic-describe"),
    "transaction-describer": _rights("transactional-id-describe topic-describe"),
}
"""The users, and the rights that each has on the resources of `RESOURCES`."""
