"""The real file system behind the `Disk` port; open files are in `real_file`.

No more than half of the files that the process may open are files of the disk's: the rest is for connections.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import resource
import shutil
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from ..ports import Buffer, File
from ..work_queue import WorkQueue
from .open_files import OpenFiles, is_out_of_files
from .real_file import OpenFile, RealFile, resolve

_SYNC_THREADS, _READ_THREADS = 4, 4
_QUEUED_PER_THREAD = 2
"""So many jobs are begun for each thread, lest one waits for the loop to turn."""
_SHARE_OF_FILES = 0.5


class RealDirLock:
    """An flock on `.lock` in the directory."""

    def __init__(self, fd: int) -> None:
        self._fd: int | None = fd

    def release(self) -> None:
        """Give the directory free; releasing twice is harmless."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


class _Turns:
    """The order of writes to one path: whoever comes after a later one has nothing left to do."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._issued = 0
        self._done = 0

    def next_ticket(self) -> int:
        """Called on the loop's thread only."""
        self._issued += 1
        return self._issued

    def is_last(self, ticket: int) -> bool:
        """Whether nobody came after; called on the loop's thread only."""
        return ticket == self._issued

    def take(self, ticket: int, write: Callable[[], None]) -> None:
        with self._lock:
            if ticket > self._done:
                write()
                self._done = ticket


class RealOrderedRenames:
    """See `ports.Rearrangement`: done by a thread, or by whoever cannot wait for that, once."""

    def __init__(
        self, directory: str, renames: Sequence[tuple[str, str]], files: OpenFiles, executor: ThreadPoolExecutor
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
        self._done.add_done_callback(lambda _: self._tell())

    @property
    def done(self) -> asyncio.Future[None]:
        return self._done

    def finish(self) -> None:
        """Wait for the thread, or be faster than it is."""
        try:
            self._rename()
        finally:
            self._tell()

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

    def _tell(self) -> None:
        """What is open has other names now; on the loop, once."""
        renamed, self._renamed = self._renames[: self._renamed], 0
        for source, target in renamed:
            self._files.renamed(source, target)
        pinned, self._pinned = self._pinned, []
        self._files.unpin(pinned)


class _DirectorySync:
    """Those who wait for one fsync of a directory."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.waiters: list[asyncio.Future[None]] = []


class RealDisk:
    """`Disk` on the operating system's files."""

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None
        self._readers: ThreadPoolExecutor | None = None
        self._remover: ThreadPoolExecutor | None = None
        self._turns: dict[str, _Turns] = {}
        """Of the paths that are replaced in threads."""
        self._sync_queue = WorkQueue(_QUEUED_PER_THREAD * _SYNC_THREADS)
        self._read_queue = WorkQueue(_QUEUED_PER_THREAD * _READ_THREADS)
        self._directory_syncs: dict[str, _DirectorySync] = {}
        """Those that have not begun."""
        self.open_files = OpenFiles(_share_of_files)
        _disks.add(self)

    def open(self, path: str, *, create: bool = False) -> RealFile:
        """Open for reading and writing; `FileNotFoundError` unless it exists or `create`."""
        file = OpenFile(path, create=create)
        return RealFile(self.open_files.add(file), path, file.size_bytes)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def listdir(self, path: str) -> list[str]:
        """Names in the directory, sorted."""
        return sorted(os.listdir(path))

    def makedirs(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        self.open_files.keep(target)
        os.replace(source, target)
        self.open_files.renamed(source, target)
        if (waiting := self._directory_syncs.pop(source, None)) is not None:
            waiting.path = target
            self._directory_syncs[target] = waiting

    def remove(self, path: str) -> None:
        self.open_files.keep(path)
        os.unlink(path)

    def remove_tree(self, path: str) -> None:
        self.open_files.keep(path)
        shutil.rmtree(path)

    def remove_soon(self, path: str) -> asyncio.Future[None]:
        """In a thread of its own: to give a large file's blocks back takes a disk some tenths of a second."""
        if self._remover is None:
            self._remover = ThreadPoolExecutor(1, thread_name_prefix="remove")
        self.open_files.keep(path)
        return asyncio.get_running_loop().run_in_executor(self._remover, _remove, path)

    def read_bytes(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def write_atomic(self, path: str, data: Buffer) -> None:
        """Durably replace `path`: temporary file, fsync, rename, fsync of the directory."""
        turns = self._turns.get(path)
        if turns is None:
            _replace(path, data)
        else:
            turns.take(turns.next_ticket(), lambda: _replace(path, data))

    def write_atomic_soon(self, path: str, data: Buffer) -> asyncio.Future[None]:
        """`write_atomic` in a thread; the future belongs to the running loop."""
        turns = self._turns.setdefault(path, _Turns())
        ticket, content = turns.next_ticket(), bytes(data)
        loop = asyncio.get_running_loop()
        done = loop.run_in_executor(self._threads(), lambda: turns.take(ticket, lambda: _replace(path, content)))
        done.add_done_callback(lambda _: self._turns.pop(path, None) if turns.is_last(ticket) else None)
        return done

    def fsync_dir(self, path: str) -> None:
        _fsync_and_close(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))

    def fsync_dir_soon(self, path: str) -> asyncio.Future[None]:
        """`fsync_dir` in a thread; `OSError` at once when there is no such directory.

        Those that wait for their turn need no descriptor, and those for the same directory have one turn.
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
        running = asyncio.get_running_loop().run_in_executor(self._threads(), _fsync_and_close, fd)
        running.add_done_callback(lambda done: resolve(sync.waiters, done.exception()))
        return running

    def _forget_directory_sync(self, sync: _DirectorySync) -> None:
        if self._directory_syncs.get(sync.path) is sync:
            del self._directory_syncs[sync.path]

    def rearrange_soon(self, directory: str, renames: Sequence[tuple[str, str]]) -> RealOrderedRenames:
        """In a thread: a rename too has to wait while the file system commits what others have synced."""
        return RealOrderedRenames(directory, renames, self.open_files, self._threads())

    def fsync_soon(self, file: File) -> asyncio.Future[None]:
        """`file.fsync()` in a thread; the future belongs to the running loop."""
        if not isinstance(file, RealFile):
            raise TypeError(f"{file!r} was not opened by this disk")
        return file.fsync_soon(self._sync_queue, self._threads())

    def warm_soon(self, file: File, offset: int, length: int) -> asyncio.Future[None]:
        """In threads of their own: a slow fsync shall not hold up readers, nor they it."""
        if not isinstance(file, RealFile):
            raise TypeError(f"{file!r} was not opened by this disk")
        if self._readers is None:
            self._readers = ThreadPoolExecutor(_READ_THREADS, thread_name_prefix="cold read")
        return file.warm_soon(offset, length, self._read_queue, self._readers)

    def send(self, file: File, offset: int, length: int, transport: asyncio.Transport) -> int:
        """sendfile(2), past the transport, from the page cache to the socket."""
        if not isinstance(file, RealFile):
            raise TypeError(f"{file!r} was not opened by this disk")
        return file.send(offset, length, transport.get_extra_info("socket").fileno())

    def _threads(self) -> ThreadPoolExecutor:
        if self._executor is None:
            self._executor = ThreadPoolExecutor(_SYNC_THREADS, thread_name_prefix="fsync")
        return self._executor

    def lock_dir(self, path: str) -> RealDirLock:
        """Take the exclusive lock `path/.lock`; `BlockingIOError` when another process holds it."""
        fd = os.open(os.path.join(path, ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise
        return RealDirLock(fd)

    def free_bytes(self, path: str) -> int:
        """Space left for this user on the file system of `path`."""
        stats = os.statvfs(path)
        return stats.f_bavail * stats.f_frsize

    def total_bytes(self, path: str) -> int:
        """Size of the file system of `path`."""
        stats = os.statvfs(path)
        return stats.f_blocks * stats.f_frsize


_disks: weakref.WeakSet[RealDisk] = weakref.WeakSet()


def _share_of_files() -> int:
    """How many files a disk may have open: there may be several nodes in this process."""
    soft_limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return int(soft_limit * _SHARE_OF_FILES) // max(len(_disks), 1) if soft_limit >= 0 else sys.maxsize


def _replace(path: str, data: Buffer) -> None:
    temporary = path + ".tmp"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        with memoryview(data).cast("B") as view:
            written = 0
            while written < len(view):
                written += os.write(fd, view[written:])
        os.fdatasync(fd)
    finally:
        os.close(fd)
    os.replace(temporary, path)
    _fsync_and_close(os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))


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
