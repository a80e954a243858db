"""Metadata: the brokers, the controller, and topics with the leaders of their partitions.

When a leader may just have died, the answer waits a little: see `suspected_brokers`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any
from uuid import UUID

from ....controller.metadata.metadata_image import MetadataImage, TopicImage
from ....controller.topics.topic_names import is_legal_topic_name
from ....runtime.incremental_work import PLAIN_STEP, Pace, Work, map_in_steps, run_at_once
from ....security.authorizer.acl_binding import AclOperation, ResourceType
from ....security.authorizer.authorizer import DENIED
from ....wire.codec import Rows
from ....wire.errors import ErrorCode
from ...api import Fields, Result
from ...network.request import Request
from ...services import BrokerServices
from ...topic_view import (
    INTERNAL_TOPICS,
    PartitionRows,
    broker_rows,
    controller_id_for_clients,
    sorted_partitions,
)
from .suspected_brokers import NEW_CONNECTION_S, REFRESH_DELAY_S

if TYPE_CHECKING:
    from ....wire.message_types.cluster import MetadataRequest

FIRST_VERSION_BY_ID = 12
LISTENER_NOT_FOUND_SINCE = 6
ITEMS_PER_STEP = 256
"""Topics and partitions that are described in one step."""
TOPICS_AT_ONCE = 64
"""Answers with more topics are made in steps."""


def topic_row(rows: PartitionRows, topic: TopicImage, request: Request, operations: int) -> dict[str, Any]:
    """A known topic's row."""
    partitions = []
    for index, registration in sorted_partitions(topic):
        row = rows.row(index, registration)
        if row["error_code"] == ErrorCode.LISTENER_NOT_FOUND and request.api_version < LISTENER_NOT_FOUND_SINCE:
            row["error_code"] = int(ErrorCode.LEADER_NOT_AVAILABLE)
        partitions.append(row)
    return {
        "error_code": 0,
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.name in INTERNAL_TOPICS,
        "partitions": partitions,
        "topic_authorized_operations": operations,
    }


def failed_topic(request: Request, name: str | None, topic_id: UUID | None, code: ErrorCode) -> dict[str, Any]:
    """The row of a topic that does not exist, or of which the client may not know.

    Before version 12 its name cannot be null.
    """
    if name is None and request.api_version < FIRST_VERSION_BY_ID:
        name = ""
    internal = name in INTERNAL_TOPICS
    return {"error_code": int(code), "name": name, "topic_id": topic_id, "is_internal": internal, "partitions": []}


def _wants_all(request: Request, message: MetadataRequest) -> bool:
    return message.topics is None or (request.api_version == 0 and not message.topics)


def _rows(services: BrokerServices, request: Request, message: MetadataRequest) -> Work[list[dict[str, Any]]]:
    """The rows of the topics asked for, one topic or some partitions a step."""
    rights = services.authorization
    asked = message.get("include_topic_authorized_operations", False)
    wants_all = _wants_all(request, message)
    may_describe = rights.permission(request, AclOperation.DESCRIBE, ResourceType.TOPIC, logs_denial=not wants_all)
    creates = services.config.topics.auto_create and message.get("allow_auto_topic_creation", True)
    may_create = _may_create(services, request) if creates else None
    image = services.metadata.image
    partitions = PartitionRows(image, request.sink.listener_name)
    rows: list[dict[str, Any]] = []
    missing: dict[str, None] = {}
    left = ITEMS_PER_STEP
    for name, topic_id, topic in _topics(image, request, message):
        if topic is None and topic_id is not None:
            rows.append(failed_topic(request, None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID))
        elif not may_describe(topic.name if topic is not None else name or ""):
            if not wants_all:  # an id is not a secret, the name is
                rows.append(failed_topic(request, name, topic_id, DENIED[ResourceType.TOPIC]))
        elif topic is not None:
            operations = rights.topic_operations(request, topic.name, is_asked=asked)
            rows.append(topic_row(partitions, topic, request, operations))
            left -= len(topic.partitions)
        else:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if may_create is not None and not may_create(name or ""):
                code = DENIED[ResourceType.TOPIC]
            elif name is None or not is_legal_topic_name(name):
                code = ErrorCode.INVALID_TOPIC_EXCEPTION
            elif may_create is not None:
                missing[name] = None
            row = failed_topic(request, name, None, code)
            if code != DENIED[ResourceType.TOPIC]:
                row["topic_authorized_operations"] = rights.topic_operations(request, name or "", is_asked=asked)
            rows.append(row)
        left -= 1
        if left <= 0:
            left = ITEMS_PER_STEP
            yield PLAIN_STEP
    if missing:
        services.topic_creator.request_topics(missing, request)
    return rows


def _may_create(services: BrokerServices, request: Request) -> Callable[[str], bool]:
    """A test of topics that do not exist: whether asking for them may create them."""
    rights = services.authorization
    may_create = rights.permission(request, AclOperation.CREATE, ResourceType.TOPIC)
    is_creator = rights.is_allowed_on_cluster(request, AclOperation.CREATE, logs_denial=False)
    return lambda name: is_creator or may_create(name)


def _topics(
    image: MetadataImage, request: Request, message: MetadataRequest
) -> Iterator[tuple[str | None, UUID | None, TopicImage | None]]:
    """The topics to describe: name, id, and what is known of each."""
    if _wants_all(request, message):
        for name, topic in sorted(image.topics_by_name.items(), key=itemgetter(0)):
            yield name, topic.topic_id, topic
        return
    for wanted in message.topics or ():
        key = wanted.name, wanted.get("topic_id")
        yield *key, _find_topic(image, *key)


def _find_topic(image: MetadataImage, name: str | None, topic_id: UUID | None) -> TopicImage | None:
    """The topic with this id, or with this name where the id is None."""
    if topic_id is not None:
        return image.topics_by_id.get(topic_id)
    return None if name is None else image.topics_by_name.get(name)


def _is_invalid(request: Request, message: MetadataRequest) -> bool:
    """Whether the request uses topic ids before version 12: the schema has them from 10 on, for later use."""
    return any(_is_invalid_topic(request, wanted) for wanted in message.topics or ())


def _is_invalid_topic(request: Request, wanted: MetadataRequest.MetadataRequestTopic) -> bool:
    has_id = wanted.name is None or wanted.get("topic_id") is not None
    return has_id and request.api_version < FIRST_VERSION_BY_ID


def _leaders(image: MetadataImage, message: MetadataRequest, wants_all: bool) -> Iterator[int]:
    """The leaders of the partitions asked for."""
    topics: Iterable[TopicImage | None] = image.topics_by_name.values()
    if not wants_all:
        topics = (_find_topic(image, wanted.name, wanted.get("topic_id")) for wanted in message.topics or ())
    for topic in topics:
        if topic is not None:
            for registration in topic.partitions.values():
                yield registration.leader


async def _answer_when_certain(
    services: BrokerServices, request: Request, message: MetadataRequest, delay_s: float
) -> Result:
    loop = asyncio.get_running_loop()
    wants_all = _wants_all(request, message)
    if delay_s:
        await asyncio.sleep(delay_s)
    while services.suspected_brokers.includes_any(_leaders(services.metadata.image, message, wants_all), loop.time()):
        await services.suspected_brokers.wait(loop.time())
    return _answer(services, request, message)


def handle(services: BrokerServices, request: Request, message: MetadataRequest) -> Result:
    """Answer at once, or wait while a leader is suspected to be dead (see `suspected_brokers`)."""
    if len(message.topics or ()) > ITEMS_PER_STEP:
        return _handle_in_steps(services, request, message)
    if message.topics:
        run_at_once(_leave_out_duplicates(message))
    return _handle(services, request, message)


def _handle_in_steps(services: BrokerServices, request: Request, message: MetadataRequest) -> Work[Result]:
    """Handle a request with many topics. Where they are distinct, their leaders are not waited for."""
    yield from _leave_out_duplicates(message)
    if len(message.topics or ()) <= ITEMS_PER_STEP:
        return _handle(services, request, message)
    is_invalid = any((yield from map_in_steps(partial(_is_invalid_topic, request), message.topics or ())))
    return error(message, int(ErrorCode.INVALID_REQUEST), "") if is_invalid else _answer(services, request, message)


def _leave_out_duplicates(message: MetadataRequest) -> Work[None]:
    """Each topic is described once, as in Apache Kafka."""
    asked = message.topics or []
    message.topics = []
    asked.reverse()
    distinct: dict[object, MetadataRequest.MetadataRequestTopic] = {}
    pace = Pace()
    while asked:
        wanted = asked.pop()
        topic_id = wanted.get("topic_id")
        distinct.setdefault(wanted.name if topic_id is None else (wanted.name, topic_id), wanted)
        if pace.ends_step():
            yield PLAIN_STEP
    message.topics = list(distinct.values())
    while distinct:  # freed in steps, since its keys may be tuples
        distinct.popitem()
        if pace.ends_step():
            yield PLAIN_STEP


def _handle(services: BrokerServices, request: Request, message: MetadataRequest) -> Result:
    if _is_invalid(request, message):
        return error(message, int(ErrorCode.INVALID_REQUEST), "")
    now, wants_all = asyncio.get_running_loop().time(), _wants_all(request, message)
    leaders = dict.fromkeys(_leaders(services.metadata.image, message, wants_all))
    refreshes = not wants_all and now - request.sink.opened_at > NEW_CONNECTION_S
    if refreshes and any(leader not in (-1, services.config.node_id) for leader in leaders):
        return _answer_when_certain(services, request, message, REFRESH_DELAY_S)
    if services.suspected_brokers.includes_any(leaders, now):
        return _answer_when_certain(services, request, message, 0)
    return _answer(services, request, message)


def _answer(services: BrokerServices, request: Request, message: MetadataRequest) -> Result:
    topics = services.metadata.image.topics_by_name if _wants_all(request, message) else message.topics
    work = _answer_in_steps(services, request, message)
    return work if len(topics or ()) > TOPICS_AT_ONCE else run_at_once(work)


def _answer_in_steps(services: BrokerServices, request: Request, message: MetadataRequest) -> Work[Result]:
    image = services.metadata.image
    rows = yield from _rows(services, request, message)
    recently_fenced = services.recently_fenced_brokers.ids(asyncio.get_running_loop().time())
    cluster_asked = message.get("include_cluster_authorized_operations", False)
    return {
        "brokers": broker_rows(image, request.sink.listener_name, recently_fenced),
        "cluster_id": services.config.cluster_id,
        "controller_id": controller_id_for_clients(image, services.metadata.leader.leader_id),
        "topics": rows,
        "cluster_authorized_operations": services.authorization.cluster_operations(request, is_asked=cluster_asked),
    }


def error(message: MetadataRequest, code: int, text: str) -> Fields:
    """Every topic asked for gets the error."""
    rows = Rows(
        lambda wanted: {
            "error_code": code,
            "name": wanted.name or "",
            "topic_id": wanted.get("topic_id"),
            "partitions": [],
        },
        message.topics or (),
    )
    return {"brokers": [], "topics": rows, "error_code": code}
