"""Reads of one fetch that would have to wait for the device: threads bring the bytes into the page cache meanwhile.

The event loop is never held up by a slow disk: a fetch that finds nothing in the page cache is parked like one that
finds nothing at all, and looks again when the bytes are there. What other partitions have is answered at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ...log.errors import ColdReadError
from ...wire.types import TopicPartition


class ColdReads:
    """`is_over`: all that was cold has been warmed, so that reading again waits for nothing but bad luck.

    New records in one of the `partitions` are no reason to look again: they are not what is waited for.
    """

    __slots__ = ("_left", "_warmed", "is_over", "partitions")

    def __init__(self) -> None:
        self._left = 0
        self._warmed: Callable[[], object] | None = None
        self.is_over = False
        self.partitions: dict[TopicPartition, None] = {}

    def add(self, found: ColdReadError, partition: TopicPartition) -> None:
        self.partitions[partition] = None
        self._left += 1
        found.warming.add_done_callback(self._on_warmed)

    def then(self, callback: Callable[[], object]) -> None:
        """Call once when all are warmed; never when there was none."""
        self._warmed = callback

    def _on_warmed(self, warming: asyncio.Future[None]) -> None:
        if not warming.cancelled():
            warming.exception()
        self._left -= 1
        if not self._left and self._warmed is not None:
            callback, self._warmed = self._warmed, None
            self.is_over = True
            callback()
