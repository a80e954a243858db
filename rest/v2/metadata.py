"""Brokers, topics and partitions in version 2."""

from __future__ import annotations

import asyncio
from typing import Any

from ...cluster.client.admin_client import TOPIC, AdminClient
from ...cluster.client.client_errors import RefusedError
from ...cluster.client.cluster_client import PartitionView, TopicView
from ...cluster.client.consumer import EARLIEST, LATEST, Consumer
from ...wire.errors import ErrorCode
from ..errors import partition_not_found, topic_not_found
from ..request import Request
from ..routes import Answer, Route
from ..services import Services
from .content_types import negotiated

_UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION)


async def topic_of(services: Services, request: Request) -> TopicView:
    """The topic that the path names. Raises `RestError` with 40401 when there is none."""
    name = request.parameters["topic"]
    try:
        return (await services.cluster.view([name])).topic(name)
    except RefusedError as error:
        if error.code in _UNKNOWN:
            raise topic_not_found() from None
        raise


async def _partition_of(services: Services, request: Request) -> PartitionView:
    number = request.number("partition")
    for one in (await topic_of(services, request)).partitions:
        if one.partition == number:
            return one
    raise partition_not_found()


def _partition(one: PartitionView) -> dict[str, Any]:
    replicas = [
        {"broker": broker, "leader": broker == one.leader, "in_sync": broker in one.isr} for broker in one.replicas
    ]
    return {"partition": one.partition, "leader": one.leader, "replicas": replicas}


@negotiated
async def _list_brokers(services: Services, _request: Request) -> Answer:
    return Answer({"brokers": [one.node_id for one in (await services.cluster.view()).brokers]})


@negotiated
async def _list_topics(services: Services, _request: Request) -> Answer:
    return Answer([one.name for one in (await services.cluster.view(None)).topics])


@negotiated
async def _get_topic(services: Services, request: Request) -> Answer:
    topic = await topic_of(services, request)
    configs = await AdminClient(services.cluster.client).describe_configs(TOPIC, topic.name, everything=True)
    return Answer(
        {
            "name": topic.name,
            "configs": {one.name: one.value for one in configs},
            "partitions": [_partition(one) for one in topic.partitions],
        }
    )


@negotiated
async def _list_partitions(services: Services, request: Request) -> Answer:
    return Answer([_partition(one) for one in (await topic_of(services, request)).partitions])


@negotiated
async def _get_partition(services: Services, request: Request) -> Answer:
    return Answer(_partition(await _partition_of(services, request)))


@negotiated
async def _get_offsets(services: Services, request: Request) -> Answer:
    number = (await _partition_of(services, request)).partition
    consumer = Consumer(services.cluster.client, request.parameters["topic"])
    await consumer.start([number], at=0)
    first, end = await asyncio.gather(consumer.offsets(EARLIEST, [number]), consumer.offsets(LATEST, [number]))
    return Answer({"beginning_offset": first[number], "end_offset": end[number]})


_SEEING = "Describe on the topic"
ROUTES = (
    Route("GET", "/brokers", _list_brokers, "The ids of the brokers that are alive.", "Brokers"),
    Route("GET", "/topics", _list_topics, "The names of all topics.", "TopicNames"),
    Route(
        "GET",
        "/topics/{topic}",
        _get_topic,
        "A topic with its configuration.",
        "Topic",
        right="Describe and DescribeConfigs on the topic",
    ),
    Route(
        "GET", "/topics/{topic}/partitions", _list_partitions, "The partitions of a topic.", "Partitions", right=_SEEING
    ),
    Route("GET", "/topics/{topic}/partitions/{partition}", _get_partition, "A partition.", "Partition", right=_SEEING),
    Route(
        "GET",
        "/topics/{topic}/partitions/{partition}/offsets",
        _get_offsets,
        "Where a partition begins and ends.",
        "PartitionOffsets",
        right=_SEEING,
    ),
)
