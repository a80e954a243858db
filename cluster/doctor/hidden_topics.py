"""Says where a user may not see all topics: metadata leaves out what it may not describe, without a word."""

from __future__ import annotations

from ...security.authorizer.acl_binding import AclOperation
from ...wire.api_keys import ApiKey
from ..client.client_errors import ClientError
from ..client.cluster_client import NO_ANSWER, ClusterClient

HIDDEN_TOPICS = "topics that this user may not describe are not examined"
WHO_SEES_ALL = "an administrator of the cluster sees all topics"
_DESCRIBE_CLUSTER_VERSION = 0


async def may_miss_topics(client: ClusterClient) -> bool:
    """Whether topics may be hidden from this user, who has not the right to alter the cluster.

    Who has it may give itself all others. A cluster without an authorizer lets everybody do everything.
    """
    fields = {"include_cluster_authorized_operations": True}
    try:
        answer = await client.request(ApiKey.DESCRIBE_CLUSTER, _DESCRIBE_CLUSTER_VERSION, fields)
    except (ClientError, *NO_ANSWER):
        return False
    return not answer.cluster_authorized_operations & (1 << AclOperation.ALTER)
