"""The real file system behind the `Disk` port.

Writes are positioned (`pwritev` at the end that this handle knows), so a file has one handle that writes to it; any
number of others may read. Every write loops over short writes and over the kernel's limit of buffers a call.

`fsync_soon` runs `fdatasync` in a private thread, one at a time for each file. Calls that come while one is running
wait for the next, together: that is the group commit which makes small durable appends cheap.

After a failed fsync the kernel may have dropped the dirty pages and marked them clean, so a second fsync would lie
(PostgreSQL's "fsyncgate", 2018). A file whose fsync failed therefore fails every later fsync with the same error.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import resource
import shutil
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from . import page_cache
from .ports import Buffer, File

_IOV_MAX = min(os.sysconf("SC_IOV_MAX"), 1024)
_SYNC_THREADS, _READ_THREADS = 4, 4


class Descriptor:
    """An open descriptor, closed when the last of those who hold it lets it go."""

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        close(self.fd)


class RealFile:
    """An open file; see `ports.File`."""

    __slots__ = ("_held", "_path", "_reads_no_more", "_size", "_sync_error", "_sync_running", "_sync_waiters")

    def __init__(self, descriptor: Descriptor, path: str, size_bytes: int) -> None:
        self._held: Descriptor | None = descriptor
        self._path = path
        self._size = size_bytes
        self._reads_no_more = False
        self._sync_error: OSError | None = None
        self._sync_running = False
        self._sync_waiters: list[asyncio.Future[None]] = []

    @property
    def path(self) -> str:
        return self._path

    def size(self) -> int:
        """Length in bytes as this handle knows it."""
        return self._size

    def append(self, buffers: Sequence[Buffer]) -> int:
        """Write all of `buffers` at the end; on error `size()` tells how much of them was written."""
        start = self._size
        remaining = [memoryview(buffer).cast("B") for buffer in buffers if len(buffer)]
        while remaining:
            written = os.pwritev(self._descriptor(), remaining[:_IOV_MAX], self._size)
            self._size += written
            _drop_written(remaining, written)
        return self._size - start

    def pread(self, offset: int, length: int) -> bytes:
        """Up to `length` bytes from `offset`; fewer only at the end of the file."""
        data = os.pread(self._descriptor(), length, offset)
        if len(data) == length or not data:
            return data
        parts = [data]
        have = len(data)
        while have < length and (data := os.pread(self._descriptor(), length - have, offset + have)):
            parts.append(data)
            have += len(data)
        return b"".join(parts)

    def is_cached(self, offset: int, length: int) -> bool:
        """See `page_cache.is_cached`. From then on reads of this file wait for nothing that they did not ask for."""
        if not self._reads_no_more:
            page_cache.read_no_more_than_asked(self._descriptor())
            self._reads_no_more = True
        return page_cache.is_cached(self._descriptor(), offset, length)

    def warm_soon(self, offset: int, length: int, executor: ThreadPoolExecutor) -> asyncio.Future[None]:
        """`page_cache.warm` in a thread, on a descriptor of its own."""
        loop = asyncio.get_running_loop()
        fd = page_cache.open_again(self._descriptor())
        return loop.run_in_executor(executor, page_cache.warm, fd, offset, length)

    def send(self, offset: int, length: int, socket_fd: int) -> int:
        """Bytes that the non-blocking socket took; 0 when it is full."""
        try:
            sent = os.sendfile(socket_fd, self._descriptor(), offset, length)
        except BlockingIOError:
            return 0
        if not sent and length:
            raise OSError(errno.EIO, "the file ends before what is to be sent", self._path)
        return sent

    def pwrite(self, offset: int, data: Buffer) -> None:
        """Overwrite in place, extending the file where needed."""
        view = memoryview(data).cast("B")
        while view:
            written = os.pwrite(self._descriptor(), view, offset)
            offset += written
            view = view[written:]
            self._size = max(self._size, offset)

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""
        os.ftruncate(self._descriptor(), size)
        self._size = size

    def fsync(self) -> None:
        """Block until the contents are on the device."""
        if self._sync_error is not None:
            raise self._sync_error
        try:
            os.fdatasync(self._descriptor())
        except OSError as error:
            self._sync_error = error
            raise

    def share(self) -> RealFile:
        """See `ports.File`."""
        file = RealFile(self.descriptor(), self._path, self._size)
        file._reads_no_more = self._reads_no_more
        return file

    def close(self) -> None:
        """Release the descriptor; it is closed when no fsync under way, and nobody it is shared with, needs it."""
        self._held = None

    def fsync_soon(self, executor: ThreadPoolExecutor) -> asyncio.Future[None]:
        """Covers what was written before the call; see the module's text."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        if self._held is None:
            waiter.set_exception(OSError(errno.EBADF, "file is closed", self._path))
        elif self._sync_error is not None:
            waiter.set_exception(self._sync_error)
        else:
            self._sync_waiters.append(waiter)
            if not self._sync_running:
                self._start_sync(loop, executor, self._held)
        return waiter

    def _start_sync(
        self, loop: asyncio.AbstractEventLoop, executor: ThreadPoolExecutor, descriptor: Descriptor
    ) -> None:
        covered, self._sync_waiters = self._sync_waiters, []
        self._sync_running = True
        running = loop.run_in_executor(executor, os.fdatasync, descriptor.fd)  # held by `finish`

        def finish(done: asyncio.Future[None]) -> None:
            self._sync_running = False
            error = done.exception() if not done.cancelled() else OSError(errno.ECANCELED, "fsync cancelled")
            if isinstance(error, OSError):
                self._sync_error = error
            _resolve(covered, error)
            if self._sync_error is not None:
                _resolve(self._sync_waiters, self._sync_error)
            elif self._sync_waiters:
                self._start_sync(loop, executor, descriptor)

        running.add_done_callback(finish)

    def _descriptor(self) -> int:
        return self.descriptor().fd

    def descriptor(self) -> Descriptor:
        """What keeps the file open, for whoever holds it. `OSError` when this handle is closed."""
        if self._held is None:
            raise OSError(errno.EBADF, "file is closed", self._path)
        return self._held


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


class RealRearrangement:
    """See `ports.Rearrangement`: done by a thread, or by whoever cannot wait for that, once."""

    def __init__(self, directory: str, renames: Sequence[tuple[str, str]], executor: ThreadPoolExecutor) -> None:
        self._directory = directory
        self._renames = renames
        self._lock = threading.Lock()
        self._is_over = False
        self._error: OSError | None = None
        self._done = asyncio.get_running_loop().run_in_executor(executor, self.finish)

    @property
    def done(self) -> asyncio.Future[None]:
        return self._done

    def finish(self) -> None:
        """Wait for the thread, or be faster than it is."""
        with self._lock:
            if not self._is_over:
                self._is_over = True
                try:
                    for source, target in self._renames:
                        os.replace(source, target)
                    _fsync_and_close(os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
                except OSError as error:
                    self._error = error
            if self._error is not None:
                raise self._error


class RealDisk:
    """`Disk` on the operating system's files."""

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None
        self._readers: ThreadPoolExecutor | None = None
        self._remover: ThreadPoolExecutor | None = None
        self._turns: dict[str, _Turns] = {}
        """Of the paths that are replaced in threads."""

    def open(self, path: str, *, create: bool = False) -> RealFile:
        """Open for reading and writing; `FileNotFoundError` unless it exists or `create`."""
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        descriptor = Descriptor(os.open(path, flags, 0o644))
        return RealFile(descriptor, path, os.fstat(descriptor.fd).st_size)

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
        os.replace(source, target)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def remove_tree(self, path: str) -> None:
        shutil.rmtree(path)

    def remove_soon(self, path: str) -> asyncio.Future[None]:
        """In a thread of its own: to give a large file's blocks back takes a disk some tenths of a second."""
        if self._remover is None:
            self._remover = ThreadPoolExecutor(1, thread_name_prefix="remove")
        return asyncio.get_running_loop().run_in_executor(self._remover, _remove, path)

    def read_bytes(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def write_atomic(self, path: str, data: Buffer) -> None:
        """Durably replace `path`: temporary file, fsync, rename, fsync of the directory."""
        turns = self._turns.get(path)
        if turns is None:
            self._replace(path, data)
        else:
            turns.take(turns.next_ticket(), lambda: self._replace(path, data))

    def write_atomic_soon(self, path: str, data: Buffer) -> asyncio.Future[None]:
        """`write_atomic` in a thread; the future belongs to the running loop."""
        turns = self._turns.setdefault(path, _Turns())
        ticket, content = turns.next_ticket(), bytes(data)
        loop = asyncio.get_running_loop()
        done = loop.run_in_executor(self._threads(), lambda: turns.take(ticket, lambda: self._replace(path, content)))
        done.add_done_callback(lambda _: self._turns.pop(path, None) if turns.is_last(ticket) else None)
        return done

    def _replace(self, path: str, data: Buffer) -> None:
        temporary = path + ".tmp"
        file = self.open(temporary, create=True)
        try:
            file.truncate(0)
            file.append([data])
            file.fsync()
        finally:
            file.close()
        os.replace(temporary, path)
        self.fsync_dir(os.path.dirname(path) or ".")

    def fsync_dir(self, path: str) -> None:
        _fsync_and_close(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))

    def fsync_dir_soon(self, path: str) -> asyncio.Future[None]:
        """`fsync_dir` in a thread; `OSError` at once when there is no such directory."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return asyncio.get_running_loop().run_in_executor(self._threads(), _fsync_and_close, fd)

    def rearrange_soon(self, directory: str, renames: Sequence[tuple[str, str]]) -> RealRearrangement:
        """In a thread: a rename too has to wait while the file system commits what others have synced."""
        return RealRearrangement(directory, renames, self._threads())

    def fsync_soon(self, file: File) -> asyncio.Future[None]:
        """`file.fsync()` in a thread; the future belongs to the running loop."""
        if not isinstance(file, RealFile):
            raise TypeError(f"{file!r} was not opened by this disk")
        return file.fsync_soon(self._threads())

    def warm_soon(self, file: File, offset: int, length: int) -> asyncio.Future[None]:
        """In threads of their own: a slow fsync shall not hold up readers, nor they it."""
        if not isinstance(file, RealFile):
            raise TypeError(f"{file!r} was not opened by this disk")
        if self._readers is None:
            self._readers = ThreadPoolExecutor(_READ_THREADS, thread_name_prefix="cold read")
        return file.warm_soon(offset, length, self._readers)

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

    def spare_files(self) -> tuple[int, int]:
        """By the limit of this process (RLIMIT_NOFILE)."""
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return max(limit - len(os.listdir("/dev/fd")), 0), limit

    def free_bytes(self, path: str) -> int:
        """Space left for this user on the file system of `path`."""
        stats = os.statvfs(path)
        return stats.f_bavail * stats.f_frsize

    def total_bytes(self, path: str) -> int:
        """Size of the file system of `path`."""
        stats = os.statvfs(path)
        return stats.f_blocks * stats.f_frsize


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


def _drop_written(remaining: list[memoryview], written: int) -> None:
    whole = 0
    for view in remaining:
        if written < len(view):
            break
        written -= len(view)
        whole += 1
    del remaining[:whole]
    if written:
        remaining[0] = remaining[0][written:]


def _resolve(waiters: list[asyncio.Future[None]], error: BaseException | None) -> None:
    for waiter in waiters:
        if waiter.done():
            continue
        if error is None:
            waiter.set_result(None)
        else:
            waiter.set_exception(error)
    waiters.clear()
