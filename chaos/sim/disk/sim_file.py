"""Open files of the simulated disk.

Only some of them have a descriptor at a time, as on the real disk. A file that gets a descriptor again must be the same
file under its name.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ....runtime.files.open_files import FileReference, NamedFile
from ....runtime.invariants import invariant
from ....runtime.ports import Buffer
from .inodes import Inode, Truncate, Write
from .interruption import Operation

if TYPE_CHECKING:
    from .sim_disk import SimDisk


class OpenInode(NamedFile):
    """An inode with a descriptor or without; `find` gives the inode that has a path now. See `NamedFile`."""

    __slots__ = ("_find", "_has_descriptor", "inode")

    def __init__(self, path: str, inode: Inode, find: Callable[[str], object]) -> None:
        super().__init__(path)
        self.inode = inode
        self._find = find
        self._has_descriptor = False

    @property
    def has_descriptor(self) -> bool:
        """See `NamedFile`."""
        return self._has_descriptor

    def open(self) -> None:
        """See `NamedFile`."""
        invariant(self._find(self.path) is self.inode, f"{self.path} is opened again as the file that it was")
        self._has_descriptor = True

    def yield_descriptor(self) -> bool:
        """See `NamedFile`."""
        self._has_descriptor = False
        return True

    def close(self) -> None:
        """See `NamedFile`."""
        self._has_descriptor = False


class SimFile:
    """An open file; see `ports.File`. Every operation after a crash fails."""

    __slots__ = ("_disk", "_fsync_failed", "_handle", "_incarnation", "_path", "inode")

    def __init__(self, disk: SimDisk, handle: FileReference[OpenInode], path: str) -> None:
        self._disk = disk
        self._handle: FileReference[OpenInode] | None = handle
        self.inode = handle.file().inode
        self._path = path
        self._incarnation = disk.incarnation
        self._fsync_failed = False

    @property
    def path(self) -> str:
        """The path that the file was opened with."""
        return self._path

    def size(self) -> int:
        """The size in bytes."""
        return len(self._require_handle().file(is_used=False).inode.data)

    def append(self, buffers: Sequence[Buffer]) -> int:
        """Write at the end. On ENOSPC the bytes that fit are written."""
        inode = self._open_inode()
        return self._write(inode, len(inode.data), b"".join(buffers))

    def pread(self, offset: int, length: int) -> bytes:
        """The bytes of a range, fewer at the end of the file."""
        with memoryview(self._open_inode().data) as view:
            return bytes(view[offset : offset + length])

    def is_cached(self, offset: int, length: int) -> bool:
        """Whether the range is in the page cache; see `SimDisk.make_cold`."""
        return self._disk.is_cached(self._open_inode(), offset, length)

    def pwrite(self, offset: int, data: Buffer) -> None:
        """Write at an offset."""
        self._write(self._open_inode(), offset, bytes(data))

    def truncate(self, size: int) -> None:
        """Cut the file, or fill it with zeros up to the size."""
        inode = self._open_inode()
        self._disk.before_operation(self._path, Operation.DATA)
        self._disk.use_bytes(size - len(inode.data), self._path)
        inode.perform(Truncate(size))

    def fsync(self) -> None:
        """Make everything durable at once. After a first EIO every later fsync fails too."""
        inode = self._open_inode()
        self._disk.on_blocking("fsync", self._path)
        self._disk.check_fsync(self._path, self._fsync_failed)
        if self._disk.fsync_fails(self._path):
            self.fail_sync()
        self._disk.before_operation(self._path, Operation.DATA)
        if not self._disk.lies:
            inode.sync(list(inode.unsynced))

    def share(self) -> SimFile:
        """A second handle of the file, which may have lost its name."""
        self._open_inode()
        return SimFile(self._disk, self._require_handle(), self._path)

    def close(self) -> None:
        """Close this handle."""
        self._handle = None

    def begin_sync(self) -> list[Write | Truncate]:
        """The operations that an fsync which starts now covers."""
        inode = self._open_inode()
        self._disk.check_fsync(self._path, self._fsync_failed)
        return list(inode.unsynced)

    def finish_sync(self, operations: list[Write | Truncate]) -> None:
        """Make the operations durable that `begin_sync` gave."""
        if self._incarnation != self._disk.incarnation:
            return
        self._disk.check_dir(self._path)
        if self._disk.fsync_fails(self._path):
            self.fail_sync()
        self._disk.before_operation(self._path, Operation.DATA)
        if not self._disk.lies:
            self.inode.sync(operations)

    def fail_sync(self) -> None:
        """Lose the dirty pages and raise EIO."""
        self._fsync_failed = True
        self.inode.drop_dirty_pages()
        self._disk.check_fsync(self._path, failed=True)

    def _write(self, inode: Inode, offset: int, data: bytes) -> int:
        self._disk.before_operation(self._path, Operation.DATA)
        growth = max(0, offset + len(data) - len(inode.data))
        fitting = len(data) - max(0, growth - self._disk.free_space)
        if fitting > 0:
            self._disk.use_bytes(max(0, offset + fitting - len(inode.data)), self._path)
            inode.perform(Write(offset, data[:fitting]))
        if fitting < len(data):
            raise self._disk.fault_error(errno.ENOSPC, "no space left on device", self._path)
        return len(data)

    def _open_inode(self) -> Inode:
        self._disk.check_dir(self._path)
        return self._require_handle().file().inode

    def _require_handle(self) -> FileReference[OpenInode]:
        if self._handle is None or self._incarnation != self._disk.incarnation:
            raise OSError(errno.EBADF, "file is closed", self._path)
        return self._handle
