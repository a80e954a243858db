"""The sparse indexes of a segment: offset to file position, and timestamp to offset.

A batch gets an entry when more than `index.interval.bytes` were appended since the last entry. Entries are kept in
arrays and appended to their file some at a time. A crash may lose the last ones; recovery makes them again from the
batches. While the disk is full they wait in memory until `save`: the batches that they belong to are in the log
already. The files are Apache Kafka's: an entry of `.index` has 4 bytes of offset relative to the segment's base offset
and 4 of position, one of `.timeindex` 8 bytes of timestamp and 4 of relative offset, big-endian.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable

from ...runtime.invariants import sometimes
from ...runtime.ports import Disk, File
from ..config import MAX_INT64
from ..errors import is_no_space

_SAVE_EVERY_ENTRIES = 64
_SWAP = sys.byteorder == "little"
_TIME_ENTRY = struct.Struct(">qI")


class IndexFile:
    """The file of an index, whose entries are only added or cut at the end."""

    __slots__ = ("_disk", "_entry_size", "_file", "_saved", "_synced", "path")

    def __init__(self, disk: Disk, path: str, entry_size: int) -> None:
        self._disk = disk
        self.path = path
        self._entry_size = entry_size
        self._file: File | None = None
        self._saved = 0
        self._synced = True

    def read(self) -> bytes | None:
        """The file's contents, None when it is missing."""
        return self._disk.read_bytes(self.path) if self._disk.exists(self.path) else None

    def entries_loaded(self, count: int, *, exact: bool) -> None:
        """The file has `count` valid entries, and nothing after them if `exact`; without entries it may be missing."""
        self._saved = count
        if not exact and (count or self._file is not None or self._disk.exists(self.path)):
            self.entries_cut(count, force=True)

    def entry_added(self, count: int, encode: Callable[[int], bytes]) -> None:
        """There are `count` entries now; some of them may not be written yet. `encode` as in `save`.

        `OSError` when the disk has failed; when it is full, the entries are written later.
        """
        if count - self._saved < _SAVE_EVERY_ENTRIES:
            return
        try:
            self.save(count, encode)
        except OSError as error:
            if not is_no_space(error):
                raise
            sometimes(True, "index entries waited in memory for space on the disk")

    def entries_cut(self, count: int, *, force: bool = False) -> None:
        """Only the first `count` entries are left."""
        if count < self._saved or force:
            self._saved = min(count, self._saved)
            self._synced = False
            self.open().truncate(self._saved * self._entry_size)

    def save(self, count: int, encode: Callable[[int], bytes]) -> None:
        """Write the entries up to `count` that are not in the file yet; `encode` gives all from one of them on.

        On `OSError` the file is as before.
        """
        if count > self._saved:
            file = self.open()
            self._synced = False
            try:
                file.append((encode(self._saved),))
            except OSError:
                file.truncate(self._saved * self._entry_size)
                raise
            self._saved = count

    def make(self) -> None:
        """Make the file if it is missing, as Apache Kafka has one even without entries."""
        if not self._saved and self._file is None and not self._disk.exists(self.path):
            self._synced = False
            self.open()

    @property
    def is_synced(self) -> bool:
        """Whether the file needs no fsync."""
        return self._synced

    def unsynced(self) -> File | None:
        """The file, if it needs an fsync."""
        return None if self._synced else self.open()

    def mark_synced(self) -> None:
        """The file was fsynced after its last change."""
        self._synced = True

    def open(self) -> File:
        """The open file, made if it is not there."""
        if self._file is None:
            self._file = self._disk.open(self.path, create=True)
        return self._file

    def close(self) -> None:
        """Release the descriptor; the file is opened again when it is needed."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _is_sorted(values: array[int]) -> bool:
    as_list = values.tolist()
    return as_list == sorted(as_list)  # `sorted` takes linear time if they are


def _count_growing(values: array[int], limit: int) -> int:
    """How many of the first values are each greater than the one before, and below `limit`."""
    before = -1
    for count, value in enumerate(values):
        if not before < value < limit:
            return count
        before = value
    return len(values)


class OffsetIndex:
    """For some batches: the last offset and the position in the file."""

    __slots__ = ("_base_offset", "file", "offsets", "positions")

    def __init__(self, disk: Disk, path: str, base_offset: int) -> None:
        self._base_offset = base_offset
        self.offsets = array("I")
        self.positions = array("I")
        self.file = IndexFile(disk, path, 8)

    def load(self, log_size_bytes: int, end_offset: int | None = None) -> bool:
        """Read the file; returns False, and stays empty, if it cannot be the index of a log of that size.

        With `end_offset` only the entries of batches below it are taken; what follows them in the file is ignored.
        """
        data = self.file.read()
        if data is None:
            return False
        flat = array("I", data[: len(data) // 8 * 8])
        if _SWAP:
            flat.byteswap()
        offsets, positions = flat[0::2], flat[1::2]
        while positions and positions[-1] == 0:  # Apache Kafka preallocates the file of its active segment
            offsets.pop()
            positions.pop()
        if end_offset is not None:
            keep = _count_growing(offsets, end_offset - self._base_offset)
            del offsets[keep:], positions[keep:]
        if positions and (positions[-1] >= log_size_bytes or not (_is_sorted(offsets) and _is_sorted(positions))):
            return False
        self.offsets, self.positions = offsets, positions
        self.file.entries_loaded(len(positions), exact=len(data) == 8 * len(positions))
        return True

    def add(self, last_offset: int, position: int) -> None:
        """Add the entry of a batch, which comes after all others."""
        self.offsets.append(last_offset - self._base_offset)
        self.positions.append(position)
        self.file.entry_added(len(self.positions), self._encode)

    def scan_start(self, offset: int) -> tuple[int, int]:
        """Where to begin a scan for the first batch with last offset >= `offset`: a position, and an upper bound.

        A batch at that position has a base offset that is not above the bound; else the index is wrong.
        """
        relative = offset - self._base_offset
        at = bisect_left(self.offsets, relative)
        if at == len(self.offsets) or self.offsets[at] != relative:
            at -= 1
        return self._entry(at) if at >= 0 else (0, MAX_INT64)

    def position_at_or_before(self, position: int) -> tuple[int, int]:
        """The greatest known position of a batch that is not above `position`, and a bound as in `scan_start`."""
        at = bisect_right(self.positions, position) - 1
        return self._entry(at) if at >= 0 else (0, MAX_INT64)

    def last_entry(self) -> tuple[int, int]:
        """The greatest known position of a batch, and a bound as in `scan_start`."""
        return self._entry(-1) if self.positions else (0, MAX_INT64)

    def _entry(self, at: int) -> tuple[int, int]:
        return self.positions[at], self._base_offset + self.offsets[at]

    def last_position(self) -> int:
        """The greatest known position of a batch."""
        return self.positions[-1] if self.positions else 0

    def cut(self, position: int) -> None:
        """Forget the batches from `position` on."""
        at = bisect_left(self.positions, position)
        del self.offsets[at:], self.positions[at:]
        self.file.entries_cut(at)

    def save(self) -> None:
        """Write the entries that are not in the file yet."""
        self.file.save(len(self.positions), self._encode)

    def _encode(self, start: int) -> bytes:
        flat = array("I", bytes(8 * (len(self.positions) - start)))
        flat[0::2] = self.offsets[start:]
        flat[1::2] = self.positions[start:]
        if _SWAP:
            flat.byteswap()
        return flat.tobytes()


class TimeIndex:
    """Timestamps, each with the last offset of the first batch that reached it; both grow strictly."""

    __slots__ = ("_base_offset", "file", "offsets", "timestamps")

    def __init__(self, disk: Disk, path: str, base_offset: int) -> None:
        self._base_offset = base_offset
        self.timestamps = array("q")
        self.offsets = array("I")
        self.file = IndexFile(disk, path, 12)

    def load(self, log_size_bytes: int, end_offset: int | None = None) -> bool:
        """As `OffsetIndex.load` does."""
        data = self.file.read()
        if data is None:
            return False
        whole = data[: len(data) // 12 * 12]
        entries = list(_TIME_ENTRY.iter_unpack(whole))
        while len(entries) > 1 and entries[-1][0] == 0:
            entries.pop()
        if entries == [(0, 0)] and len(whole) > 12:
            entries = []
        timestamps = array("q", [timestamp for timestamp, _ in entries])
        offsets = array("I", [offset for _, offset in entries])
        if end_offset is not None:
            keep = _count_growing(offsets, end_offset - self._base_offset)
            del timestamps[keep:], offsets[keep:]
        if entries and (log_size_bytes == 0 or not (_is_sorted(timestamps) and _is_sorted(offsets))):
            return False
        self.timestamps, self.offsets = timestamps, offsets
        self.file.entries_loaded(len(offsets), exact=len(data) == 12 * len(offsets))
        return True

    def add(self, timestamp: int, offset: int) -> None:
        """Add the greatest timestamp so far, unless there is an entry with it."""
        if timestamp > (self.timestamps[-1] if self.timestamps else -1):
            self.timestamps.append(timestamp)
            self.offsets.append(offset - self._base_offset)
            self.file.entry_added(len(self.timestamps), self._encode)

    def scan_start(self, timestamp: int) -> tuple[int, int | None]:
        """Where to begin a scan for `timestamp`: no batch before the one that holds the returned offset reaches it.

        The second value is the greatest timestamp that this batch must have; None if there is no entry.
        """
        at = bisect_right(self.timestamps, timestamp) - 1
        if at < 0:
            return self._base_offset, None
        return self._base_offset + self.offsets[at], self.timestamps[at]

    def last(self) -> tuple[int, int]:
        """The greatest timestamp and the last offset of its batch; (-1, base offset) without entries."""
        if not self.timestamps:
            return -1, self._base_offset
        return self.timestamps[-1], self._base_offset + self.offsets[-1]

    def cut(self, offset: int) -> None:
        """Forget the batches from `offset` on."""
        at = bisect_left(self.offsets, max(offset - self._base_offset, 0))
        del self.timestamps[at:], self.offsets[at:]
        self.file.entries_cut(at)

    def save(self) -> None:
        """Write the entries that are not in the file yet."""
        self.file.save(len(self.timestamps), self._encode)

    def _encode(self, start: int) -> bytes:
        pairs = zip(self.timestamps[start:], self.offsets[start:])
        return b"".join(_TIME_ENTRY.pack(timestamp, offset) for timestamp, offset in pairs)
