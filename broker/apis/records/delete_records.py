"""DeleteRecords: delete the records below an offset, on every replica that is up (KIP-107)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from ....isr.results import DeletedRecords
from ....runtime.incremental_work import PLAIN_STEP, Pace, Work
from ....security.authorizer.acl_binding import AclOperation, ResourceType
from ....security.authorizer.authorizer import DENIED
from ....wire.codec import Rows
from ....wire.errors import ErrorCode
from ....wire.types import TopicPartition
from ...api import Fields, Result
from ...network.request import Request
from ...services import BrokerServices
from ...topic_view import INTERNAL_TOPICS

if TYPE_CHECKING:
    from ....wire.message_types.records import DeleteRecordsRequest

_ITEMS_PER_DELETION = 8
"""To move the start of a log takes as long as so many other rows."""
_POLL_S = (0.005, 0.1)
"""First and longest pause between polls.

Followers learn the new log start offset with their next fetch, within 0.5 s.
"""


def _start(services: BrokerServices, topic: str, wanted: DeleteRecordsRequest.DeleteRecordsPartition) -> DeletedRecords:
    known = services.metadata.image.topics_by_name.get(topic)
    if known is None or wanted.partition_index not in known.partitions:
        return DeletedRecords(int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    if topic in INTERNAL_TOPICS:
        return DeletedRecords(int(ErrorCode.INVALID_TOPIC_EXCEPTION))
    return services.replicas.delete_records(TopicPartition(topic, wanted.partition_index), wanted.offset)


async def _wait_for_followers(
    results: dict[TopicPartition, DeletedRecords], look: Callable[[TopicPartition], DeletedRecords], timeout_ms: int
) -> None:
    """Wait until every replica that is up has followed, or until the time-out."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_ms / 1000
    pause_s, pause_max_s = _POLL_S
    waiting = [tp for tp, result in results.items() if result.is_behind]
    while waiting:
        left_s = deadline - loop.time()
        for tp in waiting:
            seen = look(tp)
            required = results[tp].required_offset
            results[tp] = seen if seen.error_code else seen._replace(required_offset=required)
            if results[tp].is_behind and left_s <= 0:
                results[tp] = DeletedRecords(int(ErrorCode.REQUEST_TIMED_OUT))
        waiting = [tp for tp in waiting if results[tp].is_behind]
        if left_s > 0 and waiting:
            await asyncio.sleep(min(pause_s, left_s))
            pause_s = min(pause_s * 2, pause_max_s)


def handle(services: BrokerServices, request: Request, message: DeleteRecordsRequest) -> Work[Result]:
    """Move the log start offset, and answer when the replicas that are up have followed."""
    pace = Pace()
    results: dict[TopicPartition, DeletedRecords] = {}
    denied = DeletedRecords(int(DENIED[ResourceType.TOPIC]))
    for topic in message.topics:
        is_allowed = services.authorization.is_allowed(request, AclOperation.DELETE, ResourceType.TOPIC, topic.name)
        for wanted in topic.partitions:
            result = _start(services, topic.name, wanted) if is_allowed else denied
            results[TopicPartition(topic.name, wanted.partition_index)] = result
            if pace.ends_step(1 if result.error_code else _ITEMS_PER_DELETION):
                yield PLAIN_STEP
        if pace.ends_step():
            yield PLAIN_STEP
    return _answer_when_followed(services, message, results)


async def _answer_when_followed(
    services: BrokerServices, message: DeleteRecordsRequest, results: dict[TopicPartition, DeletedRecords]
) -> Result:
    await _wait_for_followers(results, services.replicas.low_watermark, message.timeout)

    def row(topic: str, wanted: DeleteRecordsRequest.DeleteRecordsPartition) -> Fields:
        index = wanted.partition_index
        result = results[TopicPartition(topic, index)]
        return {"partition_index": index, "low_watermark": result.low_watermark, "error_code": result.error_code}

    def topic_row(topic: DeleteRecordsRequest.DeleteRecordsTopic) -> Fields:
        return {"name": topic.name, "partitions": Rows(lambda wanted: row(topic.name, wanted), topic.partitions)}

    return {"topics": Rows(topic_row, message.topics)}


def error(message: DeleteRecordsRequest, code: int, text: str) -> Fields:
    """Every partition asked for gets the error."""
    return {
        "topics": Rows(
            lambda topic: {
                "name": topic.name,
                "partitions": Rows(
                    lambda one: {"partition_index": one.partition_index, "low_watermark": -1, "error_code": code},
                    topic.partitions,
                ),
            },
            message.topics,
        )
    }
