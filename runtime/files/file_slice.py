"""Bytes of a file that are sent and never read: the kernel moves them from the page cache to the socket."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from ..ports import Buffer, Disk, File


class FileSlice:
    """`length` bytes from `offset` of a file, whatever becomes of its name and of other handles meanwhile.

    `is_true` says whether they still are what they were when the slice was made: a log can be cut and written anew.
    """

    __slots__ = ("_disk", "_file", "_is_true", "_length", "_offset")

    def __init__(self, disk: Disk, file: File, offset: int, length: int, is_true: Callable[[], bool]) -> None:
        self._disk = disk
        self._file = file.share()
        self._offset = offset
        self._length = length
        self._is_true = is_true

    def __len__(self) -> int:
        return self._length

    def read(self, start: int, length: int) -> bytes:
        """`length` bytes from `start` of the slice. `OSError`, also when they are not what they were."""
        self._check()
        data = self._file.pread(self._offset + start, min(length, self._length - start))
        if not data:
            raise self._changed()
        return data

    def pieces(self) -> Iterator[bytes]:
        """All of it, as it comes."""
        start = 0
        while start < self._length:
            data = self.read(start, self._length - start)
            start += len(data)
            yield data

    def send(self, start: int, length: int, transport: asyncio.Transport) -> int:
        """Hand to the socket what it takes, at most `length` bytes from `start`; returns how many, 0 when it is full.

        Only when nothing waits in the transport itself. `OSError`: of the socket, of the file, or because the bytes
        are not what they were.
        """
        self._check()
        length = min(length, self._length - start)
        return self._disk.send(self._file, self._offset + start, length, transport)

    def is_cached(self, start: int, length: int) -> bool:
        """Whether these can be sent without waiting for the device."""
        return self._file.is_cached(self._offset + start, min(length, self._length - start))

    def warm_soon(self, start: int, length: int) -> asyncio.Future[None]:
        """Bring them into the page cache without blocking the loop."""
        return self._disk.warm_soon(self._file, self._offset + start, min(length, self._length - start))

    def _check(self) -> None:
        if not self._is_true():
            raise self._changed()

    def _changed(self) -> OSError:
        return OSError(errno.ESTALE, "what was to be sent was cut off meanwhile", self._file.path)


Sendable: TypeAlias = Buffer | FileSlice
"""A part of a response."""


def in_memory(parts: Iterable[Sendable]) -> bytes:
    """Everything in one piece; slices are read for that (`OSError`)."""
    pieces: list[Buffer] = []
    for part in parts:
        if isinstance(part, FileSlice):
            pieces.extend(part.pieces())
        else:
            pieces.append(part)
    return b"".join(pieces)
