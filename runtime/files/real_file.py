"""An open file of the operating system, which has no descriptor while it is not used; see `open_files.py`.

Writes are positioned (`pwritev` at the end that this handle knows), so one handle writes to a file; any number of
others may read. Every write loops over short writes and over the kernel's limit of buffers a call.

`fsync_soon` runs `fdatasync` in a thread, one at a time for each file. Calls that come while one waits or runs are
answered together by the next one. This group commit makes small durable appends cheap.

After a failed fsync the kernel may have dropped the dirty pages and marked them clean, so a second fsync would report
success wrongly (PostgreSQL's "fsyncgate", 2018). So a file whose fsync failed fails every later fsync with the same
error, and those that wait or run beside it: only one of them is told of the failure. For the same reason a descriptor
with unsynced writes must not simply be closed: Linux reports a failed write-back once to each open file description
that existed before, and forgets it with the inode. So the description is kept by a mapping of one page, which takes no
descriptor, and the next fsync asks that one too.
"""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor

from ..ports import Buffer
from ..work_queue import WorkQueue
from . import page_cache
from .open_files import FileReference, NamedFile, is_out_of_files

_IOV_MAX = min(os.sysconf("SC_IOV_MAX"), 1024)


class OpenFile(NamedFile):
    """A file, its descriptor if it has one, and which of its writes are synced."""

    __slots__ = (
        "_access",
        "_identity",
        "_kept_description",
        "_may_create",
        "_sync_in_thread",
        "_synced_writes",
        "fd",
        "is_read_at_random",
        "size_bytes",
        "sync_error",
        "sync_waiters",
        "syncs",
        "writes",
    )  # fmt: skip

    def __init__(self, path: str, *, create: bool, is_read_only: bool = False) -> None:
        super().__init__(path)
        self.fd = -1
        self.size_bytes = 0
        """The size when it was opened the last time."""
        self.is_read_at_random = False
        self.writes = 0
        self.syncs = False
        """Whether an fsync waits or runs."""
        self.sync_error: OSError | None = None
        self.sync_waiters: list[asyncio.Future[None]] = []
        self._sync_in_thread = threading.Lock()
        """Held by a thread until it has noted the error of its fsync."""
        self._synced_writes = 0
        self._may_create = create
        self._access = os.O_RDONLY if is_read_only else os.O_RDWR
        self._identity: tuple[int, int] | None = None
        self._kept_description: int | None = None

    @property
    def has_descriptor(self) -> bool:
        """Whether it has a descriptor now."""
        return self.fd >= 0

    def open(self) -> None:
        """Get a descriptor by name. Raises `FileNotFoundError`, and ESTALE when another file has its name."""
        fd = os.open(self.path, self._access | os.O_CLOEXEC | (os.O_CREAT if self._may_create else 0), 0o644)
        status = os.fstat(fd)
        identity = status.st_dev, status.st_ino
        if identity != (self._identity or identity):
            os.close(fd)
            raise OSError(errno.ESTALE, "another file has its name", self.path)
        self.fd, self.size_bytes = fd, status.st_size
        self._identity, self._may_create = identity, False
        if self.is_read_at_random:
            page_cache.disable_read_ahead(fd)

    def yield_descriptor(self) -> bool:
        """Close the descriptor. If no mapping can keep its description, the writes are synced now."""
        if self.writes > self._synced_writes and self._kept_description is None and self.sync_error is None:
            self._kept_description = page_cache.keep_description(self.fd)
            if self._kept_description is None and not self._is_synced_now():
                return False
        self._close_descriptor()
        return True

    def close(self) -> None:
        """Close the file."""
        self._close_descriptor()
        self._drop_kept_description()

    def sync(self, fd: int) -> None:
        """fdatasync; `fd` is this file's and pinned. Raises `OSError`, which is noted for every other fsync."""
        try:
            os.fdatasync(fd)
            if self._kept_description is not None:
                page_cache.sync_description(self._kept_description)
        except OSError as error:
            self.sync_error = error
            raise

    def sync_in_thread(self, fd: int) -> None:
        """Like `sync`, in a thread beside the loop's."""
        with self._sync_in_thread:
            self.sync(fd)

    def raise_error_of_thread(self) -> None:
        """Raise the error of an fsync in a thread, which has ended or runs. Another one may have succeeded for it."""
        with self._sync_in_thread:
            if self.sync_error is not None:
                raise self.sync_error

    def synced(self, writes: int) -> None:
        """The first `writes` writes are on the device."""
        self._synced_writes = max(self._synced_writes, writes)
        self._drop_kept_description()

    def _is_synced_now(self) -> bool:
        try:
            self.sync(self.fd)
        except OSError:
            return False
        self.synced(self.writes)
        return True

    def _close_descriptor(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def _drop_kept_description(self) -> None:
        anchor, self._kept_description = self._kept_description, None
        if anchor is not None:
            page_cache.drop_description(anchor)


class RealFile:
    """A handle of an open file; see `ports.File`."""

    __slots__ = ("_path", "_reference", "_size")

    def __init__(self, reference: FileReference[OpenFile], path: str, size_bytes: int) -> None:
        self._reference: FileReference[OpenFile] | None = reference
        self._path = path
        self._size = size_bytes

    @property
    def path(self) -> str:
        """The path by which the file was opened."""
        return self._path

    def size(self) -> int:
        """Length in bytes as this handle knows it."""
        return self._size

    def append(self, buffers: Sequence[Buffer]) -> int:
        """Write all of `buffers` at the end; after an error `size()` is the end of what was written."""
        start = self._size
        remaining = [memoryview(buffer).cast("B") for buffer in buffers if len(buffer)]
        file = self.reference().file()
        file.writes += 1
        while remaining:
            written = os.pwritev(file.fd, remaining[:_IOV_MAX], self._size)
            self._size += written
            _drop_written(remaining, written)
        return self._size - start

    def pread(self, offset: int, length: int) -> bytes:
        """Up to `length` bytes from `offset`; fewer only at the end of the file."""
        fd = self.reference().file().fd
        data = os.pread(fd, length, offset)
        if len(data) == length or not data:
            return data
        parts = [data]
        have = len(data)
        while have < length and (data := os.pread(fd, length - have, offset + have)):
            parts.append(data)
            have += len(data)
        return b"".join(parts)

    def is_cached(self, offset: int, length: int) -> bool:
        """See `page_cache.is_cached`. From the first call on, reads of this file do not read ahead."""
        file = self.reference().file()
        if not file.is_read_at_random:
            page_cache.disable_read_ahead(file.fd)
            file.is_read_at_random = True
        return page_cache.is_cached(file.fd, offset, length)

    def warm_soon(
        self, offset: int, length: int, queue: WorkQueue, threads: Callable[[], Executor]
    ) -> asyncio.Future[None]:
        """Run `page_cache.warm` in a thread."""
        reference, loop = self.reference(), asyncio.get_running_loop()
        warmed: asyncio.Future[None] = loop.create_future()

        def begin() -> asyncio.Future[None] | None:
            executor = threads()
            try:
                file = reference.file()
            except OSError as error:
                if is_out_of_files(error):
                    raise
                resolve([warmed], None)  # the next read of the file raises the error
                return None
            file.pins += 1

            def finish(_: asyncio.Future[None]) -> None:
                reference.file(is_used=False).pins -= 1
                resolve([warmed], None)

            return _watched(loop.run_in_executor(executor, page_cache.warm, file.fd, offset, length), finish)

        queue.submit(begin)
        return warmed

    def send(self, offset: int, length: int, socket_fd: int) -> int:
        """Send from the file; returns how many bytes the non-blocking socket took, 0 when it is full."""
        try:
            sent = os.sendfile(socket_fd, self.reference().file().fd, offset, length)
        except BlockingIOError:
            return 0
        if not sent and length:
            raise OSError(errno.EIO, "the file ends before what is to be sent", self._path)
        return sent

    def pwrite(self, offset: int, data: Buffer) -> None:
        """Overwrite in place, extending the file where needed."""
        view = memoryview(data).cast("B")
        file = self.reference().file()
        file.writes += 1
        while view:
            written = os.pwrite(file.fd, view, offset)
            offset += written
            view = view[written:]
            self._size = max(self._size, offset)

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""
        file = self.reference().file()
        file.writes += 1
        os.ftruncate(file.fd, size)
        self._size = size

    def fsync(self) -> None:
        """Block until the contents are on the device. Raises `OSError`."""
        file = self.reference().file()
        if file.sync_error is not None:
            raise file.sync_error
        file.sync(file.fd)
        file.raise_error_of_thread()
        if not file.syncs:
            file.synced(file.writes)

    def share(self) -> RealFile:
        """A second handle for reading, which stays open when this one is closed."""
        return RealFile(self.reference(), self._path, self._size)

    def close(self) -> None:
        """Release the file. It is closed when no fsync and no shared handle needs it any more."""
        self._reference = None

    def fsync_soon(self, queue: WorkQueue, threads: Callable[[], Executor]) -> asyncio.Future[None]:
        """fsync in a thread what was written before the call; see the module's text."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._reference is None:
            waiter.set_exception(OSError(errno.EBADF, "file is closed", self._path))
            return waiter
        file = self._reference.file(is_used=False)
        if file.sync_error is not None:
            waiter.set_exception(file.sync_error)
        else:
            file.sync_waiters.append(waiter)
            if not file.syncs:
                file.syncs = True
                _submit_sync(self._reference, queue, threads)
        return waiter

    def reference(self) -> FileReference[OpenFile]:
        """The object that keeps the file open. Raises `OSError` when this handle is closed."""
        if self._reference is None:
            raise OSError(errno.EBADF, "file is closed", self._path)
        return self._reference


def _submit_sync(reference: FileReference[OpenFile], queue: WorkQueue, threads: Callable[[], Executor]) -> None:
    """Queue an fsync of the file; while it waits the file needs no descriptor."""
    loop = asyncio.get_running_loop()

    def begin() -> asyncio.Future[None] | None:
        executor = threads()
        file = reference.file(is_used=False)
        try:
            reference.file()
        except OSError as error:
            if is_out_of_files(error):
                raise
            file.syncs = False
            resolve(file.sync_waiters, error)
            return None
        if file.sync_error is not None:
            file.syncs = False
            resolve(file.sync_waiters, file.sync_error)
            return None
        covered, file.sync_waiters = file.sync_waiters, []
        writes = file.writes
        file.pins += 1

        def finish(done: asyncio.Future[None]) -> None:
            file.pins -= 1
            file.syncs = False
            error = done.exception() if not done.cancelled() else OSError(errno.ECANCELED, "fsync cancelled")
            if isinstance(error, OSError):
                file.sync_error = file.sync_error or error
            if error is None and file.sync_error is None:
                file.synced(writes)
            resolve(covered, error or file.sync_error)
            if file.sync_error is not None:
                resolve(file.sync_waiters, file.sync_error)
            elif file.sync_waiters:
                file.syncs = True
                _submit_sync(reference, queue, threads)

        return _watched(loop.run_in_executor(executor, file.sync_in_thread, file.fd), finish)

    queue.submit(begin)


def _watched(running: asyncio.Future[None], finish: Callable[[asyncio.Future[None]], None]) -> asyncio.Future[None]:
    running.add_done_callback(finish)
    return running


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


def resolve(waiters: list[asyncio.Future[None]], error: BaseException | None) -> None:
    """Set the result or the error of all waiters, and clear the list."""
    for waiter in waiters:
        if waiter.done():
            continue
        if error is None:
            waiter.set_result(None)
        else:
            waiter.set_exception(error)
    waiters.clear()
