"""What a client may do, and how much: Kafka's rules, read off the plain lists of entries.

They are the slow twins of `security/authorizer/standard_authorizer.py` and `broker/quotas`: no index, nothing kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ....controller.metadata.metadata_image import MetadataImage
from ....security.authorizer.acl_binding import AclBinding, AclOperation, AclPermissionType, PatternType, ResourceType

_ALLOWS_TO_DESCRIBE = (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER)


class Question(NamedTuple):
    """May this principal, such as `User:alice`, do that from this host?"""

    principal: str
    host: str
    operation: AclOperation
    resource_type: ResourceType
    name: str


class QuotaEntry(NamedTuple):
    """One quota of a user, a client id, or both."""

    user: str | None
    client_id: str | None
    key: str
    value: float


def acls_of(image: MetadataImage) -> frozenset[AclBinding]:
    """The access control lists of an image."""
    return frozenset(image.acls.values())


def quotas_of(image: MetadataImage) -> frozenset[QuotaEntry]:
    """The quotas of an image. Those for defaults are left out; this simulation sets none."""
    return frozenset(
        QuotaEntry(dict(entity).get("user"), dict(entity).get("client-id"), key, value)
        for entity, quotas in image.client_quotas.items()
        for key, value in quotas.items()
    )


def is_allowed(acls: Iterable[AclBinding], asked: Question, *, without_acl: bool) -> bool:
    """By KIP-11: one DENY refuses, else one ALLOW allows; `without_acl` decides where no entry is for the resource."""
    for_resource = [each for each in acls if _is_for(each, asked)]
    if not for_resource:
        return without_acl
    for_client = [
        each
        for each in for_resource
        if each.principal in (asked.principal, "User:*") and each.host in (asked.host, "*")
    ]
    implying = _ALLOWS_TO_DESCRIBE if asked.operation is AclOperation.DESCRIBE else ()
    named = (asked.operation, AclOperation.ALL)
    if any(each.permission_type == AclPermissionType.DENY and each.operation in named for each in for_client):
        return False
    return any(
        each.permission_type == AclPermissionType.ALLOW and each.operation in (*named, *implying) for each in for_client
    )


def _is_for(entry: AclBinding, asked: Question) -> bool:
    if entry.resource_type != asked.resource_type:
        return False
    if entry.pattern_type == PatternType.PREFIXED:
        return asked.name.startswith(entry.resource_name)
    return entry.resource_name in (asked.name, "*")


def limit_of(quotas: Iterable[QuotaEntry], key: str, user: str, client_id: str) -> float | None:
    """By KIP-55: the quota of the user and the client id, else of the user, else of the client id."""
    found = {(each.user, each.client_id): each.value for each in quotas if each.key == key}
    for entity in ((user, client_id), (user, None), (None, client_id)):
        if entity in found:
            return found[entity]
    return None
