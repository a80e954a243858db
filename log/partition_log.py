"""One partition's log: batches of records in segment files, and what is known about them.

The hot path is `append_as_leader`: the batch's header is read once, checked, given its offset in place, and the bytes
go to the file as they came. State in memory changes only after the write succeeded, so a failed append leaves the log
as it was. After a failed fsync nothing about the files is known any more: the log refuses everything from then on.

Durability: everything below `recovery_point` is fsynced, together with the indexes of the segments before it, the
epochs and the producer snapshots. Where truncation lowers it, `LogHooks.on_recovery_point_lowered` comes first, so
that a recovery after a crash in the middle checks all that was rewritten.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from ..runtime.invariants import invariant
from ..runtime.ports import File, Runtime
from ..wire.errors import ErrorCode, ProtocolError
from ..wire.records import LOG_OVERHEAD, BatchHeader, CorruptBatchError, TimestampType, iter_records
from . import recovery
from .checkpoints import read_topic_id, write_epochs, write_topic_id
from .config import MAX_INT32, LogConfig
from .epoch_cache import EpochCache
from .errors import StorageError
from .producer_state import BatchMetadata, ProducerStates
from .segment import Segment, TimestampOffset
from .validation import prepare_for_follower, prepare_for_leader

NO_TIMESTAMP_MS = -1


class AppendInfo(NamedTuple):
    """What an append did; `log_append_time_ms` is -1 for CreateTime. A `duplicate` was in the log before."""

    first_offset: int
    last_offset: int
    max_timestamp: int
    log_append_time_ms: int
    size_bytes: int
    duplicate: bool


def _ignore(log: PartitionLog, what: object) -> None:
    pass


@dataclass(frozen=True, slots=True)
class LogHooks:
    """Whom a log tells: that it failed for good, and that its recovery point is about to be lowered."""

    on_failed: Callable[[PartitionLog, OSError], None] = _ignore
    on_recovery_point_lowered: Callable[[PartitionLog, int], None] = _ignore


class PartitionLog:
    """See the module's text. Made by `open`; not to be used from several loops."""

    def __init__(
        self, runtime: Runtime, directory: str, config: LogConfig, hooks: LogHooks, loaded: recovery.LoadedLog
    ) -> None:
        self.directory = directory
        self.config = config
        self.topic_id = read_topic_id(runtime.disk, directory)
        self.producers = ProducerStates()
        self._disk = runtime.disk
        self._hooks = hooks
        self._segments = loaded.segments
        self._bases = [segment.base_offset for segment in loaded.segments]
        self._active = loaded.segments[-1]
        self._log_start_offset = self._bases[0]
        self._log_end_offset = self._active.next_offset
        self._recovery_point = loaded.durable_offset
        self._snapshots = loaded.snapshots
        self.epoch_cache = EpochCache(lambda: self._log_end_offset, loaded.epochs)
        self._unsynced_segments: list[Segment] = []
        self._directory_changed = self._is_name_new = not loaded.is_settled
        self._history = 0
        self._failure: StorageError | None = None
        self._is_closed = False

    @classmethod
    def open(
        cls,
        runtime: Runtime,
        directory: str,
        config: LogConfig,
        *,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        clean_shutdown: bool = False,
        hooks: LogHooks = LogHooks(),
    ) -> PartitionLog:
        """Open the log in `directory`, made if it is not there; damaged tails are cut off unless `clean_shutdown`.

        Raises `StorageError` when the disk refuses, `CorruptFileError` for an unreadable `partition.metadata`.
        """
        try:
            loaded = recovery.load(
                runtime.disk,
                directory,
                config,
                recovery_point=recovery_point,
                start_offset=log_start_offset,
                clean_shutdown=clean_shutdown,
            )
            log = cls(runtime, directory, config, hooks, loaded)
            log._log_start_offset = min(max(log_start_offset, log._bases[0]), log._log_end_offset)
            if not loaded.is_settled:
                at = max(bisect_right(log._bases, loaded.durable_offset) - 1, 0)
                log._unsynced_segments = log._segments[at:-1]
                log.epoch_cache.is_dirty = True
            recovery.load_producers(log.producers, loaded.snapshots, loaded.segments, log._log_end_offset)
            if log._recovery_point < recovery_point:
                hooks.on_recovery_point_lowered(log, log._recovery_point)
        except OSError as error:
            raise StorageError(f"{directory} cannot be opened: {error}") from error
        return log

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read."""
        return self._log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record."""
        return self._log_end_offset

    @property
    def recovery_point(self) -> int:
        """Everything below it is fsynced."""
        return self._recovery_point

    @property
    def size_bytes(self) -> int:
        """Bytes of all batches."""
        return sum(segment.size_bytes for segment in self._segments)

    @property
    def segments(self) -> Sequence[Segment]:
        """The segments in order; the last one is appended to."""
        return self._segments

    @property
    def is_failed(self) -> bool:
        """Whether an fsync failed: every operation raises `StorageError` from then on."""
        return self._failure is not None

    @property
    def has_unsynced_segments(self) -> bool:
        """Whether rolled segments wait for their fsync."""
        return bool(self._unsynced_segments)

    @property
    def starts_within_segment(self) -> bool:
        """Whether the log's start is not its first segment's, so that a checkpoint has to keep it."""
        return self._log_start_offset > self._bases[0]

    def fail(self, what: str, error: OSError) -> None:
        """Refuse everything from now on, as the disk has failed elsewhere."""
        self._fail(what, error)

    def set_topic_id(self, topic_id: UUID) -> None:
        """Write `partition.metadata`. `StorageError`."""
        self._ensure_usable()
        try:
            write_topic_id(self._disk, self.directory, topic_id)
        except OSError as error:
            raise StorageError(f"partition.metadata of {self.directory} cannot be written: {error}") from error
        self.topic_id = topic_id

    # Appending

    def append_as_leader(
        self, batches: memoryview, leader_epoch: int, now_ms: int, *, internal: bool = False
    ) -> AppendInfo:
        """Append a client's batches, giving them offsets and `leader_epoch` in place.

        An idempotent producer's batch that is in the log already is not appended again: the answer carries its offsets
        and `duplicate`. `internal` batches are the broker's own: control batches with any timestamp.
        Raises `ProtocolError` (CORRUPT_MESSAGE, INVALID_RECORD, MESSAGE_TOO_LARGE, INVALID_TIMESTAMP,
        UNSUPPORTED_COMPRESSION_TYPE, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, KAFKA_STORAGE_ERROR).
        """
        self._ensure_usable()
        config = self.config
        headers = prepare_for_leader(batches, self._log_end_offset, leader_epoch, config, now_ms, internal)
        staged: dict[int, tuple[int, int]] = {}
        for header in headers:
            if header.producer_id >= 0 and not header.is_control:
                duplicate = self.producers.check(header, staged)
                if duplicate is not None:
                    return self._duplicate_info(duplicate)
        invariant(leader_epoch >= self.epoch_cache.latest, "a leader does not append in an epoch older than its log's")
        return self._append(batches, headers)

    def append_as_follower(self, batches: memoryview) -> AppendInfo:
        """Append batches as a leader sent them; a cut-off last one is passed over.

        Raises `ProtocolError`: OFFSET_OUT_OF_RANGE unless they continue the log, CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR.
        """
        self._ensure_usable()
        headers = prepare_for_follower(batches, self._log_end_offset, self.epoch_cache.latest)
        if not headers:
            return AppendInfo(
                self._log_end_offset, self._log_end_offset - 1, NO_TIMESTAMP_MS, NO_TIMESTAMP_MS, 0, False
            )
        size = sum(header.batch_length for header in headers) + LOG_OVERHEAD * len(headers)
        return self._append(batches if size == len(batches) else batches[:size], headers)

    def _append(self, batches: memoryview, headers: list[BatchHeader]) -> AppendInfo:
        size, last = len(batches), headers[-1]
        if self._fits_active(size, headers[0], last):
            self._write(batches, headers)
        else:
            self._write_across_segments(batches, headers)
        if self._log_end_offset - self._recovery_point >= self.config.flush_messages:
            self.flush()
        max_timestamp = last.max_timestamp if len(headers) == 1 else max(header.max_timestamp for header in headers)
        stamped = last.timestamp_type is TimestampType.LOG_APPEND_TIME
        append_time_ms = last.max_timestamp if stamped else NO_TIMESTAMP_MS
        return AppendInfo(headers[0].base_offset, last.last_offset, max_timestamp, append_time_ms, size, False)

    def _fits_active(self, size_bytes: int, first: BatchHeader, last: BatchHeader) -> bool:
        """Whether these batches belong in the active segment. Source: LogSegment.shouldRoll of Apache Kafka."""
        active, config = self._active, self.config
        if not active.size_bytes:
            return size_bytes <= config.segment_bytes or first is last
        waited_ms = last.max_timestamp - active.first_timestamp if active.first_timestamp >= 0 else 0
        return (
            active.size_bytes + size_bytes <= config.segment_bytes
            and waited_ms <= config.segment_ms
            and last[0] + last[6] - active.base_offset <= MAX_INT32
            and not active.is_index_full(config.segment_index_bytes)
        )

    def _write_across_segments(self, batches: memoryview, headers: list[BatchHeader]) -> None:
        position = 0
        for header in headers:
            if not self._fits_active(header.size_bytes, header, header):
                self.roll()
            self._write(batches[position : position + header.size_bytes], [header])
            position += header.size_bytes

    def _write(self, batches: memoryview, headers: list[BatchHeader]) -> None:
        try:
            self._active.append(batches, headers, self.config.index_interval_bytes)
        except OSError as error:
            raise self._append_failed(error) from error
        self._log_end_offset = self._active.next_offset
        epochs = self.epoch_cache
        for header in headers:
            if header.partition_leader_epoch != epochs.latest:
                epochs.assign(header.partition_leader_epoch, header.base_offset)
            if header.producer_id >= 0:
                self.producers.update(header)

    def _append_failed(self, error: OSError) -> StorageError:
        if self._active.file.size() != self._active.size_bytes:
            return self._fail("what a failed write left behind could not be cut off", error)
        return StorageError(f"{self.directory} cannot be written: {error}")

    def _duplicate_info(self, batch: BatchMetadata) -> AppendInfo:
        stamped = self.config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
        append_time_ms = batch.timestamp if stamped else NO_TIMESTAMP_MS
        return AppendInfo(batch.first_offset, batch.last_offset, batch.timestamp, append_time_ms, 0, True)

    def roll(self) -> None:
        """Start a new segment at the end of the log, unless the active one is empty. `StorageError`."""
        self._ensure_usable()
        if not self._active.size_bytes:
            return
        try:
            self._active.finish()
            if self._recovery_point == self._log_end_offset:
                self._sync_indexes(self._active)  # as recovery would start at the new segment
            self._snapshots.write(self._log_end_offset, self.producers)
            segment = Segment.create(self._disk, self.directory, self._log_end_offset)
        except OSError as error:
            raise StorageError(f"{self.directory} cannot start a new segment: {error}") from error
        self._unsynced_segments.append(self._active)
        self._segments.append(segment)
        self._bases.append(segment.base_offset)
        self._active = segment
        self._directory_changed = True

    # Reading

    def read(self, offset: int, max_bytes: int, *, end_offset: int, min_one_batch: bool = True) -> bytes:
        """Whole batches from the one that holds `offset`, at most `max_bytes` of them, all below `end_offset`.

        The first one is given whole, however large, if `min_one_batch`. They come from one segment: less than
        `max_bytes` does not mean that there is no more. b"" at the end. OFFSET_OUT_OF_RANGE outside the log.
        """
        self._ensure_usable()
        if not self._log_start_offset <= offset <= self._log_end_offset:
            raise ProtocolError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Offset {offset} is not in {self._log_start_offset} to {self._log_end_offset} of {self.directory}",
            )
        end_offset = min(end_offset, self._log_end_offset)
        if offset >= end_offset:
            return b""
        at = -1 if offset >= self._active.base_offset else bisect_right(self._bases, offset) - 1
        try:
            data = self._segments[at].read(offset, end_offset, max_bytes, min_one_batch)
            while not data and min_one_batch and at != -1 and at < len(self._segments) - 1:
                at += 1
                if self._bases[at] >= end_offset:
                    break
                data = self._segments[at].read(self._bases[at], end_offset, max_bytes, min_one_batch)
        except OSError as error:
            raise StorageError(f"{self.directory} cannot be read: {error}") from error
        return data

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """The first record whose timestamp is `timestamp_ms` or later, None when there is none."""
        self._ensure_usable()
        try:
            return self._find_timestamp(timestamp_ms)
        except OSError as error:
            raise StorageError(f"{self.directory} cannot be read: {error}") from error

    def _find_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        start = self._log_start_offset
        for segment in self._segments:
            if segment.largest_timestamp() < timestamp_ms or segment.next_offset <= start:
                continue
            found = segment.find_timestamp(timestamp_ms, start)
            while found is not None:
                position, header = found
                match = self._record_in(segment, position, header, timestamp_ms, start)
                if match is not None:
                    return match
                start = header.next_offset
                found = segment.find_timestamp(timestamp_ms, start)
        return None

    def max_timestamp(self) -> TimestampOffset | None:
        """The first record with the greatest timestamp, None in a log without timestamps."""
        self._ensure_usable()
        try:
            greatest = max(segment.largest_timestamp() for segment in self._segments)
        except OSError as error:
            raise StorageError(f"{self.directory} cannot be read: {error}") from error
        return self.offset_for_timestamp(greatest) if greatest >= 0 else None

    def _record_in(
        self, segment: Segment, position: int, header: BatchHeader, timestamp_ms: int, start_offset: int
    ) -> TimestampOffset | None:
        epoch = header.partition_leader_epoch
        if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
            return TimestampOffset(header.max_timestamp, max(header.base_offset, start_offset), epoch)
        try:
            for record in iter_records(segment.file.pread(position, header.size_bytes)):
                if record.timestamp >= timestamp_ms and record.offset >= start_offset:
                    return TimestampOffset(record.timestamp, record.offset, epoch)
        except CorruptBatchError:
            return TimestampOffset(header.max_timestamp, max(header.base_offset, start_offset), epoch)
        return None

    # Truncation

    def truncate_to(self, offset: int) -> None:
        """Forget every batch that reaches `offset`; durable on return. Nothing happens at or above the log's end.

        The log then ends at `offset`, or at the base of the batch that held it. `StorageError`.
        """
        self._ensure_usable()
        if offset >= self._log_end_offset:
            return
        if offset < self._bases[0]:
            self.truncate_fully_and_start_at(offset)
            return
        try:
            keep = bisect_right(self._bases, offset)
            position, end = self._segments[keep - 1].boundary_at(offset)
            self._lower_recovery_point(end)
            self._remove_segments(keep)
            self._active.truncate_to(position, end)
            self._snapshots.remove_after(end)
            self._disk.fsync_dir(self.directory)
            self._ends_at(end)
            recovery.load_producers(self.producers, self._snapshots, self._segments, end)
        except OSError as error:
            raise self._fail("it could not be truncated", error) from error

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Forget everything; the log is empty then, and starts and ends at `offset`. `StorageError`."""
        self._ensure_usable()
        try:
            self._lower_recovery_point(min(offset, self._bases[0]))
            self._remove_segments(0)
            self._snapshots.remove_after(-1)
            self._active = Segment.create(self._disk, self.directory, offset)
            self._segments.append(self._active)
            self._bases.append(offset)
            self.epoch_cache.clear()
            self._log_start_offset = offset
            self.producers.clear()
            self._ends_at(offset)
            self._disk.fsync_dir(self.directory)
            self._recovery_point = offset
        except OSError as error:
            raise self._fail("it could not be truncated", error) from error

    def advance_start(self, offset: int) -> None:
        """Give up what is below `offset`, which is fsynced: segments that end there or before go, the oldest first,
        each for good before the next, lest a loss of power leave a gap. `StorageError`."""
        self._ensure_usable()
        self._log_start_offset = max(self._log_start_offset, min(offset, self._log_end_offset))
        try:
            while len(self._bases) > 1 and self._bases[1] <= min(offset, self._recovery_point):
                self._segments[0].remove()
                self._disk.fsync_dir(self.directory)
                del self._segments[0], self._bases[0]
        except OSError as error:
            raise self._fail("a segment could not be removed", error) from error

    def _lower_recovery_point(self, offset: int) -> None:
        self._history += 1
        if offset < self._recovery_point:
            self._hooks.on_recovery_point_lowered(self, offset)
            self._recovery_point = offset

    def _remove_segments(self, keep: int) -> None:
        for segment in reversed(self._segments[keep:]):
            segment.remove()
        del self._segments[keep:], self._bases[keep:]
        self._unsynced_segments = [s for s in self._unsynced_segments if s in self._segments[:-1]]
        if self._segments:
            self._active = self._segments[-1]

    def _ends_at(self, end: int) -> None:
        self._log_end_offset = end
        self._log_start_offset = min(self._log_start_offset, end)
        self.epoch_cache.truncate_from_end(end)
        self._recovery_point = min(self._recovery_point, end)
        self._save_epochs()

    # Durability

    def flush(self) -> int:
        """fsync everything; returns the new `recovery_point`. `StorageError` for good when the fsync fails."""
        self._ensure_usable()
        target = self._log_end_offset
        if target == self._recovery_point and not self._unsynced_segments:
            return target
        try:
            self._sync_side_files()
            for file in self._files_to_sync():
                file.fsync()
        except OSError as error:
            raise self._fail("fsync failed", error) from error
        self._synced_up_to(target)
        return target

    def flush_soon(self) -> asyncio.Future[int]:
        """fsync what is in the log now without blocking the loop; the result is the recovery point it led to.

        It is less than the end at the call when the log was truncated meanwhile. Fails with `StorageError`.
        """
        return self._sync_soon(self._log_end_offset, self._files_to_sync)

    def flush_rolled_soon(self) -> asyncio.Future[int]:
        """Like `flush_soon`, for all segments but the active one."""
        return self._sync_soon(self._active.base_offset, self._rolled_files_to_sync)

    def _sync_soon(self, target: int, files_of: Callable[[], list[File]]) -> asyncio.Future[int]:
        result: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        history = self._history
        try:
            self._ensure_usable()
            self._sync_side_files()
            waiting = [self._disk.fsync_soon(file) for file in files_of()] if target > self._recovery_point else []
        except OSError as error:
            result.set_exception(self._fail("fsync failed", error))
            return result
        except StorageError as error:
            result.set_exception(error)
            return result
        left = len(waiting)

        def synced(done: asyncio.Future[None]) -> None:
            nonlocal left
            left -= 1
            error = done.exception()
            if error is not None and history == self._history and not self._is_closed:
                error = self._fail("fsync failed", error)
            if result.done():
                return
            if error is not None and history == self._history:
                result.set_exception(error)
            elif not left:
                if history == self._history and not self._is_closed:
                    self._synced_up_to(target)
                result.set_result(self._recovery_point)

        for future in waiting:
            future.add_done_callback(synced)
        if not waiting:
            result.set_result(self._recovery_point)
        return result

    def _sync_indexes(self, segment: Segment) -> None:
        try:
            for file in segment.unsynced_index_files():
                file.fsync()
        except OSError as error:
            raise self._fail("fsync failed", error) from error
        segment.indexes_synced()

    def _rolled_files_to_sync(self) -> list[File]:
        files = []
        for segment in self._unsynced_segments:
            segment.save_indexes()
            files += [segment.file, *segment.unsynced_index_files()]
        return files

    def _files_to_sync(self) -> list[File]:
        return [*self._rolled_files_to_sync(), self._active.file]

    def _synced_up_to(self, target: int) -> None:
        for segment in self._unsynced_segments:
            if segment.next_offset <= target:
                segment.indexes_synced()
                segment.close_indexes()
        self._unsynced_segments = [s for s in self._unsynced_segments if s.next_offset > target]
        self._recovery_point = max(self._recovery_point, min(target, self._log_end_offset))

    def _sync_side_files(self) -> None:
        """What must be durable before the recovery point may pass it: epochs, snapshots, names of new files."""
        if self._snapshots.sync():
            self._directory_changed = True
        self._save_epochs()
        if self._directory_changed:
            self._disk.fsync_dir(self.directory)
            self._directory_changed = False
        if self._is_name_new:
            self._disk.fsync_dir(self.directory.rpartition("/")[0] or ".")
            self._is_name_new = False

    def _save_epochs(self) -> None:
        if self.epoch_cache.is_dirty:
            write_epochs(self._disk, self.directory, self.epoch_cache.entries)
            self.epoch_cache.is_dirty = False

    # Ending

    def close(self, *, clean: bool = True) -> None:
        """Release the files; `clean` makes all durable first, so that it may be opened with `clean_shutdown`.

        A failed log is just released. `StorageError` when a clean close cannot be had.
        """
        if self._is_closed:
            return
        try:
            if clean and self._failure is None:
                self._finish()
        finally:
            self._is_closed = True
            self._snapshots.close()
            for segment in self._segments:
                segment.close()

    def delete(self) -> None:
        """Close without a flush and remove the directory. `StorageError`."""
        self.close(clean=False)
        try:
            self._disk.remove_tree(self.directory)
        except OSError as error:
            raise StorageError(f"{self.directory} cannot be removed: {error}") from error

    def _finish(self) -> None:
        try:
            end = self._log_end_offset
            self._active.finish()
            if self._snapshots.latest_offset < end and end > self._bases[0]:
                self._snapshots.write(end, self.producers)
            self.flush()
            self._sync_side_files()
            self._sync_indexes(self._active)
        except OSError as error:
            raise self._fail("it could not be closed cleanly", error) from error

    def _ensure_usable(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._is_closed:
            raise StorageError(f"{self.directory} is closed")

    def _fail(self, what: str, error: BaseException) -> StorageError:
        if self._failure is None:
            self._failure = StorageError(f"{self.directory} has failed, {what}: {error}")
            self._failure.__cause__ = error
            if isinstance(error, OSError):
                self._hooks.on_failed(self, error)
        return self._failure
