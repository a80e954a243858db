"""Which right of Kafka each request of the page needs, so that a refusal names the one that is missing."""

from __future__ import annotations

from ...cluster.client.cluster_client import ClusterClient
from ...security.authorizer.acl_binding import AclOperation
from ...wire.api_keys import ApiKey
from ..errors import RequestRefusedError

_ON_CLUSTER = "on the cluster"
_DESCRIBE_CLUSTER_VERSION = 2


def needs_right(right: str) -> str:
    """The sentence about a right that is missing."""
    return f"That needs the right {right}, which an administrator may give."


def needed_right(method: str, path: list[str]) -> str | None:
    """The right in words, such as "Alter on topic orders"; None where no single one is known."""
    return _right_to_see(path[1:]) if method in ("GET", "HEAD") else _right_to_change(path[1:])


def _right_to_see(path: list[str]) -> str | None:
    match path:
        case ["topics", topic] | ["topics", topic, "replicas"]:
            return f"Describe on topic {topic}"
        case ["topics", topic, "records"]:
            return f"Read on topic {topic}"
        case ["groups", group]:
            return f"Describe on group {group}"
        case ["transactions", name]:
            return f"Describe on transactional id {name}"
        case ["hanging-transactions"]:
            return "Describe on the topics"
        case ["quotas"]:
            return f"DescribeConfigs {_ON_CLUSTER}"
        case ["groups" | "transactions" | "acls" | "users" | "log-dirs" | "reassignments" | "requests"]:
            return f"Describe {_ON_CLUSTER}"
    return None


def _right_to_change(path: list[str]) -> str | None:
    match path:
        case ["topics"]:
            return f"Create {_ON_CLUSTER}, or on the topic"
        case ["topics", topic, "delete"]:
            return f"Delete on topic {topic}"
        case ["topics", topic, "partitions"]:
            return f"Alter on topic {topic}"
        case ["topics", topic, "configs"]:
            return f"AlterConfigs on topic {topic}"
        case ["topics", topic, "records"]:
            return f"Write on topic {topic}"
        case ["groups", group, "reset"]:
            return f"Read on group {group} and on its topics"
        case ["groups", group, "delete"]:
            return f"Delete on group {group}"
        case ["transactions", name, "terminate"]:
            return f"Write on transactional id {name}"
        case ["hanging-transactions", "abort"]:
            return "Write on the topic"
        case ["quotas"]:
            return f"AlterConfigs {_ON_CLUSTER}"
        case ["probe", "start"]:
            return f"Create {_ON_CLUSTER}, and Write on topic raftwerk-console-probe"
        case ["acls" | "users" | "reassignments" | "nodes" | "chaos", *_]:
            return f"Alter {_ON_CLUSTER}"
    return None


async def check_right_on_cluster(client: ClusterClient, operation: AclOperation) -> None:
    """Refuse what is no request of Kafka's, such as a kill of a node, to a user without this right on the cluster."""
    fields = {"include_cluster_authorized_operations": True, "endpoint_type": 1, "include_fenced_brokers": False}
    answer = await client.request(ApiKey.DESCRIBE_CLUSTER, _DESCRIBE_CLUSTER_VERSION, fields)
    if not answer.cluster_authorized_operations >> operation & 1:
        name = operation.name.title().replace("_", "")
        raise RequestRefusedError(403, needs_right(f"{name} {_ON_CLUSTER}"))
