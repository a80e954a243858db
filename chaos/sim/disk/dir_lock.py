"""The lock of a directory of the simulated disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .sim_disk import SimDisk


class SimDirLock:
    """The lock of a directory. A crash releases it."""

    def __init__(self, disk: SimDisk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._incarnation = disk.incarnation

    def release(self) -> None:
        """Release the lock, unless a crash has."""
        if self._incarnation == self._disk.incarnation:
            self._disk.release_lock(self._path)
