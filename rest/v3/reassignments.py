"""Reassignments of partitions that are under way: all, those of a topic, and that of a partition."""

from __future__ import annotations

from typing import Any

from ...cluster.client.reassignment import OngoingMove, reassignments
from ..errors import RestError
from ..request import Request
from ..routes import Answer, Route
from ..services import Services
from .resources import Links, links_of

_TOPICS = "/v3/clusters/{cluster_id}/topics"
_WORD = "reassignment"


def _resource(links: Links, move: OngoingMove) -> Any:
    at = ("topics", move.topic, "partitions", move.partition)
    return links.resource(
        "KafkaReassignment",
        (*at, _WORD),
        [("topic", move.topic), ("partition", move.partition)],
        f"/{_WORD}",
        topic_name=move.topic,
        partition_id=move.partition,
        adding_replicas=list(move.adding),
        removing_replicas=list(move.removing),
        replicas=links.related(*at, "replicas"),
    )


async def _list_all(services: Services, request: Request) -> Answer:
    links = await links_of(services, request)
    rows = [_resource(links, one) for one in await reassignments(services.cluster.client)]
    return links.listed("KafkaReassignmentList", ["topics", "-", "partitions", "-", _WORD], rows)


async def _list_of_topic(services: Services, request: Request) -> Answer:
    links = await links_of(services, request)
    topic = (await services.cluster.topic(request.parameters["topic_name"])).name
    moves = [one for one in await reassignments(services.cluster.client) if one.topic == topic]
    rows = [_resource(links, one) for one in moves]
    return links.listed("KafkaReassignmentList", ["topics", topic, "partitions", "-", _WORD], rows)


async def _get(services: Services, request: Request) -> Answer:
    links = await links_of(services, request)
    topic, partition = request.parameters["topic_name"], request.number("partition_id")
    for one in await reassignments(services.cluster.client):
        if (one.topic, one.partition) == (topic, partition):
            return Answer(_resource(links, one))
    raise RestError(404, f"No reassignment of partition {partition} of topic {topic} is under way.")


_SEEING = "Describe on the cluster"
ROUTES = (
    Route(
        "GET",
        f"{_TOPICS}/-/partitions/-/reassignment",
        _list_all,
        "The reassignments that are under way.",
        "ReassignmentDataList",
        right=_SEEING,
    ),
    Route(
        "GET",
        f"{_TOPICS}/{{topic_name}}/partitions/-/reassignment",
        _list_of_topic,
        "The reassignments of a topic that are under way.",
        "ReassignmentDataList",
        right=_SEEING,
    ),
    Route(
        "GET",
        f"{_TOPICS}/{{topic_name}}/partitions/{{partition_id}}/reassignment",
        _get,
        "The reassignment of a partition that is under way.",
        "ReassignmentData",
        right=_SEEING,
    ),
)
