"""One partition's log: batches of records in segment files, and what is known about them.

The hot path is `append_as_leader`: the header of each batch is read once and checked, offset and epoch are written into
it in place, and the bytes go to the file as they came. State in memory changes only after the write has succeeded, so a
failed append leaves the log as it was. After a failed fsync the contents of the files are unknown, so the log refuses
everything from then on.

Everything below `recovery_point` is fsynced, together with the indexes of the segments before it, the leader epochs and
the producer snapshots. Before truncation lowers it, `LogHooks.on_recovery_point_lowered` is called, so that recovery
after a crash in the middle checks everything that was rewritten.
Source: UnifiedLog of Apache Kafka; `LocalLog` holds the files.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from ..runtime.files.file_slice import FileSlice
from ..runtime.incremental_work import Work, run_at_once
from ..runtime.invariants import invariant, sometimes
from ..runtime.ports import Runtime
from ..wire.errors import ErrorCode, ProtocolError
from ..wire.records import LOG_APPEND_TIME_FLAG, LOG_OVERHEAD, NO_TIMESTAMP, BatchHeader, TimestampType
from .append_info import AppendInfo
from .availability import LogAvailability
from .config import MAX_INT32, LogConfig
from .durability import Durability, LogFiles
from .errors import StorageError, is_no_space, no_space_refused, refused_write
from .hooks import NO_HOOKS, LogHooks
from .local_log import LocalLog
from .record_validation import LoopBudget
from .recovery import log_recovery
from .recovery.log_replay import LogReplay
from .segment.log_segments import LogSegments
from .segment.rolling_and_retention import RollPolicy, count_expired
from .segment.segment import Segment, TimestampOffset
from .segment.segment_replacement import StagedRenames
from .segment.transaction_index import AbortedTransaction
from .state.leader_epoch_cache import LeaderEpochCache
from .state.producer_state import BatchMetadata, ProducerStateManager, read_marker
from .state.transaction_verification import VerificationGuard
from .validation import (
    count_offsets,
    first_batch_around,
    place_validated,
    prepare_for_follower,
    prepare_for_leader,
    validate,
)


class PartitionLog:
    """A partition's log: owns its start offset, settings, producers and leader epochs, and has a `LocalLog` for files.

    Made by `open`, used on one loop.
    """

    def __init__(
        self, runtime: Runtime, directory: str, config: LogConfig, hooks: LogHooks, loaded: log_recovery.LoadedLog
    ) -> None:
        self.directory = directory
        self.topic_id = loaded.topic_id
        self.producers = ProducerStateManager()
        self._disk = runtime.disk
        self._hooks = hooks
        # No part refers to the log: a reference cycle would stay until the next whole garbage collection.
        segments = self._segments = LogSegments(loaded.segments)
        policy = self._roll_policy = RollPolicy(runtime.rng, config)
        self._log_start_offset = self._segments.first_offset
        self.epoch_cache = LeaderEpochCache(lambda: segments.active.next_offset, loaded.epochs)
        self._snapshots = loaded.snapshots
        self._availability = LogAvailability(directory, hooks.on_failed)
        files = LogFiles(runtime.disk, directory, self._segments, self.epoch_cache, loaded.snapshots)
        self.durability = Durability(files, loaded.durable_offset, loaded.is_settled, self._availability)
        told = hooks.on_files_deleted
        on_deleted = None if told is None else lambda paths: told(policy.config.file_delete_delay_ms, paths)
        self._local = LocalLog(files, self.durability, self._availability, on_deleted)
        self._has_gaps = False
        self.may_have_gaps = True
        """Whether offsets may be missing, as after compaction; if not, a missing one is damage."""
        self.is_being_mended = False
        """Whether a segment is being replaced by what another replica has: the cleaner waits for that."""
        self._use(config)

    @classmethod
    def open(cls, runtime: Runtime, directory: str, config: LogConfig, **known: Any) -> PartitionLog:
        """As `opening`, blocking until the log is open."""
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
        discard_without_topic_id: bool = False,
        has_gaps: bool = True,
        hooks: LogHooks = NO_HOOKS,
    ) -> Work[PartitionLog]:
        """Open the log in `directory`, made if it is not there. Damaged tails are cut off unless `clean_shutdown`.

        `discard_without_topic_id`: without a whole one nothing else was durable, and the files are of no known topic;
        they are removed. If offsets cannot be missing (not `has_gaps`), a missing one is damage. `StorageError`.
        """
        try:
            if discard_without_topic_id and log_recovery.was_never_durable(runtime.disk, directory):
                log_recovery.discard_never_durable(runtime.disk, directory)
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
            log.may_have_gaps = has_gaps or config.is_compacted
            if not (loaded.is_settled or recovery_point):
                log.durability.metadata_files.unsaved_topic_id = log.topic_id
            log._log_start_offset = min(max(log_start_offset, log._segments.first_offset), log.log_end_offset)
            log.epoch_cache.truncate_from_start(log._log_start_offset)
            yield from log_recovery.load_producers(log.producers, loaded.snapshots, loaded.segments, log.log_end_offset)
            log.durability.close_idle_files()
            if log.recovery_point < recovery_point:
                hooks.on_recovery_point_lowered(log.recovery_point)
        except OSError as error:
            raise refused_write(f"{directory} cannot be opened: {error}", error) from error
        return log

    @property
    def config(self) -> LogConfig:
        """The settings of the log; may be set, and count from then on."""
        return self._roll_policy.config

    @config.setter
    def config(self, config: LogConfig) -> None:
        if config != self.config:
            self._roll_policy.set_config(config)
            self._use(config)

    def _use(self, config: LogConfig) -> None:
        if config.is_compacted:
            self.note_gaps(at_once=False)

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read."""
        return self._log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record."""
        return self._segments.active.next_offset

    @property
    def recovery_point(self) -> int:
        """Everything below this offset is fsynced."""
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
        """Whether the log was closed."""
        return self._availability.is_closed

    @property
    def is_failed(self) -> bool:
        """Whether the disk has refused, so that every operation raises `StorageError` from now on."""
        return self._availability.failure is not None

    @property
    def history(self) -> int:
        """Changes when offsets or files are removed: work on the log that began before must start again."""
        return self.durability.history

    def note_gaps(self, *, at_once: bool) -> None:
        """Offsets will be missing from this log, now (`at_once`) or when it is compacted; recovery has to know that."""
        if at_once or not self._has_gaps:
            self._hooks.on_gaps(at_once)
        self.may_have_gaps = True
        self._has_gaps = self._has_gaps or at_once

    def fail(self, what: str, error: OSError) -> None:
        """Refuse everything from now on, because the disk has failed elsewhere."""
        self._availability.fail(what, error)

    def set_topic_id(self, topic_id: UUID, *, durably: bool = True) -> None:
        """Write `partition.metadata`; if not `durably`, it becomes so before anything else does. `StorageError`."""
        self._availability.check()
        self.durability.metadata_files.set_topic_id(topic_id, durably=durably)
        self.topic_id = topic_id

    # Appending

    def append_as_leader(
        self,
        batches: memoryview,
        leader_epoch: int,
        now_ms: int,
        *,
        internal: bool = False,
        validated_by: LogConfig | None = None,
        budget: LoopBudget | None = None,
        guard: VerificationGuard | None = None,
        transaction_version: int = 0,
    ) -> AppendInfo:
        """Append a client's batches; their offsets and `leader_epoch` are written into them in place.

        A batch of an idempotent producer that is in the log already is not appended again: the result has its offsets
        and `duplicate`. `internal` batches are the broker's own: control batches, with any timestamp; markers are
        checked by `transaction_version`. With `validated_by` they are what `validate` has returned for these settings,
        by which they are stored. With a budget, `NeedsThreadError` asks for that first. `guard` allows a batch to open
        a transaction.
        Raises `ProtocolError` (CORRUPT_MESSAGE, INVALID_RECORD, MESSAGE_TOO_LARGE, INVALID_TIMESTAMP,
        UNSUPPORTED_COMPRESSION_TYPE, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE,
        TRANSACTION_COORDINATOR_FENCED, KAFKA_STORAGE_ERROR).
        """
        self._availability.check()
        config = self.config if validated_by is None else validated_by
        first_offset = self._segments.active.next_offset
        if config.compression_type is not None and not (internal or validated_by):
            batches, validated_by = validate(batches, config, now_ms, budget), config
        if validated_by:
            headers = place_validated(batches, first_offset, leader_epoch, config, now_ms)
        else:
            headers = prepare_for_leader(
                batches, first_offset, leader_epoch, config, now_ms, internal=internal, budget=budget
            )
        staged: dict[int, tuple[int, int]] = {}
        for header in headers:
            if header.producer_id >= 0 and not header.is_control:
                duplicate = self.producers.check(header, staged, guard)
                if duplicate is not None:
                    return AppendInfo.of_duplicate(duplicate, self._has_append_time(duplicate))
        if internal:
            self._check_markers(batches, headers, transaction_version)
        invariant(leader_epoch >= self.epoch_cache.latest, "a leader appends in no epoch older than its log's")
        return self._append(batches, headers)

    def _has_append_time(self, batch: BatchMetadata) -> bool:
        """Whether a batch in the log has its append's time. The topic may have had another timestamp type then."""
        header = self._local.batch_of(batch.first_offset, batch.last_offset)
        kind = self.config.message_timestamp_type if header is None else header.timestamp_type
        return kind is TimestampType.LOG_APPEND_TIME

    def _check_markers(self, batches: memoryview, headers: list[BatchHeader], transaction_version: int) -> None:
        position = 0
        for header in headers:
            if header.is_control and header.producer_id >= 0:
                marker = read_marker(batches[position:])
                if marker is not None:
                    self.producers.check_marker(header, marker, transaction_version)
            position += header.size_bytes

    def append_as_follower(
        self, batches: memoryview, leader_epoch: int = MAX_INT32, *, may_skip: bool = False
    ) -> AppendInfo:
        """Append batches as a leader sent them; an incomplete last one is ignored.

        With `may_skip`, offsets may be missing, as a compacted leader no longer has all of them. An empty log that
        begins inside the first batch, as the leader's log does, then begins anew with the whole batch (KAFKA-6361).
        Raises `ProtocolError`: OFFSET_OUT_OF_RANGE unless they continue the log, CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR.
        """
        self._availability.check()
        is_empty = self._log_start_offset == self.log_end_offset
        base = first_batch_around(batches, self._log_start_offset) if may_skip and is_empty else None
        if base is not None:
            return self._start_over_with(batches, base, leader_epoch)
        end_offset = self._segments.active.next_offset
        headers = prepare_for_follower(batches, end_offset, self.epoch_cache.latest, leader_epoch, may_skip)
        if not headers:
            return AppendInfo.nothing(end_offset)
        if may_skip and not self._has_gaps and headers[-1].next_offset - end_offset != count_offsets(headers):
            self.note_gaps(at_once=True)
        size = sum(header.batch_length for header in headers) + LOG_OVERHEAD * len(headers)
        return self._append(batches if size == len(batches) else batches[:size], headers)

    def _start_over_with(self, batches: memoryview, base: int, leader_epoch: int) -> AppendInfo:
        sometimes(True, "a follower's log began within the first batch of its leader's")
        start = self._log_start_offset
        self.truncate_fully_and_start_at(base)
        try:
            return self.append_as_follower(batches, leader_epoch, may_skip=True)
        finally:
            if self.log_end_offset < start and not self.is_failed:  # it was refused, and is not to end below its start
                self.truncate_fully_and_start_at(start)
            self._log_start_offset = start

    def _append(self, batches: memoryview, headers: list[BatchHeader]) -> AppendInfo:
        size, last = len(batches), headers[-1]
        is_flush_due = last.next_offset - self.durability.recovery_point >= self.config.flush_messages
        if is_flush_due:
            self.durability.prepare_flush()
        if self._roll_policy.fits(self._segments.active, size, headers[0], last):
            self._write(batches, headers)
        else:
            self._write_across_segments(batches, headers)
        next_offset = self._segments.active.next_offset
        if is_flush_due:
            self.durability.flush_appended()
        max_timestamp = last.max_timestamp if len(headers) == 1 else max(header.max_timestamp for header in headers)
        append_time_ms = last.max_timestamp if last.attributes & LOG_APPEND_TIME_FLAG else NO_TIMESTAMP
        fields = (headers[0].base_offset, next_offset - 1, max_timestamp, append_time_ms, size, False)
        info: AppendInfo = tuple.__new__(AppendInfo, fields)
        return info

    def _write_across_segments(self, batches: memoryview, headers: list[BatchHeader]) -> None:
        position = 0
        for header in headers:
            if not self._roll_policy.fits(self._segments.active, header.size_bytes, header, header):
                is_far = header.last_offset - self.log_end_offset > MAX_INT32
                self._roll(header.base_offset if is_far else self.log_end_offset)
            self._write(batches[position : position + header.size_bytes], [header])
            position += header.size_bytes

    def _write(self, batches: memoryview, headers: list[BatchHeader]) -> None:
        self._local.append(batches, headers, self.config.index_interval_bytes)
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
            log_recovery.apply_marker(self.producers, self._segments.active, marker, batch)
        except OSError as error:
            raise self._availability.fail("its transaction index could not be written", error) from error

    def roll(self) -> None:
        """Start a new segment at the end of the log, unless the active one is empty. `StorageError`, `NoSpaceError`."""
        self._availability.check()
        if self._segments.active.size_bytes:
            self._roll(self.log_end_offset)

    def roll_if_due(self, now_ms: int) -> bool:
        """Roll if the active segment is old (`RollPolicy.is_due`); returns whether it was. `StorageError`."""
        if not self._roll_policy.is_due(self._segments.active, now_ms):
            return False
        self.roll()
        return True

    def _roll(self, base_offset: int) -> None:
        self._local.roll(base_offset, self.producers.encode_snapshot())
        self._roll_policy.draw_jitter()

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

        With `min_one_batch` the first one is read whole, however large it is. All are from one segment, so less than
        `max_bytes` does not mean that there is no more. b"" at the end. OFFSET_OUT_OF_RANGE outside the log.
        Without `allow_blocking_io`, `ColdReadError` if the read would wait for the device.
        """
        end = self._readable_end(offset, end_offset)
        return self._local.read(offset, max_bytes, end, min_one_batch, allow_blocking_io=allow_blocking_io)

    def has_later_segment(self, offset: int, end_offset: int) -> bool:
        """Whether a read at `offset` cannot get all that is below `end_offset`, however much it asks for."""
        return self._segments.has_later_one(offset, end_offset)

    def replay(self) -> LogReplay:
        """A replay of the log from its start to where it ends now."""
        return LogReplay(lambda: self._segments.items, self._log_start_offset, self.log_end_offset)

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
        """Like `read`; `slice_bytes_min` bytes and more as a slice of the file, valid until the log is truncated."""
        end = self._readable_end(offset, end_offset)
        return self._local.read_or_slice(
            offset, max_bytes, end, min_one_batch, slice_bytes_min, allow_blocking_io=allow_blocking_io
        )

    def _readable_end(self, offset: int, end_offset: int) -> int:
        self._availability.check()
        start, end = self._log_start_offset, self._segments.active.next_offset
        if start <= offset <= end:
            return min(end_offset, end)
        where = self.directory
        raise ProtocolError(ErrorCode.OFFSET_OUT_OF_RANGE, f"Offset {offset} is not in {start} to {end} of {where}")

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """The first record whose timestamp is `timestamp_ms` or later, None if there is none. `StorageError`."""
        self._availability.check()
        return self._local.find_timestamp(timestamp_ms, self._log_start_offset)

    def max_timestamp(self) -> TimestampOffset | None:
        """The first record with the greatest timestamp, None in a log without timestamps. `StorageError`."""
        self._availability.check()
        greatest = self._local.largest_timestamp()
        return self.offset_for_timestamp(greatest) if greatest >= 0 else None

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions with records in [`start_offset`, `end_offset`). `StorageError`."""
        self._availability.check()
        return self._local.aborted_transactions(start_offset, end_offset)

    def has_aborted_transactions_after(self, offset: int) -> bool:
        """Whether an aborted transaction has records at or after `offset`. `StorageError`."""
        self._availability.check()
        return self._local.has_aborted_transactions_after(offset)

    # The start of the log

    def raise_start(self, offset: int) -> bool:
        """Raise the log start offset to `offset`, which is not above the high watermark; returns whether it moved.

        Files stay; retention deletes those that are not needed any more.
        """
        invariant(offset <= self.log_end_offset, "a log starts no later than it ends")
        if offset <= self._log_start_offset:
            return False
        self._log_start_offset = offset
        self.epoch_cache.truncate_from_start(offset)
        return True

    def delete_expired(self, now_ms: int, high_watermark: int) -> int:
        """Delete the segments before the log's start and those that retention does not keep; returns how many.

        `StorageError`.
        """
        self._availability.check()
        if self._local.is_changing_names:
            sometimes(True, "retention waited for file names that were being changed")
            return 0  # the next round does what is left
        try:
            count = count_expired(self.segments, self.config, self._log_start_offset, high_watermark, now_ms)
            sometimes(count and count == len(self.segments), "retention deleted every segment of a log")
            if count:
                count = self._local.delete_oldest(count, roll=lambda: self._roll(self.log_end_offset))
                self.raise_start(self._segments.first_offset)
        except OSError as error:
            if is_no_space(error):  # to read the timestamps of the segments; nothing has changed
                raise refused_write(f"{self.directory} cannot be read: {error}", error) from error
            raise self._availability.fail("a segment could not be deleted", error) from error
        return count

    def advance_start(self, offset: int) -> None:
        """Raise the log start offset to `offset`, and durably remove fsynced segments below it. `StorageError`."""
        self._availability.check()
        self._local.settle()
        self._log_start_offset = max(self._log_start_offset, min(offset, self.log_end_offset))
        try:
            self._local.delete_below(min(offset, self.recovery_point))
        except OSError as error:
            raise self._availability.fail("a segment could not be removed", error) from error

    @property
    def is_changing_names(self) -> bool:
        """Whether files are being renamed: until that is over no segment is replaced."""
        return self._local.is_changing_names

    def replace_segments(self, group: Sequence[Segment], cleaned: Segment) -> StagedRenames:
        """Put `cleaned`, whose files are durable, in the place of `group`; the caller begins the returned change.

        `StorageError`.
        """
        self._availability.check()
        return self._local.replace(group, cleaned)

    # Truncation

    def truncate_to(self, offset: int) -> None:
        """Remove every batch that reaches `offset`, durably; does nothing if that is at or above the log's end.

        The log then ends at `offset`, or at the base offset of the batch that held it. `StorageError`; it is as it was
        after a `NoSpaceError`.
        """
        self._availability.check()
        if offset >= self.log_end_offset:
            return None
        if offset < self._segments.first_offset:
            sometimes(True, "a log was cut below its first segment")
            return self.truncate_fully_and_start_at(offset)
        self._local.settle()
        try:
            end = self._local.truncate_to(offset, self._lower_recovery_point)
            self._log_start_offset = min(self._log_start_offset, end)
            self.epoch_cache.truncate_from_end(end)
            self.durability.truncated(end)
            sometimes(self.producers.open_transactions, "a log was cut while a transaction was open in it")
            unstable = self.producers.unstable_transactions
            run_at_once(log_recovery.load_producers(self.producers, self._snapshots, self._segments.items, end))
            self.producers.keep_unstable(unstable, end)
        except OSError as error:
            raise self._availability.fail("it could not be truncated", error) from error

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove everything; the log is empty then, and starts and ends at `offset`. Errors as of `truncate_to`."""
        self._availability.check()
        self._local.settle()
        try:
            self._lower_recovery_point(min(offset, self._segments.first_offset))
            self._local.start_over_at(offset)
            self.epoch_cache.clear()
            self._log_start_offset = offset
            self.producers.clear()
            self.durability.truncated(offset)
            self._disk.fsync_dir(self.directory)
            self.durability.started_over(offset)
        except OSError as error:
            raise self._availability.fail("it could not be truncated", error) from error

    def _lower_recovery_point(self, offset: int) -> None:
        """Before any file of the log changes. `OSError`, `NoSpaceError`."""
        self.durability.history += 1
        with no_space_refused(f"{self.directory} cannot be truncated"):
            self._hooks.on_truncating(offset)
            if offset < max(self.recovery_point, self._log_start_offset):
                self._hooks.on_recovery_point_lowered(offset)
                self.durability.recovery_point = min(self.recovery_point, offset)

    # Durability

    def flush(self) -> int:
        """As `Durability.flush`."""
        return self.durability.flush()

    def flush_soon(self) -> asyncio.Future[int]:
        """As `Durability.flush_soon`."""
        return self.durability.flush_soon()

    def checkpoint_soon(self) -> asyncio.Future[int]:
        """Like `flush_soon`; afterwards recovery begins where the log ends now."""
        return self.durability.flush_with_snapshot_soon(self.producers.encode_snapshot())

    # Ending

    def close(self, *, clean: bool = True) -> None:
        """Close the files; `clean` makes everything durable first, so that the log can be opened with `clean_shutdown`.

        A failed log is just closed. `StorageError` when a clean close is not possible.
        """
        if self.is_closed:
            return
        try:
            if not self.is_failed:
                self._settle(clean)
        finally:
            self._availability.is_closed = True
            self.durability.history += 1
            self._local.close()

    def _settle(self, clean: bool) -> None:
        """No change of names is under way on return, as the directory may be renamed; all is durable if `clean`."""
        try:
            self._local.settle()
        except StorageError:
            if clean:
                raise
        if clean:
            self._local.close_cleanly(self.producers.encode_snapshot)
