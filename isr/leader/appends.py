"""Appends what producers send, answers followers that wait for it, and lets acks=all wait for the high watermark.

The path of a record with acks=all: `broker/network/connection.py` reads the request into one buffer, and
`wire/produce.py` cuts views into it. `Appends` checks leadership and min ISR; `log/partition_log.py` sets offset and
epoch in place and writes. The growth of the log completes the followers' parked fetches. Their next fetches tell how
far they are, which advances the high watermark (`leader_state.py`, `high_watermark.py`), which completes the produce in
the purgatory. All of this is done by callbacks: no task and no future is made on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...wire.errors import ErrorCode, ProtocolError
from ...wire.produce import ProducePartitionResponse
from ...wire.types import TopicPartition
from ..hosted_partitions import HostedPartitions
from ..ports import ReplicaObserver
from ..purgatory.delayed_operations import DelayedOperations
from ..purgatory.purgatory import DelayedProduce, UncommittedAppend
from ..replica import ACKS_ALL, Replica
from ..results import AppendDone
from ..storage_errors import StorageErrors

Entries = Sequence[tuple[TopicPartition, memoryview | None]]
"""Partitions and what to append to each. The memory is written to: offsets and epochs are set in place."""
_Appended = tuple[Replica, int, UncommittedAppend]
"""A replica, by how many bytes its log has grown, and when that is committed."""


class Appends:
    """Appends to the logs of partitions that this broker leads. `now` gives monotonic and wall-clock milliseconds."""

    def __init__(
        self,
        hosted: HostedPartitions,
        operations: DelayedOperations,
        errors: StorageErrors,
        observer: ReplicaObserver,
        now: Callable[[], tuple[int, int]],
    ) -> None:
        self._hosted = hosted
        self._operations = operations
        self._errors = errors
        self._observer = observer
        self._now = now

    def append(self, acks: int, timeout_ms: int, entries: Entries, done: AppendDone) -> None:
        """See `ReplicaManager.append`."""
        done = self._observer.on_append(entries, done)
        times = self._now()
        responses: list[ProducePartitionResponse] = []
        appended: list[_Appended] = []
        operations = self._operations
        operations.defer()
        try:
            for key, records in entries:
                responses.append(self._append_one(key, records, acks, times, appended))
            for replica, size_bytes, _ in appended:
                operations.on_appended(replica, size_bytes)
        finally:
            operations.complete()
        if acks == ACKS_ALL:
            uncommitted = [append for replica, _, append in appended if replica.high_watermark < append.required_offset]
            if uncommitted:
                operations.purgatory.park_produce(DelayedProduce(responses, done), uncommitted, timeout_ms)
                return
        done(responses)

    def _append_one(
        self,
        key: TopicPartition,
        records: memoryview | None,
        acks: int,
        times: tuple[int, int],
        appended: list[_Appended],
    ) -> ProducePartitionResponse:
        try:
            replica = self._hosted.find(key)
            if records is None:
                raise ProtocolError(ErrorCode.INVALID_RECORD, "no record batch")
            info = replica.append_as_leader(records, acks, *times)
        except (ProtocolError, OSError) as error:
            return self._refusal(key, self._errors.to_protocol_error(key, error))
        self._observer.on_appended(key, info, records)
        # Clients take this code for success without an offset (KIP-98).
        is_forgotten = info.duplicate and info.first_offset < 0
        code = int(ErrorCode.DUPLICATE_SEQUENCE_NUMBER) if is_forgotten else 0
        response = ProducePartitionResponse(
            key.partition, code, info.first_offset, info.log_append_time_ms, replica.log.log_start_offset
        )
        appended.append((replica, info.size_bytes, UncommittedAppend(key, info.last_offset + 1, response, code)))
        return response

    def _refusal(self, key: TopicPartition, error: ProtocolError) -> ProducePartitionResponse:
        code = int(error.code)
        hint = self._hosted.leader_hint(key, code)
        return ProducePartitionResponse(key.partition, code, error_message=error.message or None, current_leader=hint)
