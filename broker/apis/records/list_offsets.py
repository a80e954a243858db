"""ListOffsets: the offset for a timestamp, or of one end of the log (KIP-79, KIP-207, KIP-734)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....runtime.incremental_work import PLAIN_STEP, Pace, Work
from ....security.authorizer.acl_binding import AclOperation, ResourceType
from ....security.authorizer.authorizer import DENIED
from ....wire.codec import Rows
from ....wire.errors import ErrorCode
from ....wire.types import TopicPartition
from ...api import Fields
from ...network.request import Request
from ...services import BrokerServices

if TYPE_CHECKING:
    from ....wire.message_types.records import ListOffsetsRequest

_SINCE_VERSION = {-1: 1, -2: 1, -3: 7, -4: 8, -5: 9, -6: 11}
"""The first version of each negative timestamp, which stands for a special offset."""
FIRST_VERSION_WITH_NOT_AVAILABLE = 5
"""Older clients do not know OFFSET_NOT_AVAILABLE, and would not try again (KIP-207)."""
_ITEMS_PER_LOOKUP = 15
"""To find a timestamp in a log takes as long as so many other rows."""


def _failed(index: int, code: int) -> dict[str, Any]:
    return {"partition_index": index, "error_code": code, "timestamp": -1, "offset": -1, "leader_epoch": -1}


def _row(
    services: BrokerServices,
    request: Request,
    message: ListOffsetsRequest,
    topic: str,
    wanted: ListOffsetsRequest.ListOffsetsPartition,
) -> dict[str, Any]:
    index, timestamp = wanted.partition_index, wanted.timestamp
    if timestamp < 0 and request.api_version < _SINCE_VERSION.get(timestamp, 2**15):
        return _failed(index, int(ErrorCode.UNSUPPORTED_VERSION))
    found = services.replicas.list_offset(
        TopicPartition(topic, index),
        timestamp,
        wanted.get("current_leader_epoch", -1),
        message.get("isolation_level", 0),
        message.replica_id,
    )
    if found.error_code == ErrorCode.OFFSET_NOT_AVAILABLE and request.api_version < FIRST_VERSION_WITH_NOT_AVAILABLE:
        return _failed(index, int(ErrorCode.LEADER_NOT_AVAILABLE))
    if found.error_code:
        return _failed(index, int(found.error_code))
    row = {"partition_index": index, "error_code": 0, "timestamp": found.timestamp, "offset": found.offset}
    return row | {"leader_epoch": found.leader_epoch}


def handle(services: BrokerServices, request: Request, message: ListOffsetsRequest) -> Work[Fields]:
    """One row for each partition; a partition that is named twice is an error."""
    image = services.metadata.image
    pace = Pace()
    seen: dict[tuple[str, int], int] = {}
    for topic in message.topics:
        for wanted in topic.partitions:
            key = (topic.name, wanted.partition_index)
            seen[key] = seen.get(key, 0) + 1
            if pace.ends_step():
                yield PLAIN_STEP
    topics = []
    for topic in message.topics:
        known = image.topics_by_name.get(topic.name)
        is_allowed = services.authorization.is_allowed(request, AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name)
        rows = []
        for wanted in topic.partitions:
            index = wanted.partition_index
            if not is_allowed:
                rows.append(_failed(index, int(DENIED[ResourceType.TOPIC])))
            elif seen[topic.name, index] > 1:
                rows.append(_failed(index, int(ErrorCode.INVALID_REQUEST)))
            elif known is None or index not in known.partitions:
                rows.append(_failed(index, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)))
            else:
                rows.append(_row(services, request, message, topic.name, wanted))
                if wanted.timestamp >= 0 and pace.ends_step(_ITEMS_PER_LOOKUP):
                    yield PLAIN_STEP
            if pace.ends_step():
                yield PLAIN_STEP
        if pace.ends_step():
            yield PLAIN_STEP
        topics.append({"name": topic.name, "partitions": rows})
    return {"topics": topics}


def error(message: ListOffsetsRequest, code: int, text: str) -> Fields:
    """Every partition asked for gets the error."""
    return {
        "topics": Rows(
            lambda topic: {
                "name": topic.name,
                "partitions": Rows(lambda one: _failed(one.partition_index, code), topic.partitions),
            },
            message.topics,
        )
    }
