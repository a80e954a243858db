"""The sparse indexes of a segment: offset to file position, and timestamp to offset.

An entry is made for a batch when more than `index.interval.bytes` were appended since the last one. Entries live in
arrays (bisected in C) and reach their file by appending, some at a time: a crash may lose the last ones, which
recovery makes again from the batches.
Files as in Apache Kafka: `.index` holds 4 bytes of offset relative to the segment's base and 4 of position;
`.timeindex` holds 8 bytes of timestamp and 4 of relative offset; big-endian.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable

from ...runtime.ports import Disk, File
from ..config import MAX_INT64

_SAVE_EVERY_ENTRIES = 64
_SWAP = sys.byteorder == "little"
_TIME_ENTRY = struct.Struct(">qI")


class IndexFile:
    """Keeps a file equal to entries that only grow or are cut at the end."""

    __slots__ = ("_disk", "_encode", "_entry_size", "_file", "_saved", "_synced", "path")

    def __init__(self, disk: Disk, path: str, entry_size: int, encode: Callable[[int], bytes]) -> None:
        self._disk = disk
        self.path = path
        self._entry_size = entry_size
        self._encode = encode
        self._file: File | None = None
        self._saved = 0
        self._synced = True

    def read(self) -> bytes | None:
        """The file's contents, None when it is missing."""
        return self._disk.read_bytes(self.path) if self._disk.exists(self.path) else None

    def entries_loaded(self, count: int, *, exact: bool) -> None:
        """The file holds `count` good entries, and nothing else if `exact`; without any, it need not be there."""
        self._saved = count
        if not exact and (count or self._file is not None or self._disk.exists(self.path)):
            self.entries_cut(count, force=True)

    def entry_added(self, count: int) -> None:
        """There are `count` entries now; some of them may wait in memory."""
        if count - self._saved >= _SAVE_EVERY_ENTRIES:
            self.save(count)

    def entries_cut(self, count: int, *, force: bool = False) -> None:
        """Only the first `count` entries are left."""
        if count < self._saved or force:
            self._saved = min(count, self._saved)
            self._synced = False
            self.open().truncate(self._saved * self._entry_size)

    def save(self, count: int) -> None:
        """Write the entries up to `count` that are not in the file yet."""
        if count > self._saved:
            file = self.open()
            self._synced = False
            try:
                file.append((self._encode(self._saved),))
            except OSError:
                file.truncate(self._saved * self._entry_size)
                raise
            self._saved = count

    def make(self) -> None:
        """Let there be a file, if only an empty one, as Apache Kafka has it."""
        if not self._saved and self._file is None and not self._disk.exists(self.path):
            self._synced = False
            self.open()

    def unsynced(self) -> File | None:
        """The file, if it needs an fsync."""
        return None if self._synced else self.open()

    def mark_synced(self) -> None:
        self._synced = True

    def open(self) -> File:
        """The open file, made if it is not there."""
        if self._file is None:
            self._file = self._disk.open(self.path, create=True)
        return self._file

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _is_sorted(values: array[int]) -> bool:
    as_list = values.tolist()
    return as_list == sorted(as_list)  # in C, and linear where it is so


def _count_growing(values: array[int], limit: int) -> int:
    """How many at the beginning are each greater than the one before, and below `limit`."""
    before = -1
    for count, value in enumerate(values):
        if not before < value < limit:
            return count
        before = value
    return len(values)


class OffsetIndex:
    """Last offset of a batch to the batch's position, for some batches."""

    __slots__ = ("_base_offset", "file", "offsets", "positions")

    def __init__(self, disk: Disk, path: str, base_offset: int) -> None:
        self._base_offset = base_offset
        self.offsets = array("I")
        self.positions = array("I")
        self.file = IndexFile(disk, path, 8, self._encode)

    def load(self, log_size_bytes: int, end_offset: int | None = None) -> bool:
        """Take the file's contents; False (and empty) unless they can belong to a log of that size.

        With `end_offset` only entries of batches below it; what follows these in the file may be anything.
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
        self.offsets.append(last_offset - self._base_offset)
        self.positions.append(position)
        self.file.entry_added(len(self.positions))

    def scan_start(self, offset: int) -> tuple[int, int]:
        """A batch position from which the first batch with last offset >= `offset` is soon found, and what shows that
        it is one: the batch there begins at or before this offset."""
        relative = offset - self._base_offset
        at = bisect_left(self.offsets, relative)
        if at == len(self.offsets) or self.offsets[at] != relative:
            at -= 1
        return self._entry(at) if at >= 0 else (0, MAX_INT64)

    def position_at_or_before(self, position: int) -> tuple[int, int]:
        """The greatest known batch position <= `position` (0 is always one), and what shows it, as in `scan_start`."""
        at = bisect_right(self.positions, position) - 1
        return self._entry(at) if at >= 0 else (0, MAX_INT64)

    def last_entry(self) -> tuple[int, int]:
        """The last batch position that is known, and what shows it, as in `scan_start`."""
        return self._entry(-1) if self.positions else (0, MAX_INT64)

    def _entry(self, at: int) -> tuple[int, int]:
        return self.positions[at], self._base_offset + self.offsets[at]

    def last_position(self) -> int:
        return self.positions[-1] if self.positions else 0

    def cut(self, position: int) -> None:
        """Forget the batches from `position` on."""
        at = bisect_left(self.positions, position)
        del self.offsets[at:], self.positions[at:]
        self.file.entries_cut(at)

    def save(self) -> None:
        self.file.save(len(self.positions))

    def _encode(self, start: int) -> bytes:
        flat = array("I", bytes(8 * (len(self.positions) - start)))
        flat[0::2] = self.offsets[start:]
        flat[1::2] = self.positions[start:]
        if _SWAP:
            flat.byteswap()
        return flat.tobytes()


class TimeIndex:
    """A timestamp and the last offset of the first batch that reached it; both grow strictly."""

    __slots__ = ("_base_offset", "file", "offsets", "timestamps")

    def __init__(self, disk: Disk, path: str, base_offset: int) -> None:
        self._base_offset = base_offset
        self.timestamps = array("q")
        self.offsets = array("I")
        self.file = IndexFile(disk, path, 12, self._encode)

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
        """Note the greatest timestamp so far, unless it is noted already."""
        if timestamp > (self.timestamps[-1] if self.timestamps else -1):
            self.timestamps.append(timestamp)
            self.offsets.append(offset - self._base_offset)
            self.file.entry_added(len(self.timestamps))

    def scan_start(self, timestamp: int) -> tuple[int, int | None]:
        """An offset such that no batch before its batch reaches `timestamp`, and the greatest timestamp that its batch
        must have if that is so, None where nothing is noted."""
        at = bisect_right(self.timestamps, timestamp) - 1
        if at < 0:
            return self._base_offset, None
        return self._base_offset + self.offsets[at], self.timestamps[at]

    def last(self) -> tuple[int, int]:
        """Greatest timestamp noted and its batch's last offset; (-1, base offset) when there is none."""
        if not self.timestamps:
            return -1, self._base_offset
        return self.timestamps[-1], self._base_offset + self.offsets[-1]

    def cut(self, offset: int) -> None:
        """Forget the batches from `offset` on."""
        at = bisect_left(self.offsets, max(offset - self._base_offset, 0))
        del self.timestamps[at:], self.offsets[at:]
        self.file.entries_cut(at)

    def save(self) -> None:
        self.file.save(len(self.timestamps))

    def _encode(self, start: int) -> bytes:
        pairs = zip(self.timestamps[start:], self.offsets[start:])
        return b"".join(_TIME_ENTRY.pack(timestamp, offset) for timestamp, offset in pairs)
