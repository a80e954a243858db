"""The real file system behind the `Disk` port; open files are in `real_file.py`.

At most half of the descriptors that the process may have are for files of the disk; the rest is for connections.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import resource
import shutil
import stat
import sys
import threading
import weakref
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from ..blocking.thread_pool import ThreadPool
from ..ports import Buffer, File
from ..work_queue import WorkQueue
from .open_files import OpenFiles, is_out_of_files
from .pending_writes import PendingWrites
from .real_file import OpenFile, RealFile, resolve

_SYNC_THREADS, _READ_THREADS = 4, 4
_QUEUED_PER_THREAD = 2
"""How many jobs are begun for each thread, so that no thread waits for the next loop iteration."""
_SHARE_OF_FILES = 0.5
LOCK_FILE = ".lock"
"""The file of a directory that is locked while a process uses it."""


class RealDirLock:
    """An flock on `.lock` in the directory."""

    def __init__(self, fd: int) -> None:
        self._fd: int | None = fd

    def release(self) -> None:
        """Unlock the directory; releasing twice is harmless."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


class RealOrderedRenames:
    """See `ports.OrderedRenames`: done once, by a thread or by the caller of `finish`."""

    def __init__(
        self, directory: str, renames: Sequence[tuple[str, str]], files: OpenFiles, executor: ThreadPool
    ) -> None:
        self._directory = directory
        self._renames = renames
        self._lock = threading.Lock()
        self._is_over = False
        self._renamed = 0
        self._error: OSError | None = None
        self._files = files
        self._pinned = files.pin([path for rename in renames for path in rename])
        self._done = asyncio.get_running_loop().run_in_executor(executor, self._rename)
        self._done.add_done_callback(lambda _: self._update_names())

    @property
    def done(self) -> asyncio.Future[None]:
        """Is done when the new names are durable. It fails with `OSError` when the disk refuses."""
        return self._done

    def finish(self) -> None:
        """Do the renames now, or wait for the thread that does them. Raises `OSError`."""
        try:
            self._rename()
        finally:
            self._update_names()

    def _rename(self) -> None:
        with self._lock:
            if not self._is_over:
                self._is_over = True
                try:
                    for source, target in self._renames:
                        os.replace(source, target)
                        self._renamed += 1
                    _fsync_and_close(os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
                except OSError as error:
                    self._error = error
            if self._error is not None:
                raise self._error

    def _update_names(self) -> None:
        """Give the open files their new names. Called on the loop's thread."""
        renamed, self._renamed = self._renames[: self._renamed], 0
        for source, target in renamed:
            self._files.renamed(source, target)
        pinned, self._pinned = self._pinned, []
        self._files.unpin(pinned)


class _DirectorySync:
    """One fsync of a directory, and the futures that wait for it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.waiters: list[asyncio.Future[None]] = []


class RealDisk:
    """`Disk` on the operating system's files; with `is_read_only`, files are opened for reading."""

    def __init__(self, *, is_read_only: bool = False) -> None:
        self._is_read_only = is_read_only
        self._executor: ThreadPool | None = None
        self._readers: ThreadPool | None = None
        self._remover: ThreadPool | None = None
        self._writes = PendingWrites()
        self._sync_queue = WorkQueue(_QUEUED_PER_THREAD * _SYNC_THREADS)
        self._read_queue = WorkQueue(_QUEUED_PER_THREAD * _READ_THREADS)
        self._directory_syncs: dict[str, _DirectorySync] = {}
        """By path, those that have not begun."""
        self.open_files = OpenFiles(_share_of_files)
        _disks.add(self)

    def open(self, path: str, *, create: bool = False) -> RealFile:
        """Open for reading and writing. Raises `FileNotFoundError` unless it exists or `create`."""
        file = OpenFile(path, create=create, is_read_only=self._is_read_only)
        return RealFile(self.open_files.add(file), path, file.size_bytes)

    def exists(self, path: str) -> bool:
        """Whether there is a file or directory of that name."""
        return os.path.exists(path)

    def is_dir(self, path: str) -> bool:
        """Whether there is a directory of that name."""
        return os.path.isdir(path)

    def listdir(self, path: str) -> list[str]:
        """Names in the directory, sorted."""
        return sorted(os.listdir(path))

    def makedirs(self, path: str) -> None:
        """Make the directory and its parents; an existing one is fine."""
        os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        """Rename atomically, replacing an existing file. What waits to be done in a directory follows it."""
        self.open_files.keep(target)
        self._writes.renaming(source, target, lambda: os.replace(source, target))
        self.open_files.renamed(source, target)
        if (waiting := self._directory_syncs.pop(source, None)) is not None:
            waiting.path = target
            self._directory_syncs[target] = waiting

    def remove(self, path: str) -> None:
        """Remove a file."""
        self.open_files.keep(path)
        os.unlink(path)

    def remove_tree(self, path: str) -> None:
        """Remove a directory with all that is in it."""
        self.open_files.keep(path)
        self._writes.renaming(path, None, lambda: shutil.rmtree(path))

    def remove_soon(self, path: str) -> asyncio.Future[None]:
        """Remove a file or a directory in a thread of its own: large files take some tenths of a second."""
        if self._remover is None:
            self._remover = ThreadPool(1, "remove")
        self.open_files.keep(path)
        return asyncio.get_running_loop().run_in_executor(self._remover, _remove, path)

    def read_bytes(self, path: str, *, size_bytes_max: int | None = None) -> bytes:
        """The contents of a file; with `size_bytes_max`, only of a regular file of at most that size."""
        if size_bytes_max is None:
            with open(path, "rb") as file:
                return file.read()
        with open(path, "rb", opener=_open_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise OSError(errno.EINVAL, "it is not a regular file", path)
            data = file.read(size_bytes_max + 1)
        if len(data) > size_bytes_max:
            raise OSError(errno.EFBIG, f"it has more than {size_bytes_max} bytes", path)
        return data

    def write_atomic(self, path: str, data: Buffer) -> None:
        """Durably replace `path`: temporary file, fsync, rename, fsync of the directory."""
        write = self._writes.begin(path)
        try:
            self._writes.carry_out(write, _enter, lambda place: _replace(place, data))
        finally:
            self._writes.end(write)

    def write_atomic_soon(self, path: str, data: Buffer) -> asyncio.Future[None]:
        """Like `write_atomic`, in a thread; the future belongs to the running loop."""
        threads, content = self._threads(), bytes(data)
        write = self._writes.begin(path)
        work = partial(self._writes.carry_out, write, _enter, lambda place: _replace(place, content))
        try:
            done = asyncio.get_running_loop().run_in_executor(threads, work)
        except BaseException:
            self._writes.end(write)
            raise
        done.add_done_callback(lambda _: self._writes.end(write))
        return done

    def fsync_dir(self, path: str) -> None:
        """Make the names in the directory durable."""
        _fsync_and_close(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))

    def fsync_dir_soon(self, path: str) -> asyncio.Future[None]:
        """Like `fsync_dir`, in a thread. Raises `OSError` at once when there is no such directory.

        While it waits it needs no descriptor, and calls for the same directory share one fsync.
        """
        os.stat(path)
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self._directory_syncs.get(path)
        if waiting is None or waiting.waiters[0].get_loop() is not waiter.get_loop():
            waiting = self._directory_syncs[path] = _DirectorySync(path)
            waiting.waiters.append(waiter)
            self._sync_queue.submit(partial(self._begin_directory_sync, waiting))
        else:
            waiting.waiters.append(waiter)
        return waiter

    def _begin_directory_sync(self, sync: _DirectorySync) -> asyncio.Future[None] | None:
        threads = self._threads()
        try:
            fd = os.open(sync.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            if is_out_of_files(error):
                raise
            self._forget_directory_sync(sync)
            was_removed = isinstance(error, FileNotFoundError)  # with the names in it
            resolve(sync.waiters, None if was_removed else error)
            return None
        self._forget_directory_sync(sync)
        running = asyncio.get_running_loop().run_in_executor(threads, _fsync_and_close, fd)
        running.add_done_callback(lambda done: resolve(sync.waiters, done.exception()))
        return running

    def _forget_directory_sync(self, sync: _DirectorySync) -> None:
        if self._directory_syncs.get(sync.path) is sync:
            del self._directory_syncs[sync.path]

    def rename_in_order_soon(self, directory: str, renames: Sequence[tuple[str, str]]) -> RealOrderedRenames:
        """Rename in a thread: renames wait, too, while the file system commits what others have synced."""
        return RealOrderedRenames(directory, renames, self.open_files, self._threads())

    def fsync_soon(self, file: File) -> asyncio.Future[None]:
        """Like `file.fsync()`, in a thread; the future belongs to the running loop."""
        if not isinstance(file, RealFile):
            raise TypeError(f"{file!r} was not opened by this disk")
        return file.fsync_soon(self._sync_queue, self._threads)

    def warm_soon(self, file: File, offset: int, length: int) -> asyncio.Future[None]:
        """Read ahead in threads of their own, so that reads and fsyncs do not wait for each other."""
        if not isinstance(file, RealFile):
            raise TypeError(f"{file!r} was not opened by this disk")
        return file.warm_soon(offset, length, self._read_queue, self._reading_threads)

    def send(self, file: File, offset: int, length: int, transport: asyncio.Transport) -> int:
        """Send with sendfile(2), past the transport, from the page cache to the socket."""
        if not isinstance(file, RealFile):
            raise TypeError(f"{file!r} was not opened by this disk")
        return file.send(offset, length, transport.get_extra_info("socket").fileno())

    def _threads(self) -> ThreadPool:
        if self._executor is None:
            self._executor = ThreadPool(_SYNC_THREADS, "fsync")
        return self._executor

    def _reading_threads(self) -> ThreadPool:
        if self._readers is None:
            self._readers = ThreadPool(_READ_THREADS, "cold read")
        return self._readers

    def lock_dir(self, path: str) -> RealDirLock:
        """Take the exclusive lock `path/.lock`. Raises `BlockingIOError` when another process has it."""
        fd = os.open(os.path.join(path, LOCK_FILE), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise
        return RealDirLock(fd)

    def free_bytes(self, path: str) -> int:
        """Bytes left for this user on the file system of `path`."""
        stats = os.statvfs(path)
        return stats.f_bavail * stats.f_frsize

    def total_bytes(self, path: str) -> int:
        """Size of the file system of `path` in bytes."""
        stats = os.statvfs(path)
        return stats.f_blocks * stats.f_frsize


_disks: weakref.WeakSet[RealDisk] = weakref.WeakSet()


def _share_of_files() -> int:
    """How many descriptors one disk may have, as there may be several nodes in this process."""
    soft_limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return int(soft_limit * _SHARE_OF_FILES) // max(len(_disks), 1) if soft_limit >= 0 else sys.maxsize


def _open_without_waiting(path: str, flags: int) -> int:
    """For `open`: a FIFO that nobody writes to is opened at once."""
    return os.open(path, flags | os.O_NONBLOCK)


def _enter(path: str) -> tuple[int, str]:
    """A descriptor of the directory that the path is in, and the name in it."""
    directory, _, name = path.rpartition("/")
    return os.open(
        directory or ("/" if path.startswith("/") else "."), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    ), name


def _replace(place: tuple[int, str], data: Buffer) -> None:
    """Replace a file of a directory, whose descriptor is closed then; the directory's name may change meanwhile."""
    directory, name = place
    temporary = name + ".tmp"
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        fd = os.open(temporary, flags, 0o644, dir_fd=directory)
        try:
            with memoryview(data).cast("B") as view:
                written = 0
                while written < len(view):
                    written += os.write(fd, view[written:])
            os.fdatasync(fd)
        finally:
            os.close(fd)
        os.replace(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
        os.fsync(directory)
    finally:
        os.close(directory)


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        with suppress(FileNotFoundError):
            os.unlink(path)


def _fsync_and_close(fd: int) -> None:
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
