"""Long work on logs cut into steps, for those who have a loop to keep turning, and for those who have none.

A step yields what it reads next, so that a slow device can be waited for elsewhere; what was yielded need not be waited
for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import NamedTuple, TypeAlias, TypeVar

from ...runtime.ports import Disk, File

STEP_BYTES = 4 * 1024 * 1024
STEP_BATCHES = 1000
T = TypeVar("T")


class Piece(NamedTuple):
    """`length` bytes of `file` from `position` on, which are read next; `done_bytes` were since the last step."""

    done_bytes: int
    file: File | None = None
    position: int = 0
    length: int = 0


Steps: TypeAlias = Generator[Piece, None, T]


def at_once(steps: Steps[T]) -> T:
    """All of it, without a pause."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


async def in_turns(steps: Steps[T], disk: Disk) -> T:
    """One step a turn of the loop. What is not in the page cache is brought there by a thread first."""
    try:
        while True:
            try:
                piece = next(steps)
            except StopIteration as end:
                result: T = end.value
                return result
            if piece.file is not None and not piece.file.is_cached(piece.position, piece.length):
                await disk.warm_soon(piece.file, piece.position, piece.length)
            else:
                await asyncio.sleep(0)
    finally:
        steps.close()
