"""The ports through which a node touches the world: files, the wall clock and randomness.

A node gets one `Runtime` and uses nothing else; monotonic time, timers and the network come from the running asyncio
loop. Each port has a twin in memory (`chaos/`), which is why a whole node runs unmodified in the simulator.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview


class Clock(Protocol):
    """The wall clock. For durations use `loop.time()`, which never jumps."""

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        ...


class File(Protocol):
    """An open file. Every method may raise `OSError`; after a failed `fsync` the file's contents are unknown."""

    @property
    def path(self) -> str: ...

    def size(self) -> int:
        """Length in bytes, unsynced bytes included."""
        ...

    def append(self, buffers: Sequence[Buffer]) -> int:
        """Write all of `buffers` at the end, in order; returns bytes written. On error a prefix may be there."""
        ...

    def pread(self, offset: int, length: int) -> bytes:
        """Up to `length` bytes from `offset`; fewer only at the end of the file."""
        ...

    def is_cached(self, offset: int, length: int) -> bool:
        """Whether `pread` of that would not wait for the device, as far as can be known."""
        ...

    def pwrite(self, offset: int, data: Buffer) -> None:
        """Overwrite in place, extending the file where needed."""
        ...

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""
        ...

    def fsync(self) -> None:
        """Return when the file's contents would survive a loss of power."""
        ...

    def share(self) -> File:
        """A second handle, for reading, that closing this one leaves alone; released when it is dropped."""
        ...

    def close(self) -> None:
        """Release the descriptor; closing twice is harmless."""
        ...


class DirLock(Protocol):
    """An exclusive hold on a directory, released by `release` or by the death of the process."""

    def release(self) -> None: ...


class OrderedRenames(Protocol):
    """Renames in one directory that were begun; see `Disk.rearrange_soon`."""

    @property
    def done(self) -> asyncio.Future[None]:
        """Ends when the new names are durable, `finish` or not; `OSError` when the disk refuses."""
        ...

    def finish(self) -> None:
        """Have it all done on return, here and now. `OSError`."""
        ...


class Disk(Protocol):
    """The file system. Paths are absolute or relative strings; errors are `OSError` with `errno` set."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing; `FileNotFoundError` unless it exists or `create`."""
        ...

    def exists(self, path: str) -> bool: ...

    def is_dir(self, path: str) -> bool: ...

    def listdir(self, path: str) -> list[str]:
        """Names in the directory, sorted."""
        ...

    def makedirs(self, path: str) -> None:
        """Make the directory and its parents; an existing one is fine."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Atomic within a file system; durable after `fsync_dir` of the parent. Replaces an existing file."""
        ...

    def remove(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None: ...

    def remove_soon(self, path: str) -> asyncio.Future[None]:
        """Remove a file, or a directory with all that is in it, without blocking the loop; none there is fine."""
        ...

    def read_bytes(self, path: str) -> bytes: ...

    def write_atomic(self, path: str, data: Buffer) -> None:
        """Durably replace `path`: temporary file, fsync, rename, fsync of the directory."""
        ...

    def write_atomic_soon(self, path: str, data: Buffer) -> asyncio.Future[None]:
        """Like `write_atomic` without blocking the loop. A later write to the same path, of either kind, wins."""
        ...

    def fsync_dir(self, path: str) -> None: ...

    def fsync_dir_soon(self, path: str) -> asyncio.Future[None]:
        """Like `fsync_dir` without blocking the loop, of the directory that has this name now."""
        ...

    def rearrange_soon(self, directory: str, renames: Sequence[tuple[str, str]]) -> OrderedRenames:
        """Rename files of `directory` in this order, then make all of its names durable, without blocking the loop.

        Nobody else may touch these names before it is done.
        """
        ...

    def fsync_soon(self, file: File) -> asyncio.Future[None]:
        """Like `file.fsync()` without blocking the loop; what was written before the call is covered."""
        ...

    def warm_soon(self, file: File, offset: int, length: int) -> asyncio.Future[None]:
        """Bring these bytes into the page cache without blocking the loop; the file may be closed or removed meanwhile.

        It never fails: who reads afterwards learns what is the matter.
        """
        ...

    def send(self, file: File, offset: int, length: int, transport: asyncio.Transport) -> int:
        """Give the socket under `transport`, in which nothing may wait, bytes of the file, as many as it takes now.

        Returns how many; `OSError` of the file or the socket, also when the file ends before.
        """
        ...

    def lock_dir(self, path: str) -> DirLock:
        """Take the exclusive lock `path/.lock`; `BlockingIOError` when another process holds it."""
        ...

    def free_bytes(self, path: str) -> int:
        """Space left for this user on the file system of `path`."""
        ...

    def total_bytes(self, path: str) -> int:
        """Size of the file system of `path`."""
        ...


@dataclass(frozen=True, slots=True)
class Runtime:
    """Everything a node may touch beside its event loop."""

    disk: Disk
    clock: Clock
    rng: random.Random
