"""DescribeTopicPartitions: partitions with their eligible leader replicas, in pages (KIP-966)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....controller.metadata.metadata_image import MetadataImage
from ....controller.topics.topic_names import is_legal_topic_name
from ....runtime.incremental_work import PLAIN_STEP, Pace, Work, sort_in_steps
from ....security.authorizer.acl_binding import AclOperation, ResourceType
from ....security.authorizer.authorizer import DENIED
from ....wire.codec import Rows
from ....wire.errors import ErrorCode, ProtocolError
from ...api import Fields
from ...network.request import Request
from ...services import BrokerServices
from ...topic_view import INTERNAL_TOPICS, PartitionRows, sorted_partitions

if TYPE_CHECKING:
    from ....wire.message_types.cluster import DescribeTopicPartitionsRequest


def _names(image: MetadataImage, message: DescribeTopicPartitionsRequest, start: str, pace: Pace) -> Work[list[str]]:
    asked: dict[str, None] = {}
    for topic in message.topics:
        asked[topic.name] = None
        if pace.ends_step():
            yield PLAIN_STEP
    names = image.topics_by_name if not message.topics else asked
    return (yield from sort_in_steps([name for name in names if name >= start], pace))


def _failed(name: str, code: ErrorCode) -> dict[str, Any]:
    return {"error_code": int(code), "name": name, "is_internal": name in INTERNAL_TOPICS, "partitions": []}


def handle(services: BrokerServices, request: Request, message: DescribeTopicPartitionsRequest) -> Work[Fields]:
    """One page, and the cursor of the next one."""
    image = services.metadata.image
    cursor = message.cursor
    if cursor is not None and cursor.partition_index < 0:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "DescribeTopicPartitionsRequest cursor partition must be valid")
    start = cursor.topic_name if cursor is not None else ""
    left = max(1, min(message.response_partition_limit, services.config.max_describe_partitions))
    partitions = PartitionRows(image, request.sink.listener_name)
    rows: list[dict[str, Any]] = []
    next_cursor = None
    pace = Pace()
    rights, wants_all = services.authorization, not message.topics
    may_describe = rights.permission(request, AclOperation.DESCRIBE, ResourceType.TOPIC, logs_denial=not wants_all)
    for name in (yield from _names(image, message, start, pace)):
        if pace.ends_step():
            yield PLAIN_STEP
        if not may_describe(name):
            if not wants_all:
                rows.append(_failed(name, DENIED[ResourceType.TOPIC]))
            continue
        topic = image.topics_by_name.get(name)
        if topic is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            row = _failed(name, code if is_legal_topic_name(name) else ErrorCode.INVALID_TOPIC_EXCEPTION)
            rows.append(row | {"topic_authorized_operations": rights.topic_operations(request, name)})
            continue
        if left == 0:
            next_cursor = {"topic_name": name, "partition_index": 0}
            break
        first = cursor.partition_index if cursor is not None and name == start else 0
        wanted = [pair for pair in sorted_partitions(topic) if pair[0] >= first]
        page = wanted[:left]
        left -= len(page)
        rows.append(
            {
                "error_code": 0,
                "name": name,
                "topic_id": topic.topic_id,
                "is_internal": name in INTERNAL_TOPICS,
                "partitions": [partitions.row(index, one) for index, one in page],
                "topic_authorized_operations": rights.topic_operations(request, name),
            }
        )
        if len(page) < len(wanted):
            next_cursor = {"topic_name": name, "partition_index": wanted[len(page)][0]}
            break
    return {"topics": rows, "next_cursor": next_cursor}


def error(message: DescribeTopicPartitionsRequest, code: int, text: str) -> Fields:
    """Every topic asked for gets the error."""
    return {"topics": Rows(lambda topic: {"error_code": code, "name": topic.name, "partitions": []}, message.topics)}
