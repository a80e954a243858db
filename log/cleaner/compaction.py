"""Compaction of one log: only the newest record of every key stays.

A pass first reads the dirty part of the log and collects the newest offset of each key, as many as memory allows. Then
it copies everything from the beginning of the log to the end of that part into new segments, without the records that
are superseded, and replaces the old segments by these (`segment_replacement`).

A record without a value (a tombstone) stays until a delete horizon, which its batch gets when it is first copied
(`delete.retention.ms`); so a consumer that began before sees the deletion. Records of aborted transactions are removed
at once, markers like tombstones when no record of their transaction is left. A producer's last batch stays for its
sequence number, if need be without records. An empty batch is added at the end of a new segment whose last offsets are
gone: then there is no gap to the next segment, and recovery sees that nothing was lost.

`clean` is incremental work: its steps say how many bytes were processed, and which files must be durable before the
next step. Sources: Cleaner of Apache Kafka; KIP-58, KIP-98, KIP-354, KIP-534.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...runtime.incremental_work import PLAIN_STEP, FileRange, Step, Work
from ...runtime.invariants import sometimes
from ...runtime.ports import Disk, File
from ...wire.errors import ErrorCode
from ...wire.records import BATCH_HEADER_SIZE, BatchHeader, CorruptBatchError, check_header, read_header, verify_crc
from ..config import MAX_INT32, MAX_INT64
from ..partition_log import PartitionLog
from ..segment.segment import CLEANED_SUFFIX, Segment
from ..state.producer_state import read_marker
from .batch_filter import RawRecord, batch_body, delete_horizon_ms, emptied, filler, raw_records, rebuild
from .cleaned_transactions import CleanedTransactions
from .offset_map import OffsetMap

_READ_BYTES = 256 * 1024
_WRITE_BYTES = 128 * 1024
_SYNC_BYTES = 4 * 1024 * 1024
_RECORDS_PER_STEP = 250


class CleanAbortedError(Exception):
    """The log has changed meanwhile: it was truncated, deleted or closed, or retention has deleted segments."""


class NoRoomError(Exception):
    """The offset map is too small for the keys of one batch."""


@dataclass(frozen=True, slots=True)
class CleanPlan:
    """What a pass cleans: it collects the keys of [`first_dirty_offset`, `end_offset`); the end is a segment's."""

    first_dirty_offset: int
    end_offset: int
    now_ms: int
    map_memory_bytes: int


class CleanResult(NamedTuple):
    """The log is clean up to `clean_offset`; bytes of the segments that were copied, before and after."""

    clean_offset: int
    bytes_before: int
    bytes_after: int


def clean(log: PartitionLog, disk: Disk, plan: CleanPlan) -> Work[CleanResult]:
    """One pass. On `CleanAbortedError`, `NoRoomError`, `CorruptBatchError` and `OSError` the present copy is removed.

    Segments that were replaced before stay replaced, which is right. `StorageError` when a replacement fails.
    """
    watch = _WatchedLog(log)
    log.note_gaps(at_once=True)
    offsets = OffsetMap(plan.map_memory_bytes)
    yield from _build_map(watch, plan, offsets)
    clean_offset = offsets.latest_offset + 1
    if clean_offset <= plan.first_dirty_offset < plan.end_offset:
        raise NoRoomError(f"{len(offsets)} keys are too few for one batch")
    segments = watch.segments_below(clean_offset)
    transactions = CleanedTransactions(log.aborted_transactions(segments[0].base_offset, segments[-1].next_offset))
    before = after = 0
    for group in group_segments(segments, log.config.segment_bytes, log.config.segment_index_bytes):
        before += sum(segment.size_bytes for segment in group)
        copy = _GroupCopy(watch, disk, plan, offsets, transactions)
        after += yield from copy.run(group)
    return CleanResult(clean_offset, before, after)


def group_segments(segments: Sequence[Segment], bytes_max: int, index_bytes_max: int) -> list[list[Segment]]:
    """Groups of neighbours that fit in one segment. Source: Cleaner.groupSegmentsBySize of Apache Kafka."""
    groups: list[list[Segment]] = []
    size = index = 0
    for segment in segments:
        index_bytes = 12 * (len(segment.time_index.offsets) + 1)
        fits = (
            groups
            and size + segment.size_bytes <= bytes_max
            and index + index_bytes <= index_bytes_max
            and segment.next_offset - groups[-1][0].base_offset <= MAX_INT32
        )
        if fits:
            groups[-1].append(segment)
        else:
            groups.append([segment])
            size = index = 0
        size += segment.size_bytes
        index += index_bytes
    return groups


class _WatchedLog:
    """Reads a log while it may change, and notices when it was truncated, closed, or has lost segments."""

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self._history = log.history

    def check(self, *segments: Segment) -> None:
        log = self.log
        if log.is_closed or log.is_failed or log.history != self._history:
            sometimes(True, "compaction gave up a log that had been cut or closed")
            raise CleanAbortedError(f"{log.directory} has changed")
        if any(segment not in log.segments for segment in segments):
            sometimes(True, "compaction gave up segments that retention had deleted")
            raise CleanAbortedError(f"segments of {log.directory} are gone")

    def segments_below(self, offset: int) -> list[Segment]:
        """The segments that begin below this offset."""
        self.check()
        found = [segment for segment in self.log.segments if segment.base_offset < offset]
        if not found:
            sometimes(True, "retention deleted all that compaction had read")
            raise CleanAbortedError(f"the segments of {self.log.directory} below offset {offset} are gone")
        return found

    def batches(self, segment: Segment, start: int = 0) -> Iterator[tuple[BatchHeader, memoryview] | Step]:
        """The batches of a segment from byte `start` on, with their CRC checked, and steps where a read would wait.

        `CorruptBatchError`.
        """
        window, at = memoryview(b""), 0
        position, size = start, segment.size_bytes
        while position < size:
            left = len(window) - at
            wanted = read_header(window, at).size_bytes if left >= BATCH_HEADER_SIZE else BATCH_HEADER_SIZE
            if left < wanted:
                self.check(segment)
                length = min(max(_READ_BYTES, wanted), size - position)
                if not segment.file.is_cached(position, length):
                    yield Step(reads=FileRange(segment.file, position, length))
                    self.check(segment)
                window, at = memoryview(segment.file.pread(position, length)), 0
                if len(window) < min(wanted, length):
                    raise CorruptBatchError(ErrorCode.CORRUPT_MESSAGE, f"{segment.file.path} is too short")
                continue
            header = read_header(window, at)
            check_header(header, size - position)
            if not verify_crc(window, at, header):
                raise CorruptBatchError(ErrorCode.CORRUPT_MESSAGE, f"{segment.file.path} is damaged at {position}")
            yield header, window[at : at + header.size_bytes]
            at += header.size_bytes
            position += header.size_bytes


def _build_map(watch: _WatchedLog, plan: CleanPlan, offsets: OffsetMap) -> Work[None]:
    log, start, end = watch.log, plan.first_dirty_offset, plan.end_offset
    transactions = CleanedTransactions(log.aborted_transactions(start, end))
    for segment in [s for s in log.segments if s.next_offset > start and s.base_offset < end]:
        watch.check(segment)
        for found in watch.batches(segment, segment.locate(max(start, segment.base_offset))):
            if isinstance(found, Step):
                yield found
                continue
            header, batch = found
            if header.is_control:
                transactions.on_marker(header, read_marker(batch))
            elif not transactions.on_data(header) and header.record_count:
                is_full = yield from _note_keys(header, batch, start, offsets)
                if is_full:
                    sometimes(True, "compaction went only as far as the keys had room in memory")
                    return
            offsets.latest_offset = header.last_offset
            yield Step(header.size_bytes)
        offsets.latest_offset = segment.next_offset - 1


def _note_keys(header: BatchHeader, batch: memoryview, start: int, offsets: OffsetMap) -> Work[bool]:
    """Returns whether the map is full; `latest_offset` is then the last record in it."""
    for number, record in enumerate(raw_records(batch_body(batch, header), header.record_count)):
        offset = header.base_offset + record.offset_delta
        if record.key is not None and offset >= start and not offsets.put(record.key, offset):
            return True
        if number % _RECORDS_PER_STEP == _RECORDS_PER_STEP - 1:
            yield PLAIN_STEP
    return False


class _GroupCopy:
    """Copies one group of segments into a new one, and replaces the group by it."""

    def __init__(
        self, watch: _WatchedLog, disk: Disk, plan: CleanPlan, offsets: OffsetMap, transactions: CleanedTransactions
    ) -> None:
        self._watch = watch
        self._disk = disk
        self._plan = plan
        self._offsets = offsets
        self._transactions = transactions
        self._headers: list[BatchHeader] = []
        self._data: list[bytes | memoryview] = []
        self._waiting_bytes = 0
        self._synced_bytes = 0

    def run(self, group: Sequence[Segment]) -> Work[int]:
        """Copy and replace; returns the bytes of the new segment."""
        log = self._watch.log
        cleaned = Segment.create(self._disk, log.directory, group[0].base_offset, CLEANED_SUFFIX)
        is_placed = False
        try:
            yield from self._copy(group, cleaned)
            cleaned.finish()
            yield Step(0, (cleaned.file, *cleaned.unsynced_index_files()))
            while log.is_changing_names:
                sometimes(True, "compaction waited for file names that were being changed")
                yield PLAIN_STEP
            self._watch.check(*group)
            cleaned.indexes_synced()
            change = log.replace_segments(group, cleaned)
            is_placed = True
            yield Step(change=change)
            self._watch.check()  # a log that was cut meanwhile is not clean up to where it was
            return cleaned.size_bytes
        finally:
            if not is_placed and not log.is_failed:
                self._discard(cleaned)

    def _discard(self, cleaned: Segment) -> None:
        try:
            cleaned.file.truncate(0)  # fails in a process that has died; its successor may have such a file too
            cleaned.remove()
        except OSError:
            cleaned.close()  # the directory may be gone; the next opening of the log removes what is left

    def _copy(self, group: Sequence[Segment], cleaned: Segment) -> Work[None]:
        last: BatchHeader | None = None
        retained = len(self._transactions.retained)
        for segment in group:
            for found in self._watch.batches(segment):
                if isinstance(found, Step):
                    yield found
                    continue
                header, batch = found
                yield from self._copy_batch(header, batch)
                last = header
                if self._waiting_bytes >= _WRITE_BYTES:
                    self._write(cleaned)
                yield Step(header.size_bytes, self._due_sync(cleaned))
        self._write(cleaned)
        end = group[-1].next_offset
        if last is not None and cleaned.next_offset < end:
            self._add(filler(last, end - 1))
            self._write(cleaned)
        cleaned.next_offset = end
        for aborted in self._transactions.retained[retained:]:
            cleaned.transaction_index.add(aborted)

    def _due_sync(self, cleaned: Segment) -> tuple[File, ...]:
        """fsync every few megabytes: with many dirty pages and a slow device, the system blocks every writer."""
        if cleaned.size_bytes - self._synced_bytes < _SYNC_BYTES:
            return ()
        self._synced_bytes = cleaned.size_bytes
        return (cleaned.file,)

    def _write(self, cleaned: Segment) -> None:
        if self._headers:
            cleaned.append(b"".join(self._data), self._headers, self._watch.log.config.index_interval_bytes)
            self._headers, self._data, self._waiting_bytes = [], [], 0

    def _add(self, batch: tuple[BatchHeader, bytes | memoryview]) -> None:
        self._headers.append(batch[0])
        self._data.append(batch[1])
        self._waiting_bytes += batch[0].size_bytes

    def _copy_batch(self, header: BatchHeader, batch: memoryview) -> Work[None]:
        is_stale = has_idle_marker = False
        if header.is_control:
            has_idle_marker = header.has_producer_id and self._transactions.on_marker(header, read_marker(batch))
            horizon = delete_horizon_ms(header)
            is_stale = has_idle_marker and horizon is not None and horizon <= self._plan.now_ms
        else:
            is_stale = self._transactions.on_data(header)
        if not header.record_count or is_stale:
            self._keep_empty(header, batch)
            return
        body = batch_body(batch, header)
        kept, has_tombstone = yield from self._choose(header, body)
        if not kept:
            self._keep_empty(header, batch)
            return
        horizon_ms = None
        if (has_tombstone or has_idle_marker) and delete_horizon_ms(header) is None:
            horizon_ms = min(self._plan.now_ms + self._watch.log.config.delete_retention_ms, MAX_INT64)
        if horizon_ms is None and len(kept) == header.record_count:
            self._add((header, batch))
        else:
            self._add(rebuild(header, body, kept, horizon_ms))

    def _choose(self, header: BatchHeader, body: memoryview) -> Work[tuple[list[RawRecord], bool]]:
        """The records that stay, and whether a tombstone is among them."""
        horizon = delete_horizon_ms(header)
        tombstones_stay = horizon is None or self._plan.now_ms < horizon
        kept: list[RawRecord] = []
        has_tombstone = False
        for number, record in enumerate(raw_records(body, header.record_count)):
            if header.is_control or self._stays(header.base_offset + record.offset_delta, record, tombstones_stay):
                kept.append(record)
                has_tombstone = has_tombstone or not (record.has_value or header.is_control)
            if number % _RECORDS_PER_STEP == _RECORDS_PER_STEP - 1:
                yield PLAIN_STEP
        return kept, has_tombstone

    def _stays(self, offset: int, record: RawRecord, tombstones_stay: bool) -> bool:
        if offset > self._offsets.latest_offset:
            return True
        if record.key is None:
            return False
        return offset >= self._offsets.get(record.key) and (record.has_value or tombstones_stay)

    def _keep_empty(self, header: BatchHeader, batch: memoryview) -> None:
        """Keep a producer's last batch without records, or its last marker as it is: they tell the producer's epoch.

        Source: checkBatchRetention in Cleaner.cleanInto. Apache Kafka empties the marker; what replays the log then
        does not learn the epoch from it, which from transaction.version 2 on is in no other batch.
        """
        if header.producer_id < 0:
            return
        entry = self._watch.log.producers.get(header.producer_id)
        if entry is None:
            return
        if entry.batches:
            is_last = entry.batches[-1].last_offset == header.last_offset
        else:
            is_last = header.is_control and entry.epoch == header.producer_epoch
        if is_last:
            self._add((header, batch) if header.is_control or not header.record_count else emptied(header))
