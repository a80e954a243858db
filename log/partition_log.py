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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from ..runtime.files.file_slice import FileSlice
from ..runtime.incremental_work import Work, run_at_once
from ..runtime.invariants import invariant
from ..runtime.ports import Runtime
from ..wire.errors import ErrorCode, ProtocolError
from ..wire.records import LOG_OVERHEAD, NO_TIMESTAMP, BatchHeader, TimestampType
from .config import MAX_INT32, LogConfig
from .errors import NoSpaceError, StorageError, refused_write
from .recompression import recompress
from .recovery import log_recovery
from .recovery.durability import Durability, LogFiles
from .segment.retention import count_expired
from .segment.rolling import fits
from .segment.segment import Segment, TimestampOffset
from .segment.segment_list import SegmentList
from .segment.segment_renames import SegmentRenames
from .segment.segment_replacement import SegmentReplacement
from .segment.transaction_index import AbortedTransaction
from .state.leader_epoch_cache import LeaderEpochCache
from .state.producer_state import UNKNOWN_DELTA, BatchMetadata, ProducerStates
from .validation import count_offsets, first_batch_around, prepare_for_follower, prepare_for_leader

T = TypeVar("T")


class AppendInfo(NamedTuple):
    """The result of an append. `log_append_time_ms` is -1 for CreateTime.

    A `duplicate` was in the log before. If its offsets are no longer known, `first_offset` is -1, and `last_offset` is
    the greatest that it may have.
    """

    first_offset: int
    last_offset: int
    max_timestamp: int
    log_append_time_ms: int
    size_bytes: int
    duplicate: bool

    @classmethod
    def nothing(cls, end_offset: int) -> AppendInfo:
        """Nothing was appended to a log that ends at `end_offset`."""
        return cls(end_offset, end_offset - 1, NO_TIMESTAMP, NO_TIMESTAMP, 0, False)

    @classmethod
    def of_duplicate(cls, batch: BatchMetadata, is_stamped: bool) -> AppendInfo:
        """The batch was in the log before; `is_stamped`: its timestamp is the broker's."""
        if batch.offset_delta == UNKNOWN_DELTA:
            return cls(-1, batch.last_offset, NO_TIMESTAMP, NO_TIMESTAMP, 0, True)
        append_time_ms = batch.timestamp if is_stamped else NO_TIMESTAMP
        return cls(batch.first_offset, batch.last_offset, batch.timestamp, append_time_ms, 0, True)


def _ignore(log: PartitionLog, what: object) -> None:
    pass


@dataclass(frozen=True, slots=True)
class LogHooks:
    """What a log tells its owner."""

    on_failed: Callable[[PartitionLog, OSError], None] = _ignore
    """The disk refused, and the log has failed for good."""
    on_recovery_point_lowered: Callable[[PartitionLog, int], None] = _ignore
    """The recovery point will be lowered: checkpoints of it and of the start offset must not be above it on return."""
    on_files_deleted: Callable[[PartitionLog, list[str]], None] | None = None
    """Files of deleted segments, renamed already, to be removed after `file.delete.delay.ms`; None: at once."""
    on_gaps: Callable[[PartitionLog, bool], None] = _ignore
    """Recovery has to know that offsets may be missing: durably on return if the flag is set, soon if not."""


_NO_HOOKS = LogHooks()


class PartitionLog:
    """See the module's text. Made by `open`; not to be used from several loops."""

    def __init__(
        self, runtime: Runtime, directory: str, config: LogConfig, hooks: LogHooks, loaded: log_recovery.LoadedLog
    ) -> None:
        self.directory = directory
        self._rng = runtime.rng
        self.topic_id = loaded.topic_id
        self.producers = ProducerStates()
        self._disk = runtime.disk
        self._hooks = hooks
        self._segments = SegmentList(loaded.segments)
        self._active = self._segments.active
        self._log_start_offset = self._segments.first_offset
        self._log_end_offset = self._active.next_offset
        self._snapshots = loaded.snapshots
        self.epoch_cache = LeaderEpochCache(lambda: self._log_end_offset, loaded.epochs)
        files = LogFiles(runtime.disk, directory, self._segments, self.epoch_cache, loaded.snapshots)
        self.durability = Durability(files, loaded.durable_offset, loaded.is_settled, self._fail)
        on_deleted = None if hooks.on_files_deleted is None else partial(hooks.on_files_deleted, self)
        self._changes = SegmentReplacement(files, self.durability, on_deleted, self._fail)
        self._failure: StorageError | None = None
        self._is_closed = False
        self._has_gaps = False
        self._take(config)

    @classmethod
    def open(cls, runtime: Runtime, directory: str, config: LogConfig, **known: Any) -> PartitionLog:
        """`opening`, all at once."""
        return run_at_once(cls.opening(runtime, directory, config, **known))

    @classmethod
    def opening(
        cls,
        runtime: Runtime,
        directory: str,
        config: LogConfig,
        *,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        clean_shutdown: bool = False,
        void_without_id: bool = False,
        has_gaps: bool = True,
        hooks: LogHooks = _NO_HOOKS,
    ) -> Work[PartitionLog]:
        """Open the log in `directory`, made if it is not there; damaged tails are cut off unless `clean_shutdown`.

        `void_without_id`: without a whole topic id nothing else was durable: what is there is nobody's and goes.
        Where no offsets can be missing (not `has_gaps`), a damaged one is told from a gap. `StorageError`.
        """
        try:
            if void_without_id and log_recovery.was_never_durable(runtime.disk, directory):
                log_recovery.make_void(runtime.disk, directory)
            loaded = yield from log_recovery.load(
                runtime.disk,
                directory,
                config,
                recovery_point=recovery_point,
                start_offset=log_start_offset,
                clean_shutdown=clean_shutdown,
                has_gaps=has_gaps,
            )
            log = cls(runtime, directory, config, hooks, loaded)
            if not (loaded.is_settled or recovery_point):
                log.durability.side_files.unsaved_topic_id = log.topic_id
            log._log_start_offset = min(max(log_start_offset, log._segments.first_offset), log._log_end_offset)
            log.epoch_cache.truncate_from_start(log._log_start_offset)
            yield from log_recovery.load_producers(
                log.producers, loaded.snapshots, loaded.segments, log._log_end_offset
            )
            log.durability.park()
            if log.recovery_point < recovery_point:
                hooks.on_recovery_point_lowered(log, log.recovery_point)
        except OSError as error:
            raise StorageError(f"{directory} cannot be opened: {error}") from error
        return log

    @property
    def config(self) -> LogConfig:
        """Its settings; new ones count from now on."""
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        if config != self._config:
            self._take(config)

    def _take(self, config: LogConfig) -> None:
        self._config = config
        self._reshapes = config.reshapes
        self._roll_after_ms = config.draw_segment_ms(self._rng)
        if config.is_compacted:
            self.note_gaps(at_once=False)

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
        return self.durability.recovery_point

    @property
    def size_bytes(self) -> int:
        """Bytes of all batches."""
        return self._segments.size_bytes

    @property
    def segments(self) -> Sequence[Segment]:
        """The segments in order; the last one is appended to."""
        return self._segments.items

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    @property
    def history(self) -> int:
        """Changes whenever offsets or files that were there before are no more: whoever worked on them starts over."""
        return self.durability.history

    @property
    def is_failed(self) -> bool:
        """Whether every operation raises `StorageError` from now on."""
        return self._failure is not None

    def note_gaps(self, *, at_once: bool) -> None:
        """Offsets will be missing from this log: `at_once`, or when it is compacted. Told to whoever opens it again."""
        if at_once or not self._has_gaps:
            self._hooks.on_gaps(self, at_once)
        self._has_gaps = self._has_gaps or at_once

    def fail(self, what: str, error: OSError) -> None:
        """Refuse everything from now on, as the disk has failed elsewhere."""
        self._fail(what, error)

    def set_topic_id(self, topic_id: UUID, *, durably: bool = True) -> None:
        """Write `partition.metadata`; not `durably`, it becomes so before anything else in this log. `StorageError`."""
        self._ensure_usable()
        self.durability.side_files.set_topic_id(topic_id, durably=durably)
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
        config = self._config
        if self._reshapes and not internal:
            batches = recompress(batches, config)
        headers = prepare_for_leader(batches, self._log_end_offset, leader_epoch, config, now_ms, internal)
        staged: dict[int, tuple[int, int]] = {}
        for header in headers:
            if header.producer_id >= 0 and not header.is_control:
                duplicate = self.producers.check(header, staged)
                if duplicate is not None:
                    is_stamped = config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
                    return AppendInfo.of_duplicate(duplicate, is_stamped)
        invariant(leader_epoch >= self.epoch_cache.latest, "a leader appends in no epoch older than its log's")
        return self._append(batches, headers)

    def append_as_follower(self, batches: memoryview, *, may_skip: bool = False) -> AppendInfo:
        """Append batches as a leader sent them; a cut-off last one is passed over.

        With `may_skip` offsets may be missing, as a compacted leader has none of them any more; and an empty log that
        begins within the first batch, because the leader's log does, begins anew with the whole batch.
        Raises `ProtocolError`: OFFSET_OUT_OF_RANGE unless they continue the log, CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR.
        """
        self._ensure_usable()
        if may_skip and self._log_start_offset == self._log_end_offset:
            self._begin_with(batches)
        headers = prepare_for_follower(batches, self._log_end_offset, self.epoch_cache.latest, may_skip)
        if not headers:
            return AppendInfo.nothing(self._log_end_offset)
        if may_skip and not self._has_gaps and headers[-1].next_offset - self._log_end_offset != count_offsets(headers):
            self.note_gaps(at_once=True)
        size = sum(header.batch_length for header in headers) + LOG_OVERHEAD * len(headers)
        return self._append(batches if size == len(batches) else batches[:size], headers)

    def _begin_with(self, batches: memoryview) -> None:
        """Source: UnexpectedAppendOffsetException of Apache Kafka's Partition (KAFKA-6361)."""
        start = self._log_start_offset
        base = first_batch_around(batches, start)
        if base is not None:
            self.truncate_fully_and_start_at(base)
            self._log_start_offset = start

    def _append(self, batches: memoryview, headers: list[BatchHeader]) -> AppendInfo:
        size, last = len(batches), headers[-1]
        if fits(self._active, size, headers[0], last, self._config, self._roll_after_ms):
            self._write(batches, headers)
        else:
            self._write_across_segments(batches, headers)
        if self._log_end_offset - self.durability.recovery_point >= self._config.flush_messages:
            self.flush()
        max_timestamp = last.max_timestamp if len(headers) == 1 else max(header.max_timestamp for header in headers)
        stamped = last.timestamp_type is TimestampType.LOG_APPEND_TIME
        append_time_ms = last.max_timestamp if stamped else NO_TIMESTAMP
        return AppendInfo(headers[0].base_offset, last.last_offset, max_timestamp, append_time_ms, size, False)

    def _write_across_segments(self, batches: memoryview, headers: list[BatchHeader]) -> None:
        position = 0
        for header in headers:
            if not fits(self._active, header.size_bytes, header, header, self._config, self._roll_after_ms):
                far = header.last_offset - self._log_end_offset > MAX_INT32
                self._start_segment(header.base_offset if far else self._log_end_offset)
            self._write(batches[position : position + header.size_bytes], [header])
            position += header.size_bytes

    def _write(self, batches: memoryview, headers: list[BatchHeader]) -> None:
        try:
            self._active.append(batches, headers, self._config.index_interval_bytes)
        except OSError as error:
            if self._active.is_torn:
                raise self._fail("what a failed write left behind could not be cut off", error) from error
            raise refused_write(f"{self.directory} cannot be written: {error}", error) from error
        self._log_end_offset = self._active.next_offset
        epochs = self.epoch_cache
        position = 0
        for header in headers:
            if header.partition_leader_epoch != epochs.latest:
                epochs.assign(header.partition_leader_epoch, header.base_offset)
            if header.producer_id >= 0:
                if header.is_control:
                    self._apply_marker(header, batches[position:])
                else:
                    self.producers.update(header)
            position += header[1] + LOG_OVERHEAD

    def _apply_marker(self, marker: BatchHeader, batch: memoryview) -> None:
        try:
            log_recovery.apply_marker(self.producers, self._active, marker, batch)
        except OSError as error:
            raise self._fail("its transaction index could not be written", error) from error

    def roll(self) -> None:
        """Start a new segment at the end of the log, unless the active one is empty. `StorageError`, `NoSpaceError`."""
        self._ensure_usable()
        if self._active.size_bytes:
            self._start_segment(self._log_end_offset)

    def _start_segment(self, base_offset: int) -> None:
        """On `StorageError` the active segment is what it was, and the same may be tried again."""
        try:
            self._active.finish()
            self._snapshots.write(base_offset, self.producers.encode_snapshot())
            segment = Segment.create(self._disk, self.directory, base_offset)
        except OSError as error:
            raise refused_write(f"{self.directory} cannot start a new segment: {error}", error) from error
        self.durability.segment_rolled(self._active)
        self._active.next_offset = base_offset
        self._segments.add(segment)
        self._active = segment
        self._log_end_offset = base_offset
        self._roll_after_ms = self._config.draw_segment_ms(self._rng)

    def roll_if_due(self, now_ms: int) -> bool:
        """Roll when the oldest record of the active segment is older than `segment.ms`. `StorageError`.

        Compacted logs do not wait longer than `max.compaction.lag.ms`, as only rolled segments are compacted.
        """
        first_ms = self._active.first_timestamp
        if not self._active.size_bytes or first_ms < 0:
            return False
        limit_ms = self._roll_after_ms
        if self._config.is_compacted:
            limit_ms = min(limit_ms, self._config.max_compaction_lag_ms)
        if now_ms - first_ms <= limit_ms:
            return False
        self.roll()
        return True

    # Reading

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        end_offset: int,
        min_one_batch: bool = True,
        allow_blocking_io: bool = True,
    ) -> bytes:
        """Whole batches from the one that holds `offset`, at most `max_bytes` of them, all below `end_offset`.

        The first one is given whole, however large, if `min_one_batch`. They come from one segment: less than
        `max_bytes` does not mean that there is no more. b"" at the end. OFFSET_OUT_OF_RANGE outside the log.
        `ColdReadError`, unless `patient`, when the device would have to be waited for.
        """
        end = self._readable_end(offset, end_offset)
        return self._ask(
            lambda: self._segments.read(offset, max_bytes, end, min_one_batch, allow_blocking_io=allow_blocking_io)
        )

    def read_or_slice(
        self,
        offset: int,
        max_bytes: int,
        *,
        end_offset: int,
        min_one_batch: bool,
        allow_blocking_io: bool,
        slice_bytes_min: int,
    ) -> bytes | FileSlice:
        """Like `read`; `slice_bytes_min` bytes and more as a slice, which is good until the log is cut."""
        args = offset, max_bytes, self._readable_end(offset, end_offset), min_one_batch, slice_bytes_min
        return self._ask(lambda: self._segments.read_or_slice(*args, allow_blocking_io=allow_blocking_io))

    def _readable_end(self, offset: int, end_offset: int) -> int:
        self._ensure_usable()
        start, end, where = self._log_start_offset, self._log_end_offset, self.directory
        if start <= offset <= end:
            return min(end_offset, end)
        raise ProtocolError(ErrorCode.OFFSET_OUT_OF_RANGE, f"Offset {offset} is not in {start} to {end} of {where}")

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """The first record whose timestamp is `timestamp_ms` or later, None when there is none."""
        return self._ask(lambda: self._segments.find_timestamp(timestamp_ms, self._log_start_offset))

    def max_timestamp(self) -> TimestampOffset | None:
        """The first record with the greatest timestamp, None in a log without timestamps."""
        greatest = self._ask(lambda: max(segment.largest_timestamp() for segment in self._segments))
        return self.offset_for_timestamp(greatest) if greatest >= 0 else None

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions with records from `start_offset` up to `end_offset`, which is not included.

        `StorageError`.
        """
        return self._ask(lambda: self._segments.aborted_transactions(start_offset, end_offset))

    def _ask(self, question: Callable[[], T]) -> T:
        self._ensure_usable()
        try:
            return question()
        except OSError as error:
            raise refused_write(f"{self.directory} cannot be read: {error}", error) from error

    # The start of the log

    def raise_start(self, offset: int) -> bool:
        """Make `offset`, at or below the high watermark, the first that can be read, unless the log starts later; files
        are not touched. True when the start moved."""
        invariant(offset <= self._log_end_offset, "a log starts no later than it ends")
        if offset <= self._log_start_offset:
            return False
        self._log_start_offset = offset
        self.epoch_cache.truncate_from_start(offset)
        return True

    def delete_expired(self, now_ms: int, high_watermark: int) -> int:
        """Delete the segments that retention lets go, and those before the log's start; returns how many.
        `StorageError`."""
        self._ensure_usable()
        if self._changes.is_under_way:
            return 0  # the next round sees what is left
        try:
            count = count_expired(self.segments, self._config, self._log_start_offset, high_watermark, now_ms)
            return self._delete_first(count) if count else 0
        except OSError as error:
            raise self._fail("a segment could not be deleted", error) from error

    def _delete_first(self, count: int) -> int:
        if is_whole := count == len(self._segments):
            try:
                self._start_segment(self._log_end_offset)
            except NoSpaceError:
                if count == 1:
                    raise
                count, is_whole = count - 1, False  # which makes room for the next round
        self._changes.put_away(count, is_end_new=is_whole)
        self.raise_start(self._segments.first_offset)
        return count

    @property
    def is_rearranged(self) -> bool:
        """Whether files get other names at the moment: no segment is replaced before that is over."""
        return self._changes.is_under_way

    def replace_segments(self, group: Sequence[Segment], cleaned: Segment) -> SegmentRenames:
        """Put `cleaned`, whose files are durable, in the place of `group` when the caller says so. `StorageError`."""
        self._ensure_usable()
        return self._changes.replace(group, cleaned)

    # Truncation

    def truncate_to(self, offset: int) -> None:
        """Forget every batch that reaches `offset`; durable on return. Nothing happens at or above the log's end.

        The log then ends at `offset`, or at the base of the batch that held it. `StorageError`.
        """
        self._ensure_usable()
        if offset >= self._log_end_offset:
            return None
        if offset < self._segments.first_offset:
            return self.truncate_fully_and_start_at(offset)
        self._changes.settle()
        try:
            keep = self._segments.index_of(offset) + 1
            position, end = self.segments[keep - 1].boundary_at(offset)
            self._lower_recovery_point(end)
            self._remove_segments(keep)
            self._active.truncate_to(position, end)
            self._snapshots.remove_after(end)
            self._disk.fsync_dir(self.directory)
            self._ends_at(end)
            run_at_once(log_recovery.load_producers(self.producers, self._snapshots, self._segments.items, end))
        except OSError as error:
            raise self._fail("it could not be truncated", error) from error

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Forget everything; the log is empty then, and starts and ends at `offset`. `StorageError`."""
        self._ensure_usable()
        self._changes.settle()
        try:
            self._lower_recovery_point(min(offset, self._segments.first_offset))
            self._remove_segments(0)
            self._snapshots.remove_after(-1)
            self._active = Segment.create(self._disk, self.directory, offset)
            self._segments.add(self._active)
            self.epoch_cache.clear()
            self._log_start_offset = offset
            self.producers.clear()
            self._ends_at(offset)
            self._disk.fsync_dir(self.directory)
            self.durability.recovery_point = offset
        except OSError as error:
            raise self._fail("it could not be truncated", error) from error

    def advance_start(self, offset: int) -> None:
        """Give up what is below `offset`, which is fsynced: segments that end there or before go, the oldest first,
        each for good before the next, lest a loss of power leave a gap. `StorageError`."""
        self._ensure_usable()
        self._changes.settle()
        self._log_start_offset = max(self._log_start_offset, min(offset, self._log_end_offset))
        try:
            below = min(offset, self.recovery_point)
            while len(self._segments) > 1 and self.segments[0].next_offset <= below:
                self.durability.segments_gone(self.segments[:1])
                for path in self._segments.delete_first(1):
                    self._disk.remove(path)
                self._disk.fsync_dir(self.directory)
        except OSError as error:
            raise self._fail("a segment could not be removed", error) from error

    def _lower_recovery_point(self, offset: int) -> None:
        self.durability.history += 1
        if offset < max(self.recovery_point, self._log_start_offset):
            self._hooks.on_recovery_point_lowered(self, offset)
            self.durability.recovery_point = min(self.recovery_point, offset)

    def _remove_segments(self, keep: int) -> None:
        for segment in reversed(self._segments.cut(keep)):
            segment.remove()
        self._active = self._segments.active

    def _ends_at(self, end: int) -> None:
        self._log_end_offset = end
        self._log_start_offset = min(self._log_start_offset, end)
        self.epoch_cache.truncate_from_end(end)
        self.durability.truncated(end)

    # Durability

    def flush(self) -> int:
        """fsync everything; returns the new `recovery_point`. `StorageError` for good when the fsync fails."""
        self._ensure_usable()
        try:
            self.durability.sync(self._log_end_offset)
        except OSError as error:
            raise self._fail("fsync failed", error) from error
        return self.recovery_point

    def flush_soon(self) -> asyncio.Future[int]:
        """fsync what is in the log now without blocking the loop; the result is the recovery point it led to.

        It is less than the end at the call when the log was truncated meanwhile. Fails with `StorageError`.
        """
        return self._soon(partial(self.durability.sync_soon, self._log_end_offset, self.durability.all_files))

    def flush_rolled_soon(self) -> asyncio.Future[int]:
        """Like `flush_soon`, for all segments but the active one."""
        return self._soon(partial(self.durability.sync_soon, self._active.base_offset, self.durability.rolled_files))

    def checkpoint_soon(self) -> asyncio.Future[int]:
        """Like `flush_soon`, so that a recovery would begin where the log ends now."""
        snapshot = self.producers.encode_snapshot()
        return self._soon(partial(self.durability.checkpoint_soon, self._log_end_offset, snapshot))

    def _soon(self, begin: Callable[[asyncio.Future[int]], None]) -> asyncio.Future[int]:
        result: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        try:
            self._ensure_usable()
        except StorageError as error:
            result.set_exception(error)
        else:
            begin(result)
        return result

    # Ending

    def close(self, *, clean: bool = True) -> None:
        """Release the files; `clean` makes all durable first, so that it may be opened with `clean_shutdown`. A failed
        log is just released. `StorageError` when a clean close cannot be had."""
        if self._is_closed:
            return
        try:
            if self._failure is None:
                self._settle(clean)
        finally:
            self._is_closed = True
            self.durability.history += 1
            self._snapshots.close()
            for segment in self._segments:
                segment.close()

    def _settle(self, clean: bool) -> None:
        """Nothing is under way any more, as the directory may get another name; all is durable if `clean`."""
        try:
            self._changes.settle()
        except StorageError:
            if clean:
                raise
        if clean:
            self._finish()

    def _finish(self) -> None:
        try:
            end = self._log_end_offset
            if not end and self.durability.side_files.unsaved_topic_id is not None:
                return  # there never was anything in it: what a loss of power leaves of it is as good
            self._active.finish()
            if self._snapshots.latest_offset < end and end > self._segments.first_offset:
                self._snapshots.write(end, self.producers.encode_snapshot())
            self.flush()
            self.durability.sync_side_files()
            self.durability.sync_indexes(self._active)
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
