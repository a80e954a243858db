"""OffsetForLeaderEpoch: the end offset of a leader epoch, by which clients detect truncation (KIP-101, KIP-320)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ....runtime.incremental_work import PLAIN_STEP, Pace, Work, map_in_steps
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


def handle(services: BrokerServices, request: Request, message: OffsetForLeaderEpochRequest) -> Work[Fields]:
    """One row for each partition."""
    if message.get("replica_id", -1) >= 0:
        request.throttle_ms = EXEMPT
    pace, topics = Pace(), []
    for topic in message.topics:
        rows = yield from map_in_steps(partial(_row, services, topic.topic), topic.partitions, pace)
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
