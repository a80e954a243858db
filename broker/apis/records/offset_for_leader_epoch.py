"""OffsetForLeaderEpoch: the end offset of a leader epoch, by which clients detect truncation (KIP-101, KIP-320)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ....runtime.incremental_work import PLAIN_STEP, Pace, Work, map_in_steps
from ....security.authorizer.acl_binding import AclOperation, ResourceType
from ....security.authorizer.authorizer import DENIED
from ....wire.codec import Rows
from ....wire.errors import ErrorCode
from ....wire.types import TopicPartition
from ...api import Fields
from ...network.request import Request
from ...quotas.throttling import EXEMPT
from ...services import BrokerServices

if TYPE_CHECKING:
    from ....wire.message_types.records import OffsetForLeaderEpochRequest


def _row(
    services: BrokerServices, topic: str, wanted: OffsetForLeaderEpochRequest.OffsetForLeaderPartition
) -> dict[str, Any]:
    known = services.metadata.image.topics_by_name.get(topic)
    if known is None or wanted.partition not in known.partitions:
        return {"partition": wanted.partition, "error_code": int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)}
    code, epoch, end_offset = services.replicas.offset_for_leader_epoch(
        TopicPartition(topic, wanted.partition), wanted.current_leader_epoch, wanted.leader_epoch
    )
    return {"partition": wanted.partition, "error_code": int(code), "leader_epoch": epoch, "end_offset": end_offset}


def _denied(wanted: OffsetForLeaderEpochRequest.OffsetForLeaderPartition) -> dict[str, Any]:
    return {"partition": wanted.partition, "error_code": int(DENIED[ResourceType.TOPIC])}


def handle(services: BrokerServices, request: Request, message: OffsetForLeaderEpochRequest) -> Work[Fields]:
    """One row for each partition."""
    if message.get("replica_id", -1) >= 0:
        request.throttle_ms = EXEMPT
    pace, topics = Pace(), []
    rights = services.authorization
    is_node = rights.is_allowed_on_cluster(request, AclOperation.CLUSTER_ACTION, logs_denial=False)
    for topic in message.topics:
        if is_node or rights.is_allowed(request, AclOperation.DESCRIBE, ResourceType.TOPIC, topic.topic):
            row: Callable[[OffsetForLeaderEpochRequest.OffsetForLeaderPartition], dict[str, Any]] = partial(
                _row, services, topic.topic
            )
        else:
            row = _denied
        rows = yield from map_in_steps(row, topic.partitions, pace)
        topics.append({"topic": topic.topic, "partitions": rows})
        if pace.ends_step():
            yield PLAIN_STEP
    return {"topics": topics}


def error(message: OffsetForLeaderEpochRequest, code: int, text: str) -> Fields:
    """Every partition asked for gets the error."""
    return {
        "topics": Rows(
            lambda topic: {
                "topic": topic.topic,
                "partitions": Rows(lambda one: {"partition": one.partition, "error_code": code}, topic.partitions),
            },
            message.topics,
        )
    }
