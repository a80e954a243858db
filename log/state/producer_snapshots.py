"""The producer snapshot files of a partition's directory."""

from __future__ import annotations

import logging
from bisect import bisect_right, insort
from collections.abc import Iterable

from ...runtime.invariants import sometimes
from ...runtime.ports import Disk, File
from ..segment.segment import SNAPSHOT_SUFFIX, segment_path
from .producer_state import CorruptSnapshotError, ProducerStateManager

_logger = logging.getLogger(__name__)


class ProducerSnapshots:
    """The snapshots by offset; each has the state of the producers before the batch at its offset."""

    def __init__(self, disk: Disk, directory: str, offsets: Iterable[int]) -> None:
        self._disk = disk
        self._directory = directory
        self._offsets = sorted(offsets)
        self._unsynced: dict[int, File] = {}

    @property
    def offsets(self) -> tuple[int, ...]:
        """The offsets of all snapshots, in order."""
        return tuple(self._offsets)

    @property
    def latest_offset(self) -> int:
        """Offset of the newest snapshot, -1 without one."""
        return self._offsets[-1] if self._offsets else -1

    def latest_at_or_below(self, offset: int) -> int:
        """Offset of the newest snapshot that is not later than `offset`, -1 without one."""
        at = bisect_right(self._offsets, offset)
        return self._offsets[at - 1] if at else -1

    def write(self, offset: int, content: bytes) -> None:
        """Write the snapshot at `offset`, which is durable after `sync`. On `OSError` there is none."""
        file = self._disk.open(self._path(offset), create=True)
        if offset in self._unsynced:
            self._unsynced[offset].close()
        self._unsynced[offset] = file
        try:
            file.truncate(0)
            file.append((content,))
        except OSError:
            self._remove(offset)
            raise
        if offset not in self._offsets:
            insort(self._offsets, offset)

    def sync(self) -> bool:
        """fsync the snapshots that need it; returns whether there were any."""
        written = bool(self._unsynced)
        for file in self._unsynced.values():
            file.fsync()
            file.close()
        self._unsynced.clear()
        return written

    def unsynced(self) -> dict[int, File]:
        """The files that `sync` would fsync, by offset."""
        return dict(self._unsynced)

    def synced(self, files: dict[int, File]) -> None:
        """These files of `unsynced` were fsynced."""
        for offset, file in files.items():
            if self._unsynced.get(offset) is file:
                del self._unsynced[offset]
                file.close()

    def load_latest(self, offset_max: int, producers: ProducerStateManager) -> int:
        """Load the newest valid snapshot at or before `offset_max`; returns its offset, or -1 with `producers` empty.

        Corrupt snapshots are removed.
        """
        producers.clear()
        for offset in reversed(self._offsets[: bisect_right(self._offsets, offset_max)]):
            try:
                producers.load_snapshot(self._disk.read_bytes(self._path(offset)))
                return offset
            except CorruptSnapshotError as error:
                sometimes(True, "a damaged producer snapshot was removed")
                _logger.warning("%s is removed: %s", self._path(offset), error)
                self._remove(offset)
            except FileNotFoundError:
                self._forget(offset)
        return -1

    def remove_after(self, offset: int) -> None:
        """Remove the snapshots at offsets greater than `offset`."""
        for later in self._offsets[bisect_right(self._offsets, offset) :]:
            self._remove(later)

    def remove_stray(self, segment_bases: Iterable[int]) -> None:
        """Remove the snapshots at whose offset no segment starts, except the newest."""
        for path in self.take_stray(segment_bases):
            self._disk.remove(path)

    def take_stray(self, segment_bases: Iterable[int]) -> list[str]:
        """Forget the snapshots that `remove_stray` would remove, and return the paths of their files."""
        bases = dict.fromkeys(segment_bases)
        stray = [offset for offset in self._offsets[:-1] if offset not in bases]
        for offset in stray:
            self._forget(offset)
        return [self._path(offset) for offset in stray if self._has_file(offset)]

    def close(self) -> None:
        """Close the files that were not fsynced."""
        for file in self._unsynced.values():
            file.close()
        self._unsynced.clear()

    def _remove(self, offset: int) -> None:
        self._forget(offset)
        if self._has_file(offset):
            self._disk.remove(self._path(offset))

    def _has_file(self, offset: int) -> bool:
        """Whether the file is there: a snapshot may be written while an older one of its name is being removed."""
        return self._disk.exists(self._path(offset))

    def _forget(self, offset: int) -> None:
        self._offsets = [kept for kept in self._offsets if kept != offset]
        if offset in self._unsynced:
            self._unsynced.pop(offset).close()

    def _path(self, offset: int) -> str:
        return segment_path(self._directory, offset, SNAPSHOT_SUFFIX)
