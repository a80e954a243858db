"""The rights that users of the page lack: how a refusal names them, and the check of what is no request of Kafka's."""

from __future__ import annotations

from ...cluster.client.access.needed_rights import NeededRight
from ...cluster.client.cluster_client import ClusterClient
from ...security.authorizer.acl_binding import AclOperation, ResourceType
from ...wire.api_keys import ApiKey
from ..errors import RequestRefusedError

_DESCRIBE_CLUSTER_VERSION = 2


def needs_right(right: NeededRight) -> str:
    """The sentence about a right that is missing."""
    return f"That needs the right {right}, which an administrator may give."


async def check_right_on_cluster(client: ClusterClient, operation: AclOperation) -> None:
    """Refuse what is no request of Kafka's, such as a kill of a node, to a user without this right on the cluster."""
    fields = {"include_cluster_authorized_operations": True, "endpoint_type": 1, "include_fenced_brokers": False}
    answer = await client.request(ApiKey.DESCRIBE_CLUSTER, _DESCRIBE_CLUSTER_VERSION, fields)
    if not answer.cluster_authorized_operations >> operation & 1:
        raise RequestRefusedError(403, needs_right(NeededRight(operation, ResourceType.CLUSTER)))
