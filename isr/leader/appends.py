"""The way of a produce request: append, wake the followers, and wait for the high watermark where acks=all asks so."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...wire.errors import ErrorCode, ProtocolError
from ...wire.types import TopicPartition
from ..hosted_partitions import HostedPartitions
from ..ports import ReplicaObserver
from ..purgatory.delayed_operation_completion import DelayedOperationCompletion
from ..purgatory.purgatory import DelayedProduce, Purgatory
from ..replica import ACKS_ALL, Replica
from ..results import AppendDone, AppendResult

_VALID_ACKS = (-1, 0, 1)

Entries = Sequence[tuple[TopicPartition, memoryview | None]]
_Appended = tuple[Replica, AppendResult, int, int, bool]


class Appends:
    """`now` gives monotonic and wall-clock milliseconds."""

    def __init__(
        self,
        directory: HostedPartitions,
        purgatory: Purgatory,
        consequences: DelayedOperationCompletion,
        now: Callable[[], tuple[int, int]],
        observer: ReplicaObserver,
    ) -> None:
        self._directory = directory
        self._purgatory = purgatory
        self._consequences = consequences
        self._now = now
        self._observer = observer

    def append(self, acks: int, timeout_ms: int, entries: Entries, done: AppendDone) -> None:
        """See `ReplicaManager.append`."""
        if acks not in _VALID_ACKS:
            error_code = int(ErrorCode.INVALID_REQUIRED_ACKS)
            done([AppendResult(key, error_code, message=f"acks {acks}") for key, _ in entries])
            return
        done = self._observer.on_append(entries, done)
        now_ms, wall_ms = self._now()
        results: list[AppendResult] = []
        appended: list[_Appended] = []
        for key, records in entries:
            results.append(self._append_one(key, records, acks, (now_ms, wall_ms), appended))
        consequences = self._consequences
        for replica, _, _, size_bytes, _ in appended:
            consequences.on_appended(replica, size_bytes)
        for replica, _, _, _, moved in appended:
            if moved:
                consequences.on_high_watermark(replica)
        if acks == ACKS_ALL:
            waits = [
                (result, required) for replica, result, required, _, _ in appended if replica.high_watermark < required
            ]
            if waits:
                self._purgatory.park_produce(DelayedProduce(results, done), waits, timeout_ms)
                return
        done(results)

    def _append_one(
        self,
        key: TopicPartition,
        records: memoryview | None,
        acks: int,
        times: tuple[int, int],
        appended: list[_Appended],
    ) -> AppendResult:
        try:
            replica = self._directory.find(key)
            if records is None:
                raise ProtocolError(ErrorCode.INVALID_RECORD, "no record batch")
            old_high_watermark = replica.high_watermark
            info = replica.append_as_leader(records, acks, *times)
        except (ProtocolError, OSError) as error:
            return self._refusal(key, self._consequences.refused(key, error))
        self._observer.on_appended(key, info, records)
        # Clients take this code for success without an offset (KIP-98).
        is_forgotten = info.duplicate and info.first_offset < 0
        code = int(ErrorCode.DUPLICATE_SEQUENCE_NUMBER) if is_forgotten else 0
        offsets = (info.first_offset, info.log_append_time_ms, replica.log.log_start_offset)
        result = AppendResult(key, code, *offsets, committed_code=code)
        moved = replica.high_watermark != old_high_watermark
        appended.append((replica, result, info.last_offset + 1, info.size_bytes, moved))
        return result

    def _refusal(self, key: TopicPartition, error: ProtocolError) -> AppendResult:
        code = int(error.code)
        return AppendResult(
            key, code, current_leader=self._directory.leader_hint(key, code), message=error.message or None
        )
