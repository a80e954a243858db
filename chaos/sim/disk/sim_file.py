"""Open files of the disk in memory. Only some of them have a descriptor at a time, as with the real disk; who gets one
again must find the same file by its name."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ....runtime.files.open_files import Hold, NamedFile
from ....runtime.invariants import invariant
from ....runtime.ports import Buffer
from .inodes import Inode, Truncate, Write

if TYPE_CHECKING:
    from .sim_disk import SimDisk


class OpenInode(NamedFile):
    """A file that is open. `find` gives what has a name now."""

    __slots__ = ("_find", "_has_descriptor", "inode")

    def __init__(self, path: str, inode: Inode, find: Callable[[str], object]) -> None:
        super().__init__(path)
        self.inode = inode
        self._find = find
        self._has_descriptor = False

    @property
    def has_descriptor(self) -> bool:
        return self._has_descriptor

    def open(self) -> None:
        invariant(self._find(self.path) is self.inode, f"{self.path} is opened again as the file that it was")
        self._has_descriptor = True

    def give_back(self) -> bool:
        self._has_descriptor = False
        return True

    def close(self) -> None:
        self._has_descriptor = False


class SimFile:
    """A handle; see `ports.File`. Dead after a crash."""

    __slots__ = ("_disk", "_failed", "_held", "_incarnation", "_path", "inode")

    def __init__(self, disk: SimDisk, held: Hold[OpenInode], path: str) -> None:
        self._disk = disk
        self._held: Hold[OpenInode] | None = held
        self.inode = held.file().inode
        self._path = path
        self._incarnation = disk.incarnation
        self._failed = False

    @property
    def path(self) -> str:
        return self._path

    def size(self) -> int:
        return len(self._hold().file(is_used=False).inode.data)

    def append(self, buffers: Sequence[Buffer]) -> int:
        """Write at the end; on ENOSPC what fitted is there."""
        inode = self._live()
        return self._write(inode, len(inode.data), b"".join(buffers))

    def pread(self, offset: int, length: int) -> bytes:
        with memoryview(self._live().data) as view:
            return bytes(view[offset : offset + length])

    def is_cached(self, offset: int, length: int) -> bool:
        """Unless the disk is told otherwise; what was once warmed stays."""
        return self._disk.is_cached(self._live(), offset, length)

    def pwrite(self, offset: int, data: Buffer) -> None:
        self._write(self._live(), offset, bytes(data))

    def truncate(self, size: int) -> None:
        inode = self._live()
        self._disk.use_bytes(size - len(inode.data), self._path)
        inode.perform(Truncate(size))

    def fsync(self) -> None:
        """Durable at once, unless the disk fails it (EIO), which it then does for ever."""
        inode = self._live()
        self._disk.on_blocking("fsync", self._path)
        self._disk.check_fsync(self._path, self._failed)
        if self._disk.fsync_fails(self._path):
            self.fail_sync()
        inode.sync(list(inode.unsynced))

    def share(self) -> SimFile:
        """Like another `open`, but of a file that may have lost its name."""
        self._live()
        return SimFile(self._disk, self._hold(), self._path)

    def close(self) -> None:
        self._held = None

    def begin_sync(self) -> list[Write | Truncate]:
        """The operations that an fsync which starts now covers."""
        inode = self._live()
        self._disk.check_fsync(self._path, self._failed)
        return list(inode.unsynced)

    def finish_sync(self, operations: list[Write | Truncate]) -> None:
        if self._incarnation != self._disk.incarnation:
            return
        self._disk.check_dir(self._path)
        if self._disk.fsync_fails(self._path):
            self.fail_sync()
        self.inode.sync(operations)

    def fail_sync(self) -> None:
        self._failed = True
        self.inode.drop_dirty()
        raise self._disk.refusal(errno.EIO, "input/output error", self._path)

    def _write(self, inode: Inode, offset: int, data: bytes) -> int:
        growth = max(0, offset + len(data) - len(inode.data))
        fitting = len(data) - max(0, growth - self._disk.free_space)
        if fitting > 0:
            self._disk.use_bytes(max(0, offset + fitting - len(inode.data)), self._path)
            inode.perform(Write(offset, data[:fitting]))
        if fitting < len(data):
            raise self._disk.refusal(errno.ENOSPC, "no space left on device", self._path)
        return len(data)

    def _live(self) -> Inode:
        self._disk.check_dir(self._path)
        return self._hold().file().inode

    def _hold(self) -> Hold[OpenInode]:
        if self._held is None or self._incarnation != self._disk.incarnation:
            raise OSError(errno.EBADF, "file is closed", self._path)
        return self._held
