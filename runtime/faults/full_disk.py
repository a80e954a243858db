"""A disk that can be full without a byte being used, to rehearse what a node does then.

Whatever would take space fails as the operating system lets it fail: with ENOSPC. As on a real disk, what a node gives
back, such as the spare file of its metadata log, can be written again.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Sequence

from ..files.real_disk import RealDisk
from ..files.real_file import RealFile
from ..ports import Buffer


class Fullness:
    """Whether the disks of a process are full, and how much has been given back since."""

    def __init__(self) -> None:
        self._left_bytes: int | None = None

    @property
    def is_full(self) -> bool:
        """Whether they are."""
        return self._left_bytes is not None

    @is_full.setter
    def is_full(self, is_full: bool) -> None:
        if is_full != self.is_full:
            self._left_bytes = 0 if is_full else None

    def left_bytes(self, free_bytes: int) -> int:
        """How much is free, where a disk has so many bytes free in truth."""
        return free_bytes if self._left_bytes is None else min(self._left_bytes, free_bytes)

    def take(self, path: str, size_bytes: int) -> None:
        """Take so many bytes; less than none gives some back. Raises ENOSPC where there are too few."""
        if self._left_bytes is None:
            return
        if size_bytes > self._left_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        self._left_bytes -= size_bytes


class FillableFile(RealFile):
    """A file of a `FillableDisk`."""

    __slots__ = ("_fullness",)

    def __init__(self, file: RealFile, fullness: Fullness) -> None:
        super().__init__(file.reference(), file.path, file.size())
        self._fullness = fullness

    def append(self, buffers: Sequence[Buffer]) -> int:
        """See `ports.File`."""
        self._fullness.take(self.path, sum(map(len, buffers)))
        return super().append(buffers)

    def pwrite(self, offset: int, data: Buffer) -> None:
        """See `ports.File`. What is overwritten in place takes no space."""
        self._fullness.take(self.path, max(offset + len(data) - self.size(), 0))
        super().pwrite(offset, data)

    def truncate(self, size: int) -> None:
        """See `ports.File`."""
        self._fullness.take(self.path, size - self.size())
        super().truncate(size)


class FillableDisk(RealDisk):
    """A real disk that is full while `fullness` says so."""

    def __init__(self, fullness: Fullness) -> None:
        super().__init__()
        self._fullness = fullness

    def open(self, path: str, *, create: bool = False) -> RealFile:
        """See `ports.Disk`."""
        return FillableFile(super().open(path, create=create), self._fullness)

    def remove(self, path: str) -> None:
        """See `ports.Disk`."""
        size_bytes = _size_of(path)
        super().remove(path)
        self._fullness.take(path, -size_bytes)

    def write_atomic(self, path: str, data: Buffer) -> None:
        """See `ports.Disk`."""
        self._fullness.take(path, len(data))
        super().write_atomic(path, data)

    def write_atomic_soon(self, path: str, data: Buffer) -> asyncio.Future[None]:
        """See `ports.Disk`."""
        try:
            self._fullness.take(path, len(data))
        except OSError as error:
            failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            failed.set_exception(error)
            return failed
        return super().write_atomic_soon(path, data)

    def free_bytes(self, path: str) -> int:
        """See `ports.Disk`."""
        return self._fullness.left_bytes(super().free_bytes(path))


def _size_of(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
