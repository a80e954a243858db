"""A disk that can be full without a byte being used, to rehearse what a node does then.

Nothing is free, and whatever would take space fails as the operating system lets it fail: with ENOSPC.
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
    """Whether the disks of a process are full."""

    def __init__(self) -> None:
        self.is_full = False

    def check(self, path: str) -> None:
        """Raise ENOSPC while they are."""
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


class FillableFile(RealFile):
    """A file of a `FillableDisk`."""

    __slots__ = ("_fullness",)

    def __init__(self, file: RealFile, fullness: Fullness) -> None:
        super().__init__(file.reference(), file.path, file.size())
        self._fullness = fullness

    def append(self, buffers: Sequence[Buffer]) -> int:
        """See `ports.File`."""
        self._fullness.check(self.path)
        return super().append(buffers)

    def pwrite(self, offset: int, data: Buffer) -> None:
        """See `ports.File`. What is overwritten in place takes no space."""
        if offset + len(data) > self.size():
            self._fullness.check(self.path)
        super().pwrite(offset, data)


class FillableDisk(RealDisk):
    """A real disk that is full while `fullness` says so."""

    def __init__(self, fullness: Fullness) -> None:
        super().__init__()
        self._fullness = fullness

    def open(self, path: str, *, create: bool = False) -> RealFile:
        """See `ports.Disk`."""
        if create and not self.exists(path):
            self._fullness.check(path)
        return FillableFile(super().open(path, create=create), self._fullness)

    def write_atomic(self, path: str, data: Buffer) -> None:
        """See `ports.Disk`."""
        self._fullness.check(path)
        super().write_atomic(path, data)

    def write_atomic_soon(self, path: str, data: Buffer) -> asyncio.Future[None]:
        """See `ports.Disk`."""
        if not self._fullness.is_full:
            return super().write_atomic_soon(path, data)
        failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        failed.set_exception(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path))
        return failed

    def free_bytes(self, path: str) -> int:
        """See `ports.Disk`."""
        return 0 if self._fullness.is_full else super().free_bytes(path)
