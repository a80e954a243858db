"""The words by which people name the parts of access control entries: what commands and the console read and show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .acl_binding import SUPPORTED_OPERATIONS, AclBinding, AclOperation, AclPermissionType, PatternType, ResourceType

OPERATIONS: Mapping[str, AclOperation] = {
    one.name.lower().replace("_", "-"): one
    for one in AclOperation
    if one not in (AclOperation.UNKNOWN, AclOperation.ANY)
}
OPERATION_SETS: Mapping[str, Mapping[ResourceType, Sequence[AclOperation]]] = {
    "produce": {
        ResourceType.TOPIC: (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE),
        ResourceType.TRANSACTIONAL_ID: (AclOperation.WRITE, AclOperation.DESCRIBE),
    },
    "consume": {
        ResourceType.TOPIC: (AclOperation.READ, AclOperation.DESCRIBE),
        ResourceType.GROUP: (AclOperation.READ,),
    },
}
"""What producers and consumers do, as with --producer and --consumer of kafka-acls."""
RESOURCE_NOUNS: Mapping[int, str] = {kind: kind.name.lower().replace("_", " ") for kind in ResourceType}


class AclWordError(ValueError):
    """A word that names no operation, or none of such a resource; the message says what there is."""


def principal_of(text: str) -> str:
    """`alice` is short for `User:alice`, `*` for everybody."""
    return text if ":" in text else f"User:{text}"


def operation_name(operation: int) -> str:
    """The word for an operation; its number where there is none."""
    return next((name for name, one in OPERATIONS.items() if one == operation), str(operation))


def operations_of(names: Sequence[str], kind: ResourceType) -> list[AclOperation]:
    """The operations that the names stand for on resources of that type. Raises `AclWordError`."""
    found: dict[AclOperation, None] = {}
    for name in names:
        word = name.lower().replace("_", "-")
        if word in OPERATION_SETS:
            if kind is ResourceType.ANY:
                raise AclWordError(f"{name} means something on topics, groups and transactional ids only: name them")
            found |= dict.fromkeys(OPERATION_SETS[word].get(kind, ()))
            continue
        operation = OPERATIONS.get(word)
        if operation is None:
            raise AclWordError(f"{name!r} is no operation; there are {', '.join((*OPERATION_SETS, *OPERATIONS))}")
        if operation not in (AclOperation.ALL, *SUPPORTED_OPERATIONS.get(kind, OPERATIONS.values())):
            known = ", ".join(operation_name(one) for one in SUPPORTED_OPERATIONS[kind])
            raise AclWordError(
                f"nobody can {operation_name(operation)} a {RESOURCE_NOUNS[kind]}; there are all, {known}"
            )
        found[operation] = None
    return list(found)


def row_of(binding: AclBinding) -> dict[str, str]:
    """An entry in words."""
    return {
        "permission": "deny" if binding.permission_type == AclPermissionType.DENY else "allow",
        "principal": binding.principal,
        "operation": operation_name(binding.operation),
        "resource_type": RESOURCE_NOUNS.get(binding.resource_type, str(binding.resource_type)),
        "resource_name": binding.resource_name,
        "pattern": "prefix" if binding.pattern_type == PatternType.PREFIXED else "literal",
        "host": binding.host,
    }
