"""Bytes of a file that the kernel moves from the page cache to a socket, without reading them into the process."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from ..ports import Buffer, Disk, File


class FileSlice:
    """`length` bytes from `offset` of a file, which may be renamed, removed or closed by others meanwhile.

    `is_unchanged` says whether they are still the same as when the slice was made: a log can be truncated and appended
    to again.
    """

    __slots__ = ("_disk", "_file", "_is_unchanged", "_length", "_offset")

    def __init__(self, disk: Disk, file: File, offset: int, length: int, is_unchanged: Callable[[], bool]) -> None:
        self._disk = disk
        self._file = file.share()
        self._offset = offset
        self._length = length
        self._is_unchanged = is_unchanged

    def __len__(self) -> int:
        return self._length

    def read(self, start: int, length: int) -> bytes:
        """Up to `length` bytes from `start` of the slice. Raises `OSError`, also when they have changed."""
        self._check()
        data = self._file.pread(self._offset + start, min(length, self._length - start))
        if not data:
            raise self._changed()
        return data

    def pieces(self) -> Iterator[bytes]:
        """Read all of it, piece by piece. Raises `OSError`."""
        start = 0
        while start < self._length:
            data = self.read(start, self._length - start)
            start += len(data)
            yield data

    def send(self, start: int, length: int, transport: asyncio.Transport) -> int:
        """Send at most `length` bytes from `start`; returns how many the socket took, 0 when it is full.

        The transport's own buffer must be empty. Raises `OSError` of the socket or of the file, and when the bytes have
        changed.
        """
        self._check()
        length = min(length, self._length - start)
        return self._disk.send(self._file, self._offset + start, length, transport)

    def is_cached(self, start: int, length: int) -> bool:
        """Whether these bytes can be sent without waiting for the device."""
        return self._file.is_cached(self._offset + start, min(length, self._length - start))

    def warm_soon(self, start: int, length: int) -> asyncio.Future[None]:
        """Bring them into the page cache without blocking the loop."""
        return self._disk.warm_soon(self._file, self._offset + start, min(length, self._length - start))

    def _check(self) -> None:
        if not self._is_unchanged():
            raise self._changed()

    def _changed(self) -> OSError:
        return OSError(errno.ESTALE, "what was to be sent was cut off meanwhile", self._file.path)


Sendable: TypeAlias = Buffer | FileSlice
"""A part of a response."""


def in_memory(parts: Iterable[Sendable]) -> bytes:
    """All parts in one buffer, for which slices are read. Raises `OSError`."""
    pieces: list[Buffer] = []
    for part in parts:
        if isinstance(part, FileSlice):
            pieces.extend(part.pieces())
        else:
            pieces.append(part)
    return b"".join(pieces)
