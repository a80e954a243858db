"""Appends what producers send, answers followers that wait for it, and lets acks=all wait for the high watermark.

The path of a record with acks=all: `broker/network/connection.py` reads the request into one buffer, and
`wire/produce.py` cuts views into it. `Appends` checks leadership and min ISR; `log/partition_log.py` sets offset and
epoch in place and writes. The growth of the log completes the followers' parked fetches. Their next fetches tell how
far they are, which advances the high watermark (`leader_state.py`, `high_watermark.py`), which completes the produce in
the purgatory. All of this is done by callbacks: no task and no future is made on the way.

A request that has more in it than the event loop has time for is split: what can be appended at once is, and the rest
when it was looked into in a thread. It is answered when both parts are done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ...log.config import LogConfig
from ...log.errors import RefusedRecordsError
from ...log.record_validation import LoopBudget, NeedsThreadError
from ...log.state.transaction_verification import VerificationGuard
from ...runtime.invariants import sometimes
from ...wire.errors import ErrorCode, ProtocolError
from ...wire.produce import ProducePartitionResponse
from ...wire.types import TopicPartition
from ..hosted_partitions import HostedPartitions
from ..ports import AppendCaller, ReplicaObserver
from ..purgatory.delayed_operations import Appended, DelayedOperations
from ..purgatory.purgatory import UncommittedAppend
from ..replica import ACKS_ALL
from ..results import AppendDone
from ..storage_errors import StorageErrors
from .deferred_appends import DeferredAppends, DeferredBatches, Validated

Entries = Sequence[tuple[TopicPartition, memoryview | None]]
"""Partitions and what to append to each. The memory is written to: offsets and epochs are set in place."""
_new_tuple: Any = tuple.__new__  # faster than calling the class of a NamedTuple
Guards = Mapping[TopicPartition, VerificationGuard]
"""With which the batches for these partitions may open transactions."""
NO_GUARDS: Guards = {}


class Appends:
    """Appends to the logs of partitions that this broker leads. `now` gives monotonic and wall-clock milliseconds."""

    def __init__(
        self,
        hosted: HostedPartitions,
        operations: DelayedOperations,
        errors: StorageErrors,
        observer: ReplicaObserver,
        now: Callable[[], tuple[int, int]],
        deferred: DeferredAppends,
    ) -> None:
        self._hosted = hosted
        self._operations = operations
        self._errors = errors
        self._observer = observer
        self._now = now
        self._deferred = deferred
        self.default_guard: VerificationGuard | None = None
        """Of a batch that comes with none; `VERIFICATION_OFF` lets it open a transaction."""
        self._budget = LoopBudget()
        """Of the request that is being appended."""

    def append(
        self,
        acks: int,
        timeout_ms: int,
        entries: Entries,
        done: AppendDone,
        guards: Guards = NO_GUARDS,
        internal: bool = False,
        caller: AppendCaller | None = None,
    ) -> None:
        """See `ReplicaManager.append`."""
        done = self._observer.on_append(entries, done)
        times = self._now()
        budget = self._budget
        budget.renew()
        responses: list[ProducePartitionResponse] = []
        appended: list[Appended] = []
        late: dict[int, DeferredBatches] = {}
        late_keys: dict[TopicPartition, None] = {}
        queues, operations = self._deferred.queues, self._operations
        deferred = queues.get(_sender(caller)) if queues else None
        operations.defer()
        try:
            for key, records in entries:
                try:
                    if ((deferred and key in deferred) or (late and key in late_keys)) and not internal:
                        raise NeedsThreadError
                    guard = guards.get(key) if guards else None
                    responses.append(
                        self._append_one(key, records, acks, times, appended, budget, guard, None, internal)
                    )
                except NeedsThreadError:
                    late_keys[key] = None
                    self._put_off(key, records, late, responses, guards.get(key))
            for replica, size_bytes, _ in appended:
                operations.on_appended(replica, size_bytes)
        finally:
            operations.complete()
        if late:
            responses, done = self._defer(acks, timeout_ms, responses, late, done, times, caller)
        if acks == ACKS_ALL:
            operations.answer_when_committed(timeout_ms, responses, appended, done)
        else:
            done(responses)

    def _put_off(
        self,
        key: TopicPartition,
        records: memoryview | None,
        late: dict[int, DeferredBatches],
        responses: list[ProducePartitionResponse],
        guard: VerificationGuard | None,
    ) -> None:
        try:
            if records is None:
                raise ProtocolError(ErrorCode.INVALID_RECORD, "no record batch")
            replica = self._hosted.find(key)
            copy = memoryview(bytearray(records))  # the request's memory is used again
            late[len(responses)] = DeferredBatches(key, replica.topic_id, copy, replica.log.config, guard)
            responses.append(_PUT_OFF)
        except ProtocolError as error:
            responses.append(self._refusal(key, error))

    def _defer(
        self,
        acks: int,
        timeout_ms: int,
        responses: list[ProducePartitionResponse],
        late: dict[int, DeferredBatches],
        done: AppendDone,
        times: tuple[int, int],
        caller: AppendCaller | None,
    ) -> tuple[list[ProducePartitionResponse], AppendDone]:
        """Have `late` validated in a thread. Returns the responses, and whom to call when the others are decided."""
        batches = list(late.values())
        release = None
        if caller is not None:
            release = caller.defer(sum(len(batch.records) for batch in batches))
            if release is None:
                for place, batch in late.items():
                    replica = self._hosted.replicas.get(batch.topic_partition)
                    if replica is not None:
                        replica.note_refused(batch.records, times[0])
                    responses[place] = self._refusal(batch.topic_partition, _no_memory())
                return responses, done
        split = _SplitRequest(responses, late, done)
        append_late = partial(self._append_validated, acks, timeout_ms, batches, split.on_late_done)
        self._deferred.submit(batches, times[1], append_late, _sender(caller), release)
        return responses, split.on_prompt_done

    def _append_validated(
        self,
        acks: int,
        timeout_ms: int,
        batches: Sequence[DeferredBatches],
        done: AppendDone,
        validated: Sequence[Validated],
    ) -> None:
        times = self._now()
        responses: list[ProducePartitionResponse] = []
        appended: list[Appended] = []
        operations = self._operations
        operations.defer()
        try:
            for batch, result in zip(batches, validated, strict=True):
                key = batch.topic_partition
                replica = self._hosted.replicas.get(key)
                if replica is not None and replica.topic_id != batch.topic_id:
                    sometimes(True, "a topic was created anew while its batch was validated")
                    result = ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{key} was created anew")
                if isinstance(result, ProtocolError):
                    responses.append(self._refusal(key, result))
                else:
                    responses.append(
                        self._append_one(key, result, acks, times, appended, None, batch.guard, batch.config)
                    )
            for replica, size_bytes, _ in appended:
                operations.on_appended(replica, size_bytes)
        finally:
            operations.complete()
        if acks == ACKS_ALL:
            operations.answer_when_committed(timeout_ms, responses, appended, done)
        else:
            done(responses)

    def _append_one(
        self,
        key: TopicPartition,
        records: memoryview | None,
        acks: int,
        times: tuple[int, int],
        appended: list[Appended],
        budget: LoopBudget | None,
        guard: VerificationGuard | None,
        validated_by: LogConfig | None = None,
        internal: bool = False,
    ) -> ProducePartitionResponse:
        try:
            replica = self._hosted.find(key)
            if records is None:
                raise ProtocolError(ErrorCode.INVALID_RECORD, "no record batch")
            if guard is None:
                guard = self.default_guard
            info = replica.append_as_leader(records, acks, times, budget, validated_by, guard, internal)
        except (ProtocolError, OSError) as error:
            if records is not None and not internal:
                self._hosted.note_refused(key, records, times[0])
            return self._refusal(key, self._errors.to_protocol_error(key, error))
        self._observer.on_appended(key, info, records)
        # Clients take this code for success without an offset (KIP-98).
        is_forgotten = info.duplicate and info.first_offset < 0
        sometimes(is_forgotten, "a duplicate was so old that its offset was forgotten")
        code = int(ErrorCode.DUPLICATE_SEQUENCE_NUMBER) if is_forgotten else 0
        response = ProducePartitionResponse(
            key.partition, code, info.first_offset, info.log_append_time_ms, replica.log.log_start_offset
        )
        append = _new_tuple(UncommittedAppend, (key, info.last_offset + 1, response, code))
        appended.append((replica, info.size_bytes, append))
        return response

    def _refusal(self, key: TopicPartition, error: ProtocolError) -> ProducePartitionResponse:
        code = int(error.code)
        hint = self._hosted.leader_hint(key, code)
        response = ProducePartitionResponse(
            key.partition, code, error_message=error.message or None, current_leader=hint
        )
        if isinstance(error, RefusedRecordsError):
            response.record_errors = error.record_errors
        return response


def _sender(caller: AppendCaller | None) -> object:
    return None if caller is None else caller.sender


def _no_memory() -> ProtocolError:
    """Clients send the batch again after this code, without asking for metadata first."""
    text = "the memory for requests is used up by batches that wait to be validated (queued.max.request.bytes)"
    return ProtocolError(ErrorCode.NOT_ENOUGH_REPLICAS, text)


_PUT_OFF = ProducePartitionResponse(-1)
"""Stands in the place of a response that is still to come."""


class _SplitRequest:
    """A request of which a part is appended later; `late` has the places of that part."""

    def __init__(
        self, responses: list[ProducePartitionResponse], late: Mapping[int, DeferredBatches], done: AppendDone
    ) -> None:
        self._responses = responses
        self._late_places = list(late)
        self._done = done
        self._is_half_done = False

    def on_prompt_done(self, responses: list[ProducePartitionResponse]) -> None:
        """What could be appended at once is committed or refused."""
        self._end_half()

    def on_late_done(self, responses: list[ProducePartitionResponse]) -> None:
        """The rest is."""
        for place, response in zip(self._late_places, responses, strict=True):
            self._responses[place] = response
        self._end_half()

    def _end_half(self) -> None:
        if self._is_half_done:
            self._done(self._responses)
        self._is_half_done = True
