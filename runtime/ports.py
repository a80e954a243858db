"""The ports of a node to the operating system: files, the wall clock, randomness and threads.

A node gets one `Runtime` and uses nothing else; monotonic time, timers and the network come from the running asyncio
loop. Each port has a twin in memory (`chaos/sim`), so whole nodes run unmodified in the simulator.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, TypeVar

T = TypeVar("T")
Buffer: TypeAlias = bytes | bytearray | memoryview


class Clock(Protocol):
    """The wall clock. For durations use `loop.time()`, which never jumps."""

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        ...


class File(Protocol):
    """An open file. Every method may raise `OSError`; after a failed `fsync` the file's contents are unknown."""

    @property
    def path(self) -> str:
        """The path by which the file was opened."""
        ...

    def size(self) -> int:
        """Length in bytes, unsynced bytes included."""
        ...

    def append(self, buffers: Sequence[Buffer]) -> int:
        """Write all of `buffers` at the end, in order; returns bytes written. On error a part may be written."""
        ...

    def pread(self, offset: int, length: int) -> bytes:
        """Up to `length` bytes from `offset`; fewer only at the end of the file."""
        ...

    def is_cached(self, offset: int, length: int) -> bool:
        """Whether `pread` of that range would not wait for the device, as far as the system tells."""
        ...

    def pwrite(self, offset: int, data: Buffer) -> None:
        """Overwrite in place, extending the file where needed."""
        ...

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""
        ...

    def fsync(self) -> None:
        """Make the file's contents durable: they survive a loss of power once this returns."""
        ...

    def share(self) -> File:
        """A second handle for reading, which stays open when this one is closed, until it is dropped."""
        ...

    def close(self) -> None:
        """Release the descriptor; closing twice is harmless."""
        ...


class DirLock(Protocol):
    """An exclusive lock of a directory, which ends with `release` or with the process."""

    def release(self) -> None:
        """Unlock the directory; releasing twice is harmless."""
        ...


class OrderedRenames(Protocol):
    """Renames in one directory that have begun; see `Disk.rename_in_order_soon`."""

    @property
    def done(self) -> asyncio.Future[None]:
        """Is done when the new names are durable. It fails with `OSError` when the disk refuses."""
        ...

    def finish(self) -> None:
        """Do at once what is left, blocking the caller. Raises `OSError`."""
        ...


class Disk(Protocol):
    """The file system. Paths are absolute or relative strings; errors are `OSError` with `errno` set."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing. Raises `FileNotFoundError` unless it exists or `create`."""
        ...

    def exists(self, path: str) -> bool:
        """Whether there is a file or directory of that name."""
        ...

    def is_dir(self, path: str) -> bool:
        """Whether there is a directory of that name."""
        ...

    def listdir(self, path: str) -> list[str]:
        """Names in the directory, sorted."""
        ...

    def makedirs(self, path: str) -> None:
        """Make the directory and its parents; an existing one is fine."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Rename atomically, replacing an existing file; durable after `fsync_dir` of the parent."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file."""
        ...

    def remove_tree(self, path: str) -> None:
        """Remove a directory with all that is in it."""
        ...

    def remove_soon(self, path: str) -> asyncio.Future[None]:
        """Remove a file, or a directory with its contents, without blocking the loop; it need not exist."""
        ...

    def read_bytes(self, path: str, *, size_bytes_max: int | None = None) -> bytes:
        """The contents of a file.

        With `size_bytes_max` only those of a regular file of at most that size: a FIFO or a device may keep the reader
        waiting, or have no end.
        """
        ...

    def write_atomic(self, path: str, data: Buffer) -> None:
        """Durably replace `path`: temporary file, fsync, rename, fsync of the directory."""
        ...

    def write_atomic_soon(self, path: str, data: Buffer) -> asyncio.Future[None]:
        """Like `write_atomic` without blocking the loop. A later write to the same path, of either kind, wins.

        It is carried out in the directory that has the name now, whatever that is called then.
        """
        ...

    def fsync_dir(self, path: str) -> None:
        """Make the names in the directory durable."""
        ...

    def fsync_dir_soon(self, path: str) -> asyncio.Future[None]:
        """Like `fsync_dir` without blocking the loop, for the directory that has this name now."""
        ...

    def rename_in_order_soon(self, directory: str, renames: Sequence[tuple[str, str]]) -> OrderedRenames:
        """Rename files of `directory` in this order, then make all its names durable, without blocking the loop.

        These names must not be used otherwise before it is done.
        """
        ...

    def fsync_soon(self, file: File) -> asyncio.Future[None]:
        """Like `file.fsync()` without blocking the loop, for what was written before the call."""
        ...

    def warm_soon(self, file: File, offset: int, length: int) -> asyncio.Future[None]:
        """Bring these bytes into the page cache without blocking the loop; the file may be closed or removed meanwhile.

        It never fails: an error shows when the bytes are read.
        """
        ...

    def send(self, file: File, offset: int, length: int, transport: asyncio.Transport) -> int:
        """Give the socket under `transport` as many bytes of the file as it takes now; returns how many.

        The transport's own buffer must be empty. Raises `OSError` of the file or the socket, and when the file is
        shorter than that.
        """
        ...

    def lock_dir(self, path: str) -> DirLock:
        """Take the exclusive lock `path/.lock`. Raises `BlockingIOError` when another process has it."""
        ...

    def free_bytes(self, path: str) -> int:
        """Bytes left for this user on the file system of `path`."""
        ...

    def total_bytes(self, path: str) -> int:
        """Size of the file system of `path` in bytes."""
        ...


class ComputeThreads(Protocol):
    """Threads for work that would hold the event loop for too long. The work touches nothing that the loop changes."""

    def run_soon(self, work: Callable[[], T], owner: object = None) -> asyncio.Future[T]:
        """Do `work` without blocking the loop; the future ends as `work` does.

        Works of one owner begin in the order in which they came, and owners take turns: before each of its works, one
        of each other owner begins at most.
        """
        ...

    def close(self) -> None:
        """Release the threads, once they have done what they were given; work that comes later gets new ones."""
        ...


class LoopAsThreads:
    """`ComputeThreads` without threads: the work is done in the next iteration of the loop."""

    def run_soon(self, work: Callable[[], T], owner: object = None) -> asyncio.Future[T]:
        """Do `work` in the next iteration of the loop, in which all owners have their turn."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        loop.call_soon(complete_with, future, work)
        return future

    def close(self) -> None:
        """Nothing: there are no threads."""


def complete_with(future: asyncio.Future[T], work: Callable[[], T]) -> None:
    """Do `work` and end the future with its result or error, unless somebody has cancelled it."""
    if future.done():
        return
    try:
        result = work()
    except Exception as error:
        future.set_exception(error)
    else:
        future.set_result(result)


def environment() -> Mapping[str, str]:
    """The variables of the environment, for settings that name one."""
    return os.environ


@dataclass(frozen=True, slots=True)
class Runtime:
    """All that a node may use beside its event loop."""

    disk: Disk
    clock: Clock
    rng: random.Random
    threads: ComputeThreads = field(default_factory=LoopAsThreads)
    secret_bytes: Callable[[int], bytes] = os.urandom
    """So many bytes that nobody can guess, for nonces and keys."""
    stopwatch: Callable[[], float] = time.perf_counter
    """Seconds of a precise clock, to measure how long the loop works. In the simulator it stands still."""
