"""Topics, their partitions, and the replicas of these."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...cluster.client.cluster_client import PartitionView, TopicView
from ...wire.api_keys import ApiKey
from ..errors import KAFKA_BAD_REQUEST, RestError, path_not_found, refused, unknown_topic_or_partition
from ..request import INT32_MAX, Request
from ..routes import Answer, Route
from ..services import Services
from .resources import Links, links_of

_CREATE_TOPICS_VERSION = 7
_DELETE_TOPICS_VERSION = 6
_CREATE_PARTITIONS_VERSION = 3
_TOPICS = "/v3/clusters/{cluster_id}/topics"
_TOPIC = f"{_TOPICS}/{{topic_name}}"
_PARTITION = f"{_TOPIC}/partitions/{{partition_id}}"


def _topic_resource(links: Links, name: str, *, is_internal: bool, replicas: int, partitions: int) -> Any:
    at = ("topics", name)
    return links.resource(
        "KafkaTopic",
        at,
        [("topic", name)],
        topic_name=name,
        is_internal=is_internal,
        replication_factor=replicas,
        partitions_count=partitions,
        partitions=links.related(*at, "partitions"),
        configs=links.related(*at, "configs"),
        partition_reassignments=links.related(*at, "partitions", "-", "reassignment"),
    )


def _described(links: Links, topic: TopicView) -> Any:
    replicas = len(topic.partitions[0].replicas) if topic.partitions else 0
    return _topic_resource(
        links, topic.name, is_internal=topic.internal, replicas=replicas, partitions=len(topic.partitions)
    )


def _partition_resource(links: Links, topic: str, partition: PartitionView) -> Any:
    at = ("topics", topic, "partitions", partition.partition)
    return links.resource(
        "KafkaPartition",
        at,
        [("topic", topic), ("partition", partition.partition)],
        topic_name=topic,
        partition_id=partition.partition,
        leader=None if partition.leader < 0 else links.related(*at, "replicas", partition.leader),
        replicas=links.related(*at, "replicas"),
        reassignment=links.related(*at, "reassignment"),
    )


def replica_resource(links: Links, topic: str, partition: PartitionView, broker: int) -> Any:
    """The replica of a partition on a broker."""
    at = ("topics", topic, "partitions", partition.partition, "replicas", broker)
    return links.resource(
        "KafkaReplica",
        at,
        [("topic", topic), ("partition", partition.partition), ("replica", broker)],
        topic_name=topic,
        partition_id=partition.partition,
        broker_id=broker,
        is_leader=partition.leader == broker,
        is_in_sync=broker in partition.isr,
        broker=links.related("brokers", broker),
    )


async def _list_topics(services: Services, request: Request) -> Answer:
    links = await links_of(services, request)
    rows = [_described(links, one) for one in (await services.cluster.view(None)).topics]
    return links.listed("KafkaTopicList", ["topics"], rows)


def _assignments(given: Mapping[str, list[int]] | None) -> list[dict[str, Any]]:
    rows = []
    for partition, brokers in (given or {}).items():
        if not partition.isascii() or not partition.isdigit() or len(partition) > 10 or int(partition) > INT32_MAX:
            raise RestError(400, f"replicas_assignments has no partition {partition[:40]!r}: its keys are numbers")
        rows.append({"partition_index": int(partition), "broker_ids": brokers})
    return rows


async def _create_topic(services: Services, request: Request) -> Answer:
    links = await links_of(services, request)
    body = await request.fields("CreateTopicRequestData")
    name, is_trial = body["topic_name"], bool(body.get("validate_only"))
    assignments = _assignments(body.get("replicas_assignments"))
    if assignments and (body.get("partitions_count") or body.get("replication_factor")):
        raise RestError(
            KAFKA_BAD_REQUEST, "replicas_assignments stand instead of partitions_count and replication_factor"
        )
    topic = {
        "name": name,
        "num_partitions": body.get("partitions_count") or -1,
        "replication_factor": body.get("replication_factor") or -1,
        "assignments": assignments,
        "configs": [{"name": one["name"], "value": one.get("value")} for one in body.get("configs") or ()],
    }
    timeout_ms = int(services.cluster.client.timeout_s * 1000)
    fields = {"topics": [topic], "timeout": timeout_ms, "validate_only": is_trial}
    row = await services.cluster.change(ApiKey.CREATE_TOPICS, _CREATE_TOPICS_VERSION, fields, "topics")
    if row.error_code:
        raise refused(row.error_code, f"topic {name}", row.error_message)
    if not is_trial:
        await services.cluster.until(name, _has_leaders)
    created = _topic_resource(
        links, name, is_internal=False, replicas=row.replication_factor, partitions=row.num_partitions
    )
    location = {} if is_trial else {"location": created["metadata"]["self"]}
    return Answer(created, 200 if is_trial else 201, headers=location)


def _has_leaders(topic: TopicView | None) -> bool:
    return topic is not None and bool(topic.partitions) and all(one.leader >= 0 for one in topic.partitions)


async def _get_topic(services: Services, request: Request) -> Answer:
    links = await links_of(services, request)
    return Answer(_described(links, await services.cluster.topic(request.parameters["topic_name"])))


async def _add_partitions(services: Services, request: Request) -> Answer:
    links = await links_of(services, request)
    name = request.parameters["topic_name"]
    count = (await request.fields("UpdatePartitionCountRequestData"))["partitions_count"]
    await services.cluster.topic(name)
    timeout_ms = int(services.cluster.client.timeout_s * 1000)
    topic = {"name": name, "count": count, "assignments": None}
    fields = {"topics": [topic], "timeout": timeout_ms, "validate_only": False}
    row = await services.cluster.change(ApiKey.CREATE_PARTITIONS, _CREATE_PARTITIONS_VERSION, fields, "results")
    if row.error_code:
        raise refused(row.error_code, f"topic {name}", row.error_message)
    await services.cluster.until(name, lambda view: view is not None and len(view.partitions) >= count)
    return Answer(_described(links, await services.cluster.topic(name)))


async def _delete_topic(services: Services, request: Request) -> Answer:
    await links_of(services, request)
    name = request.parameters["topic_name"]
    timeout_ms = int(services.cluster.client.timeout_s * 1000)
    fields = {"topics": [{"name": name, "topic_id": None}], "timeout": timeout_ms}
    row = await services.cluster.change(ApiKey.DELETE_TOPICS, _DELETE_TOPICS_VERSION, fields, "responses")
    if row.error_code:
        raise refused(row.error_code, f"topic {name}", row.error_message)
    await services.cluster.until(name, lambda topic: topic is None)
    return Answer(status=204)


async def _list_partitions(services: Services, request: Request) -> Answer:
    links = await links_of(services, request)
    topic = await services.cluster.topic(request.parameters["topic_name"])
    rows = [_partition_resource(links, topic.name, one) for one in topic.partitions]
    return links.listed("KafkaPartitionList", ["topics", topic.name, "partitions"], rows)


async def _partition_of(services: Services, request: Request) -> PartitionView:
    number = request.number("partition_id")
    for one in (await services.cluster.topic(request.parameters["topic_name"])).partitions:
        if one.partition == number:
            return one
    raise unknown_topic_or_partition()


async def _get_partition(services: Services, request: Request) -> Answer:
    links = await links_of(services, request)
    partition = await _partition_of(services, request)
    return Answer(_partition_resource(links, request.parameters["topic_name"], partition))


async def _list_replicas(services: Services, request: Request) -> Answer:
    links = await links_of(services, request)
    topic, partition = request.parameters["topic_name"], await _partition_of(services, request)
    rows = [replica_resource(links, topic, partition, broker) for broker in partition.replicas]
    return links.listed("KafkaReplicaList", ["topics", topic, "partitions", partition.partition, "replicas"], rows)


async def _get_replica(services: Services, request: Request) -> Answer:
    links = await links_of(services, request)
    broker, partition = request.number("broker_id"), await _partition_of(services, request)
    if broker not in partition.replicas:
        raise path_not_found()
    return Answer(replica_resource(links, request.parameters["topic_name"], partition, broker))


_SEEING = "Describe on the topic"
ROUTES = (
    Route("GET", _TOPICS, _list_topics, "All topics.", "TopicDataList"),
    Route(
        "POST",
        _TOPICS,
        _create_topic,
        "Create a topic.",
        "TopicData",
        201,
        "CreateTopicRequestData",
        right="Create on the topic or on the cluster",
    ),
    Route("GET", _TOPIC, _get_topic, "A topic.", "TopicData", right=_SEEING),
    Route(
        "PATCH",
        _TOPIC,
        _add_partitions,
        "Add partitions to a topic.",
        "TopicData",
        200,
        "UpdatePartitionCountRequestData",
        right="Alter on the topic",
    ),
    Route("DELETE", _TOPIC, _delete_topic, "Delete a topic.", status=204, right="Delete on the topic"),
    Route(
        "GET",
        f"{_TOPIC}/partitions",
        _list_partitions,
        "The partitions of a topic.",
        "PartitionDataList",
        right=_SEEING,
    ),
    Route("GET", _PARTITION, _get_partition, "A partition.", "PartitionData", right=_SEEING),
    Route(
        "GET",
        f"{_PARTITION}/replicas",
        _list_replicas,
        "The replicas of a partition.",
        "ReplicaDataList",
        right=_SEEING,
    ),
    Route("GET", f"{_PARTITION}/replicas/{{broker_id}}", _get_replica, "A replica.", "ReplicaData", right=_SEEING),
)
