"""What decides who may do what. A class of the operator may take the place of StandardAuthorizer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from ...wire.errors import ErrorCode
from ..principals import KafkaPrincipal
from .acl_binding import AclBinding, AclOperation, ResourceType

DENIED: Mapping[ResourceType, ErrorCode] = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
"""The error code of a denial, by the type of the resource."""


class Authorizer(Protocol):
    """Kafka's Authorizer. Its methods are called on the path of requests, so they must not wait for anything."""

    def authorize(
        self, principal: KafkaPrincipal, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        """Whether the principal, from that IP address, may do that to the resource."""
        ...

    def authorize_by_resource_type(
        self, principal: KafkaPrincipal, host: str, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        """Whether there may be any resource of the type to which the principal may do that (KIP-679)."""
        ...

    def replace(self, bindings: Iterable[AclBinding]) -> None:
        """These are all access control lists of the cluster now."""
        ...

    def change(self, added: Iterable[AclBinding], removed: Iterable[AclBinding]) -> None:
        """The access control lists of the cluster have changed. Equal ones may be there more than once."""
        ...
