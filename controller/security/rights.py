"""What decisions ask of the authorizer: whether who makes the request may do something to one resource of it."""

from __future__ import annotations

from typing import Protocol

from ...security.authorizer.acl_binding import CLUSTER_NAME, AclOperation, ResourceType
from ...security.authorizer.authorizer import DENIED
from ...wire.errors import ProtocolError


class IsAllowed(Protocol):
    """Whether who makes the request may do that (`broker.authorization.Authorization.is_allowed`)."""

    def __call__(
        self, operation: AclOperation, resource_type: ResourceType, name: str, *, logs_denial: bool = True
    ) -> bool: ...


def allows_all(operation: AclOperation, resource_type: ResourceType, name: str, *, logs_denial: bool = True) -> bool:
    """Everybody may do everything, as without an authorizer."""
    return True


class TopicRights:
    """What may be done to topics: a right to all of them, on the cluster, counts for each (Kafka: `hasClusterAuth`)."""

    def __init__(self, is_allowed: IsAllowed, operation: AclOperation) -> None:
        self._is_allowed = is_allowed
        self._operation = operation
        self._has_all = is_allowed(operation, ResourceType.CLUSTER, CLUSTER_NAME, logs_denial=False)

    def check(self, name: str, message: str = "") -> None:
        """Raise `ProtocolError(TOPIC_AUTHORIZATION_FAILED)` unless the topic may be dealt with."""
        if not self._has_all and not self._is_allowed(self._operation, ResourceType.TOPIC, name):
            raise ProtocolError(DENIED[ResourceType.TOPIC], message)

    def may_describe(self, name: str) -> bool:
        """Whether the topic may be known to exist."""
        return self._has_all or self._is_allowed(AclOperation.DESCRIBE, ResourceType.TOPIC, name)
