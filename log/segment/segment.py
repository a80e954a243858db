"""One segment: a file of batches and its two sparse indexes."""

from __future__ import annotations

import asyncio
import logging
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ...runtime.files.file_slice import FileSlice
from ...runtime.ports import Buffer, Disk, File
from ...wire.errors import ErrorCode
from ...wire.records import (
    BATCH_HEADER_SIZE,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    BatchHeader,
    CorruptBatchError,
    check_header,
    read_header,
)
from ..config import MAX_INT32, MAX_INT64
from ..errors import ColdReadError
from .batch_scan import HEADER_WINDOW_BYTES, LOOKUP_WINDOW_BYTES, scan_headers
from .indexes import OffsetIndex, TimeIndex
from .transaction_index import TransactionIndex

_logger = logging.getLogger(__name__)
_RECENT_BATCHES_MAX = 512
_SURELY_CACHED_BYTES = 1024 * 1024
"""This much of a file's end is assumed to be in the page cache, as it is read most often."""

LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, SNAPSHOT_SUFFIX = ".log", ".index", ".timeindex", ".snapshot"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
CLEANED_SUFFIX, MENDED_SUFFIX, SWAP_SUFFIX, DELETED_SUFFIX = ".cleaned", ".mended", ".swap", ".deleted"


def segment_path(directory: str, base_offset: int, suffix: str) -> str:
    """Path of a file of the segment; its name begins with the base offset in 20 digits."""
    return f"{directory}/{base_offset:020d}{suffix}"


def base_offsets(names: Iterable[str]) -> list[int]:
    """The base offsets of the segments whose files have these names, in their order."""
    return [int(name[:20]) for name in names if name.endswith(LOG_SUFFIX) and name[: -len(LOG_SUFFIX)].isdecimal()]


class Slicing(NamedTuple):
    """Reads of at least `bytes_min` bytes give slices, which may be used while `is_unchanged()`."""

    bytes_min: int
    is_unchanged: Callable[[], bool]


class TimestampOffset(NamedTuple):
    """A record that was found by its timestamp; the epoch is -1 if unknown."""

    timestamp: int
    offset: int
    leader_epoch: int


class Segment:
    """Batches from `base_offset` up to `next_offset`: the file of batches and its indexes.

    Only the last segment of a log takes appends. The positions of the last few hundred appended batches are kept, so
    that a read near the end needs one bisection instead of an index look-up and a scan.
    """

    __slots__ = (
        "_directory",
        "_disk",
        "_file",
        "_indexes",
        "_is_pinned",
        "_is_rebuilt",
        "_recent_last_offsets",
        "_recent_positions",
        "_suffix",
        "_warming",
        "base_offset",
        "first_timestamp",
        "max_timestamp",
        "max_timestamp_offset",
        "next_offset",
        "size_bytes",
        "transaction_index",
        "uncounted_bytes",
    )

    def __init__(self, disk: Disk, directory: str, base_offset: int, file: File, suffix: str = "") -> None:
        self.base_offset = base_offset
        self._file: File | None = file
        self.size_bytes = file.size()
        self.next_offset = base_offset
        self.first_timestamp = NO_TIMESTAMP
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset
        self._disk = disk
        self._directory = directory
        self._suffix = suffix
        self.transaction_index = TransactionIndex(disk, self._path(TRANSACTION_INDEX_SUFFIX))
        self._indexes: tuple[OffsetIndex, TimeIndex] | None = None
        self._is_rebuilt = False
        self._is_pinned = False
        self.uncounted_bytes = 0
        self._warming: tuple[int, asyncio.Future[None]] | None = None
        self._recent_last_offsets = array("q")
        self._recent_positions = array("q")

    @classmethod
    def create(cls, disk: Disk, directory: str, base_offset: int, suffix: str = "") -> Segment:
        """Make an empty segment; existing files of that name are emptied. On `OSError` no file is left.

        `suffix` is appended to the names of all its files.
        """
        path = segment_path(directory, base_offset, LOG_SUFFIX) + suffix
        segment = cls(disk, directory, base_offset, disk.open(path, create=True), suffix)
        try:
            if segment.file.size():
                segment.file.truncate(0)
            segment.size_bytes = 0
            segment.reset_indexes()
            segment.transaction_index.cut(0)
            segment.close_indexes()
        except OSError:
            segment.remove()
            raise
        return segment

    @classmethod
    def open(cls, disk: Disk, directory: str, base_offset: int) -> Segment:
        """Open an existing segment; its contents are not read."""
        return cls(disk, directory, base_offset, disk.open(segment_path(directory, base_offset, LOG_SUFFIX)))

    @property
    def file(self) -> File:
        """The file of batches, opened again if it was closed. `OSError`."""
        file = self._file
        if file is None:
            file = self._file = self._disk.open(self._path(LOG_SUFFIX))
        return file

    @property
    def is_torn(self) -> bool:
        """Whether the file is longer than what was appended: a failed write could not be cut off."""
        return self._file is not None and self._file.size() != self.size_bytes

    def close_idle_files(self) -> None:
        """Close the files until the next read; for a segment that is durable."""
        if self._is_pinned:
            return
        if self._file is not None:
            self._file.close()
            self._file = None
        self.close_indexes()

    @property
    def offset_index(self) -> OffsetIndex:
        """The offset index, loaded on first use."""
        return (self._indexes or self._load_indexes())[0]

    @property
    def time_index(self) -> TimeIndex:
        """The time index, loaded on first use."""
        return (self._indexes or self._load_indexes())[1]

    def is_index_full(self, index_bytes_max: int) -> bool:
        """Whether one of the indexes has reached its configured size."""
        offset_index, time_index = self._indexes or self._load_indexes()
        return (
            len(offset_index.positions) >= index_bytes_max // 8 or len(time_index.offsets) >= index_bytes_max // 12 - 1
        )

    def append(self, data: Buffer, headers: Sequence[BatchHeader], index_interval_bytes: int) -> None:
        """Write the batches of `data`, whose headers are given. On `OSError` the file is as before.

        A batch gets an index entry when more than `index_interval_bytes` were written since the last entry.
        Source: LogSegment.append of Apache Kafka.
        """
        file = self.file
        try:
            file.append((data,))
        except OSError:
            file.truncate(self.size_bytes)
            raise
        if self.size_bytes == 0:
            self.first_timestamp = headers[0].max_timestamp
        for header in headers:
            self._note(header, index_interval_bytes)
        recent = self._recent_positions
        if len(recent) > _RECENT_BATCHES_MAX:
            del recent[: _RECENT_BATCHES_MAX // 2], self._recent_last_offsets[: _RECENT_BATCHES_MAX // 2]

    def _note(self, header: BatchHeader, index_interval_bytes: int) -> None:
        """Take a batch that follows the known ones into the indexes and counters."""
        last_offset = header[0] + header[6]
        position = self.size_bytes
        if header.max_timestamp > self.max_timestamp and header.record_count:
            self.max_timestamp = header.max_timestamp
            self.max_timestamp_offset = last_offset
        if self.uncounted_bytes > index_interval_bytes:
            self.offset_index.add(last_offset, position)
            self.time_index.add(self.max_timestamp, self.max_timestamp_offset)
            self.uncounted_bytes = 0
        self._recent_last_offsets.append(last_offset)
        self._recent_positions.append(position)
        size = header.batch_length + LOG_OVERHEAD
        self.size_bytes = position + size
        self.uncounted_bytes += size
        self.next_offset = last_offset + 1

    def locate(self, offset: int) -> int:
        """Position of the first batch whose last offset is >= `offset`; the segment's size when there is none.

        `CorruptBatchError` when the scan meets bytes that are no batch.
        """
        if offset >= self.next_offset:
            return self.size_bytes
        recent = self._recent_last_offsets
        at = bisect_left(recent, offset)
        if at or (recent and self._recent_positions[0] == 0):
            return self._recent_positions[at]
        end, base_offset_max = self.offset_index.scan_start(offset)
        for position, header in scan_headers(self.file, end, self.size_bytes, LOOKUP_WINDOW_BYTES):
            if header.base_offset > base_offset_max:
                break
            if header.last_offset >= offset:
                return position
            end, base_offset_max = position + header.size_bytes, MAX_INT64
        if end == self.size_bytes:
            return end
        if base_offset_max != MAX_INT64 and self._rebuild_wrong_indexes():
            return self.locate(offset)
        raise CorruptBatchError(ErrorCode.CORRUPT_MESSAGE, f"{self.file.path} is damaged at position {end}")

    def read(
        self, offset: int, end_offset: int, max_bytes: int, min_one_batch: bool, *, allow_blocking_io: bool = True
    ) -> bytes:
        """Whole batches from the one that holds `offset`, all of whose offsets are below `end_offset`.

        Without `allow_blocking_io`, `ColdReadError` if the read would wait for the device.
        """
        return self._read_between(
            *self._bounds(offset, end_offset, max_bytes, allow_blocking_io), max_bytes, min_one_batch
        )

    def read_or_slice(
        self,
        offset: int,
        end_offset: int,
        max_bytes: int,
        min_one_batch: bool,
        slicing: Slicing,
        *,
        allow_blocking_io: bool,
    ) -> bytes | FileSlice:
        """Like `read`; if it is at least `slicing.bytes_min` bytes, as a slice of the file."""
        start, end = self._bounds(offset, end_offset, max_bytes, allow_blocking_io)
        if (length := min(end - start, max_bytes)) >= slicing.bytes_min:
            if length < end - start:
                length = self._whole_batches_between(start, start + length)
            if length >= slicing.bytes_min:
                return FileSlice(self._disk, self.file, start, length, slicing.is_unchanged)
        return self._read_between(start, end, max_bytes, min_one_batch)

    def _bounds(self, offset: int, end_offset: int, max_bytes: int, allow_blocking_io: bool) -> tuple[int, int]:
        """The positions where the batch that holds `offset` begins, and where those below `end_offset` end."""
        max_bytes = max(max_bytes, 0)
        if not allow_blocking_io:
            self._check_cached(self.offset_index.scan_start(offset)[0], LOOKUP_WINDOW_BYTES, max_bytes)
        start = self.locate(offset)
        end = self.locate(end_offset)
        if not allow_blocking_io:
            self._check_cached(start, min(max_bytes, end - start), HEADER_WINDOW_BYTES)
        return start, end

    def _read_between(self, start: int, end: int, max_bytes: int, min_one_batch: bool) -> bytes:
        max_bytes = max(max_bytes, 0)
        if end - start <= max_bytes:
            return self.file.pread(start, end - start) if end > start else b""
        data = self.file.pread(start, max_bytes)
        length = self._whole_batches(data, start)
        if length:
            return data if length == len(data) else data[:length]
        if not min_one_batch:
            return b""
        head = data if len(data) >= BATCH_HEADER_SIZE else self.file.pread(start, BATCH_HEADER_SIZE)
        header = read_header(head)
        check_header(header, self.size_bytes - start)
        return self.file.pread(start, header.size_bytes)

    def _check_cached(self, position: int, length: int, more: int) -> None:
        """Raise `ColdReadError` unless the bytes are cached; `more` bytes after them are read ahead then."""
        if self.size_bytes - position <= _SURELY_CACHED_BYTES:
            return
        if self._warming is not None and self._warming[0] == position and not self._warming[1].done():
            raise ColdReadError(self._warming[1])
        if not self.file.is_cached(position, min(length, self.size_bytes - position)):
            warming = self._disk.warm_soon(self.file, position, min(length + more, self.size_bytes - position))
            self._warming = position, warming
            raise ColdReadError(warming)

    def _whole_batches(self, data: bytes, start: int) -> int:
        """How many bytes of `data` are whole batches; it was read from the batch at position `start`."""
        known, is_exact = self._boundary_before(start, start + len(data))
        length = known - start
        while not is_exact and length + BATCH_HEADER_SIZE <= len(data):
            size = read_header(data, length).size_bytes
            if size < BATCH_HEADER_SIZE or length + size > len(data):
                break
            length += size
        return length

    def _whole_batches_between(self, start: int, end: int) -> int:
        """How many bytes from `start` to `end` are whole batches; reads few of them."""
        known, is_exact = self._boundary_before(start, end)
        if not is_exact:
            for position, header in scan_headers(self.file, known, end, LOOKUP_WINDOW_BYTES):
                known = position + header.size_bytes
        return known - start

    def _boundary_before(self, start: int, end: int) -> tuple[int, bool]:
        """The last known batch position from `start` to `end`, and whether no batch begins between it and `end`."""
        at = bisect_right(self._recent_positions, end)
        if at:
            return max(self._recent_positions[at - 1], start), at < len(self._recent_positions)
        known, base_offset_max = self.offset_index.position_at_or_before(end)
        if known > start and not self._is_batch_at(known, base_offset_max):
            self._rebuild_wrong_indexes()
            known = start
        return max(known, start), False

    def find_timestamp(self, timestamp: int, start_offset: int) -> tuple[int, BatchHeader] | None:
        """Position and header of the first batch with a timestamp >= `timestamp` and records from `start_offset` on."""
        offset, greatest = self.time_index.scan_start(timestamp)
        if not self._has_greatest(offset, greatest) and self._rebuild_wrong_indexes():
            offset, greatest = self.time_index.scan_start(timestamp)
        for position, header in scan_headers(self.file, self.locate(max(offset, start_offset)), self.size_bytes):
            if header.max_timestamp >= timestamp and header.last_offset >= start_offset and header.record_count:
                return position, header
        return None

    def largest_timestamp(self) -> int:
        """The greatest timestamp of its records, -1 when there is none.

        Compaction leaves batches without records: the time index does not name them, since Apache Kafka finds no
        timestamp there. Where all are such batches, this is the timestamp of the first, so that retention removes them.
        """
        self._load_max_timestamp()
        return self.earliest_timestamp() if self.max_timestamp == NO_TIMESTAMP else self.max_timestamp

    def _load_max_timestamp(self) -> None:
        if self.max_timestamp == NO_TIMESTAMP:
            self.max_timestamp, self.max_timestamp_offset = self.time_index.last()

    def become_active(self) -> bool:
        """Prepare for appends: read the indexes and the batches after them. False when the tail is damaged."""
        self.forget_recent()
        self.max_timestamp, self.max_timestamp_offset = self.time_index.last()
        last_indexed = self.offset_index.last_position()
        self.uncounted_bytes = self.size_bytes - last_indexed
        self.first_timestamp = NO_TIMESTAMP
        if not self.size_bytes:
            self.next_offset = self.base_offset
            return True
        position, end = last_indexed, last_indexed
        self.next_offset = self.base_offset
        for position, header in scan_headers(self.file, last_indexed, self.size_bytes):
            if not self.next_offset <= header.base_offset <= header.last_offset <= self.base_offset + MAX_INT32:
                return False
            self.next_offset = header.next_offset
            end = position + header.size_bytes
            if header.max_timestamp > self.max_timestamp and header.record_count:
                self.max_timestamp, self.max_timestamp_offset = header.max_timestamp, header.last_offset
        if end != self.size_bytes:
            return False
        self.first_timestamp = read_header(self.file.pread(0, BATCH_HEADER_SIZE)).max_timestamp
        return True

    def first_header(self) -> BatchHeader | None:
        """The header of the first batch, None when there is no whole one."""
        for _, header in scan_headers(self.file, 0, self.size_bytes, LOOKUP_WINDOW_BYTES):
            return header
        return None

    def boundary_at(self, offset: int) -> tuple[int, int]:
        """Where to cut so that no batch reaches `offset`: a position, and the next offset there.

        The latter is `offset`, or the base offset of the batch that holds it.
        """
        position = self.locate(offset)
        if position < self.size_bytes:
            offset = min(offset, read_header(self.file.pread(position, BATCH_HEADER_SIZE)).base_offset)
        return position, offset

    def truncate_to(self, position: int, offset: int) -> None:
        """Cut at a boundary of batches and prepare for appends; durable on return."""
        self.file.truncate(position)
        self.size_bytes = position
        self.offset_index.cut(position)
        self.time_index.cut(offset)
        self.become_active()
        self.next_offset = offset
        self.file.fsync()

    def finish(self) -> None:
        """Add the greatest timestamp to the time index and write the indexes: the segment is rolled or closed."""
        if self.size_bytes:
            self._load_max_timestamp()
            self.time_index.add(self.max_timestamp, self.max_timestamp_offset)
        self.save_indexes()
        self.forget_recent()

    def save_indexes(self) -> None:
        """Write the entries that are not in the index files yet."""
        self.offset_index.save()
        self.time_index.save()
        if self.size_bytes:
            self.offset_index.file.make()
            self.time_index.file.make()

    @property
    def has_unsynced_indexes(self) -> bool:
        """Whether an index file needs an fsync. Indexes that were not loaded do not."""
        files = [index.file for index in self._indexes or ()]
        return not (self.transaction_index.is_synced and all(file.is_synced for file in files))

    def unsynced_index_files(self) -> list[File]:
        """The index files that need an fsync; what is to be in the transaction index is written first. `OSError`."""
        files = (self.offset_index.file.unsynced(), self.time_index.file.unsynced(), self.transaction_index.unsynced())
        return [file for file in files if file is not None]

    def indexes_synced(self) -> None:
        """The index files were fsynced after they were last written."""
        self.offset_index.file.mark_synced()
        self.time_index.file.mark_synced()
        self.transaction_index.mark_synced()

    def earliest_timestamp(self) -> int:
        """The greatest timestamp of the first batch, -1 when there is none."""
        if self.first_timestamp == NO_TIMESTAMP and self.size_bytes >= BATCH_HEADER_SIZE:
            self.first_timestamp = read_header(self.file.pread(0, BATCH_HEADER_SIZE)).max_timestamp
        return self.first_timestamp

    def close(self) -> None:
        """Close the files."""
        if self._file is not None:
            self._file.close()
        self.close_indexes()

    def close_indexes(self) -> None:
        """Close the index files; they are opened again when they are needed."""
        if self._indexes is not None:
            for index in self._indexes:
                index.file.close()
        self.transaction_index.close()

    def remove(self, kinds: Sequence[str] = SEGMENT_SUFFIXES) -> None:
        """Close the segment and delete its files, or those of these kinds; the `.log` file is the first."""
        self.close()
        for path in self._existing_paths(kinds):
            self._disk.remove(path)

    def rename(self, suffix: str) -> None:
        """Close the segment and replace the suffix of its files' names."""
        self.close()
        for source, target in self.renames_to(suffix):
            self._disk.rename(source, target)
        self.renamed_to(suffix)

    def renames_to(self, suffix: str, kinds: Sequence[str] = SEGMENT_SUFFIXES) -> list[tuple[str, str]]:
        """The renames (source, target) that replace the suffix of the names of its files, or of those of these kinds.

        The `.log` file is the last: when it has the new name, the others have theirs.
        """
        return [(path, path.removesuffix(self._suffix) + suffix) for path in reversed(self._existing_paths(kinds))]

    def renamed_to(self, suffix: str) -> None:
        """The renames to this suffix are done."""
        self._suffix = suffix
        self._is_pinned = False
        self.transaction_index.path = self._path(TRANSACTION_INDEX_SUFFIX)
        if self._indexes is not None:
            self._indexes[0].file.path = self._path(INDEX_SUFFIX)
            self._indexes[1].file.path = self._path(TIME_INDEX_SUFFIX)

    def pin(self) -> None:
        """Open or load all that reads need, until `renamed_to`: meanwhile no file is opened by its name."""
        self._is_pinned = True
        self.file.size()
        self.offset_index.last_entry()
        self.transaction_index.read_in()

    def _existing_paths(self, kinds: Sequence[str]) -> list[str]:
        paths = [self._path(kind) for kind in kinds]
        return [path for path in paths if self._disk.exists(path)]

    def _path(self, kind: str) -> str:
        return segment_path(self._directory, self.base_offset, kind) + self._suffix

    def forget_recent(self) -> None:
        """Forget the positions of recent batches."""
        del self._recent_last_offsets[:], self._recent_positions[:]

    def _new_indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        return (
            OffsetIndex(self._disk, self._path(INDEX_SUFFIX), self.base_offset),
            TimeIndex(self._disk, self._path(TIME_INDEX_SUFFIX), self.base_offset),
        )

    def reset_indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        """Empty indexes in memory and on disk."""
        self.close_indexes()
        self._indexes = indexes = self._new_indexes()
        for index in indexes:
            index.file.entries_loaded(0, exact=False)
        return indexes

    def keep_indexes_below(self, offset: int) -> bool:
        """Load the index entries of batches below `offset`, all of which are durable; False if they cannot be right."""
        self.close_indexes()
        indexes = self._new_indexes()
        if not (indexes[0].load(self.size_bytes, offset) and indexes[1].load(self.size_bytes, offset)):
            return False
        self._indexes = indexes
        greatest, at = indexes[1].last()
        return self._is_batch_at(*indexes[0].last_entry()) and (greatest < 0 or self._has_greatest(at, greatest))

    def _load_indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        """Load the indexes; they are rebuilt from the batches if a file is missing or cannot be right."""
        indexes = self._new_indexes()
        if not (indexes[0].load(self.size_bytes) and indexes[1].load(self.size_bytes)):
            return self._rebuild_indexes()
        self._indexes = indexes
        if not self._do_tails_agree():
            self._rebuild_wrong_indexes()
        return self._indexes

    def _do_tails_agree(self) -> bool:
        """Whether the last entries belong to batches, and no batch after them has a greater timestamp.

        This detects indexes of another log, and indexes that have lost their end.
        """
        offset_index, time_index = self.offset_index, self.time_index
        greatest, offset = time_index.last()
        if not self._is_batch_at(*offset_index.last_entry()):
            return False
        if greatest >= 0 and not self._has_greatest(offset, greatest):
            return False
        tail = scan_headers(self.file, offset_index.last_position(), self.size_bytes, LOOKUP_WINDOW_BYTES)
        return all(header.max_timestamp <= greatest or not header.record_count for _, header in tail)

    def _is_batch_at(self, position: int, base_offset_max: int) -> bool:
        """Whether a batch begins there whose base offset is not above this one."""
        for _, header in scan_headers(self.file, position, self.size_bytes, BATCH_HEADER_SIZE):
            return header.base_offset <= base_offset_max
        return position == self.size_bytes

    def _has_greatest(self, offset: int, timestamp: int | None) -> bool:
        """Whether the batch that holds `offset` has this greatest timestamp; true for None."""
        if timestamp is None:
            return True
        start, _ = self.offset_index.scan_start(offset)
        for _, header in scan_headers(self.file, start, self.size_bytes, LOOKUP_WINDOW_BYTES):
            if header.last_offset >= offset:
                return header.max_timestamp == timestamp and header.base_offset <= offset
        return False

    def _rebuild_wrong_indexes(self) -> bool:
        """The indexes contradict the batches: rebuild them. Returns False if that was done before."""
        if self._is_rebuilt:
            return False
        _logger.warning("the indexes of %s do not agree with it and are made again", self.file.path)
        self._rebuild_indexes()
        return True

    def _rebuild_indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        self._is_rebuilt = True
        next_offset = self.next_offset
        indexes = self.reset_indexes()
        size = self.size_bytes
        self.size_bytes = self.uncounted_bytes = 0
        self.max_timestamp, self.max_timestamp_offset = NO_TIMESTAMP, self.base_offset
        offset = self.base_offset
        for _, header in scan_headers(self.file, 0, size):
            if not offset <= header.base_offset <= header.last_offset <= self.base_offset + MAX_INT32:
                break  # damaged
            self._note(header, 4096)
            offset = header.next_offset
        self.forget_recent()
        self.size_bytes = size
        self.next_offset = max(self.next_offset, next_offset)
        indexes[1].add(self.max_timestamp, self.max_timestamp_offset)
        return indexes
