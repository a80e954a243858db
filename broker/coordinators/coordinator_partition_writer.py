"""Writes a coordinator's records to a partition of its topic with acks=all."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...isr.replica_manager import ReplicaManager
from ...wire.errors import ErrorCode
from ...wire.produce import ProducePartitionResponse
from ...wire.records import NewRecord, encode_batch
from ...wire.types import TopicPartition
from .record_fields import CoordinatorRecord

ACKS_ALL = -1
_NOT_AVAILABLE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
_NOT_COORDINATOR = frozenset(
    {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.FENCED_LEADER_EPOCH}
)
_TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_FETCH_SIZE})


def coordinator_error(code: int, too_large: ErrorCode) -> ErrorCode:
    """The error code of a failed append as clients expect it: retry, or find the coordinator again.

    `too_large` is the code where the records are too large for the topic.
    """
    if code in _NOT_AVAILABLE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if code in _NOT_COORDINATOR:
        return ErrorCode.NOT_COORDINATOR
    if code in _TOO_LARGE:
        return too_large
    return ErrorCode(code)


def write_records(
    replicas: ReplicaManager,
    topic_partition: TopicPartition,
    records: Sequence[CoordinatorRecord],
    times: tuple[int, int],
    done: Callable[[ErrorCode], None],
) -> None:
    """Append one batch. `done` is called once, when every in-sync replica has it or the append failed.

    `times` are the records' timestamp and the time-out, in milliseconds. The error code is that of the append.
    """
    wall_ms, timeout_ms = times
    batch = encode_batch([NewRecord(key, value, (), wall_ms) for key, value in records])

    def finished(results: list[ProducePartitionResponse]) -> None:
        done(ErrorCode(results[0].error_code))

    replicas.append(ACKS_ALL, timeout_ms, ((topic_partition, memoryview(batch)),), finished)
