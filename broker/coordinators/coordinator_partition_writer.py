"""Writes a coordinator's records to a partition of its topic with acks=all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ...isr.replica_manager import ReplicaManager
from ...log.state.transaction_verification import VerificationGuard
from ...runtime.invariants import sometimes
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
IN_THE_LOG = (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
"""With these codes of an append, the records are in the log, and will be committed if the leader does not change."""
_COMMITTED = (ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
"""With these codes of an append the high watermark has passed the records."""
_NO_TIMEOUT_MS = 2**31 - 1
_NOT_COORDINATOR = frozenset(
    {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.FENCED_LEADER_EPOCH}
)
_BATCH_OVERHEAD_BYTES, _RECORD_OVERHEAD_BYTES = 61, 25
"""What a batch has beside its records, and a tombstone beside its key at most."""
_TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_FETCH_SIZE})


class ProducerTransaction(NamedTuple):
    """The transaction that records are written in: its producer, and the guard with which they may open it."""

    producer_id: int
    producer_epoch: int
    guard: VerificationGuard | None = None


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


def batches_of(records: Sequence[CoordinatorRecord], batch_bytes_max: int) -> list[Sequence[CoordinatorRecord]]:
    """The batches to write the records in: one, or as many as tombstones need that are too large for one.

    What is removed in parts is removed in the end. All other records must come into the log together.
    """
    if any(value is not None for _, value in records):
        return [records]
    batches: list[Sequence[CoordinatorRecord]] = []
    batch: list[CoordinatorRecord] = []
    size_bytes = _BATCH_OVERHEAD_BYTES
    for record in records:
        record_bytes = len(record.key) + _RECORD_OVERHEAD_BYTES
        if batch and size_bytes + record_bytes > batch_bytes_max:
            batches.append(batch)
            batch, size_bytes = [], _BATCH_OVERHEAD_BYTES
        batch.append(record)
        size_bytes += record_bytes
    return [*batches, batch]


def write_records(
    replicas: ReplicaManager,
    topic_partition: TopicPartition,
    records: Sequence[CoordinatorRecord],
    times: tuple[int, int],
    done: Callable[[ErrorCode], None],
    transaction: ProducerTransaction | None = None,
    committed: Callable[[], None] | None = None,
) -> None:
    """Append one batch. `done` is called once, when every in-sync replica has it or the append failed.

    It is in the log or refused when this returns: also where the topic has a codec of its own, no thread validates it
    as a client's batch, so that it cannot follow what another shard of the partition has loaded meanwhile.
    `times` are the records' timestamp and the time-out, in milliseconds. The error code is that of the append.
    `committed` is called when the records are committed: before `done`, or after it when that was REQUEST_TIMED_OUT;
    never when this broker does not lead any more. Calls for several batches come in the order of the log.
    """
    wall_ms, timeout_ms = times
    replica = replicas.partitions.get(topic_partition)
    if replica is not None:
        size_bytes = sum(len(key) + len(value or b"") for key, value in records)
        if size_bytes > replica.log.config.max_message_bytes:
            done(ErrorCode.MESSAGE_TOO_LARGE)
            return
    new_records = [NewRecord(key, value, (), wall_ms) for key, value in records]

    def finished(results: list[ProducePartitionResponse]) -> None:
        code, base_offset = ErrorCode(results[0].error_code), results[0].base_offset
        if committed is not None and code in _COMMITTED:
            committed()
        elif committed is not None and code == ErrorCode.REQUEST_TIMED_OUT:
            sometimes(True, "a coordinator's records were not committed in time")
            late = committed
            end_offset = base_offset + len(records)
            replicas.when_committed(
                topic_partition, end_offset, _NO_TIMEOUT_MS, lambda is_so: late() if is_so else None
            )
        done(code)

    guards: dict[TopicPartition, VerificationGuard] = {}
    if transaction is None:
        batch = encode_batch(new_records)
    else:
        producer_id, producer_epoch, guard = transaction
        batch = encode_batch(new_records, producer_id=producer_id, producer_epoch=producer_epoch, is_transactional=True)
        if guard is not None:
            guards[topic_partition] = guard
    entry = topic_partition, memoryview(batch)
    replicas.append(ACKS_ALL, timeout_ms, (entry,), finished, guards=guards, internal=True)
