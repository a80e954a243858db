"""The quorum's log port on a partition log: `__cluster_metadata-0` in Kafka's format on disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from ..log.partition_log import PartitionLog
from ..runtime.ports import Buffer, Clock
from ..wire.codec import encode_data
from ..wire.records import (
    ControlRecordType,
    NewRecord,
    encode_batch,
    encode_control_record,
    iter_headers,
    iter_records,
)
from .types import CommittedBatch, EpochEndOffset

_LEADER_CHANGE_VERSION = 0


class PartitionRaftLog:
    """A `RaftLog` that also knows how to become durable, one fsync at a time.

    `durable_offset` is kept here and not taken from the partition log, because a flush that began before a truncation
    says nothing about what was written after it at the same offsets.
    """

    def __init__(self, log: PartitionLog, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._flush_is_running = False
        self._truncations = 0
        # What is there when the log is opened may still be in the page cache only.
        log.flush()
        self._durable_offset = log.log_end_offset

    @property
    def end_offset(self) -> int:
        return self._log.log_end_offset

    @property
    def durable_offset(self) -> int:
        return self._durable_offset

    @property
    def last_epoch(self) -> int:
        return self._log.epoch_cache.latest_epoch() or 0

    def end_offset_for(self, epoch: int) -> EpochEndOffset:
        latest = self._log.epoch_cache.latest_epoch()
        if latest is not None and epoch > latest:
            return EpochEndOffset(latest, self.end_offset)
        found = self._log.epoch_cache.end_offset_for(epoch)
        return EpochEndOffset(found.epoch, found.end_offset)

    def append_records(self, records: Sequence[bytes], epoch: int) -> int:
        now_ms = self._clock.wall_ms()
        batch = encode_batch([NewRecord(None, record, (), now_ms) for record in records])
        self._log.append_as_leader(memoryview(batch), epoch, now_ms, internal=True)
        return self.end_offset - 1

    def append_leader_change(self, epoch: int, leader_id: int, voters: Sequence[int], granting: Sequence[int]) -> int:
        now_ms = self._clock.wall_ms()
        message = encode_data(
            "leader_change_message",
            _LEADER_CHANGE_VERSION,
            {
                "version": _LEADER_CHANGE_VERSION,
                "leader_id": leader_id,
                "voters": [{"voter_id": voter} for voter in voters],
                "granting_voters": [{"voter_id": voter} for voter in granting],
            },
        )
        record = encode_control_record(ControlRecordType.LEADER_CHANGE, message, now_ms)
        batch = encode_batch([record], is_control=True)
        self._log.append_as_leader(memoryview(batch), epoch, now_ms, internal=True)
        return self.end_offset - 1

    def append_fetched(self, records: Buffer) -> None:
        self._log.append_as_follower(memoryview(records))

    def truncate_to(self, offset: int) -> None:
        self._truncations += 1
        self._log.truncate_to(offset)
        self._durable_offset = min(self._durable_offset, self.end_offset)

    def read(self, offset: int, max_bytes: int) -> Buffer:
        return self._log.read(offset, max_bytes, end_offset=self.end_offset)

    def read_batches(self, offset: int, end_offset: int, max_bytes: int) -> list[CommittedBatch]:
        """Decoded batches of [`offset`, `end_offset`), at least one while there are any."""
        data = memoryview(self._log.read(offset, max_bytes, end_offset=end_offset))
        return [
            CommittedBatch(
                header.base_offset,
                header.last_offset,
                header.partition_leader_epoch,
                header.max_timestamp,
                []
                if header.is_control
                else [r.value or b"" for r in iter_records(data[position : position + header.size_bytes])],
            )
            for position, header in iter_headers(data)
        ]

    def flush_if_behind(self, on_flushed: Callable[[BaseException | None], None]) -> None:
        """Start an fsync unless one runs or all is durable; `on_flushed` is told of its end, or of its error.

        It runs again for what was appended meanwhile only when called again.
        """
        if self._flush_is_running or self._durable_offset >= self.end_offset:
            return
        self._flush_is_running = True
        began_at = self._truncations
        future = self._log.flush_soon()

        def done(flushed: asyncio.Future[int]) -> None:
            self._flush_is_running = False
            if flushed.cancelled():
                return
            error = flushed.exception()
            if error is None and began_at == self._truncations:
                self._durable_offset = max(self._durable_offset, min(flushed.result(), self.end_offset))
            on_flushed(error)

        future.add_done_callback(done)

    def close(self, *, clean: bool) -> None:
        """Close the files; not `clean` leaves what was not flushed to recovery."""
        self._log.close(clean=clean)
