"""Reads of one fetch that would wait for the disk: threads read the bytes into the page cache meanwhile.

A slow disk never blocks the event loop. A fetch whose bytes are not in the page cache is parked as if there were no
records, and reads again when they are. If other partitions have enough records, it is answered at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ...log.errors import ColdReadError
from ...wire.types import TopicPartition


class ColdReads:
    """`is_over`: the threads have read everything. Reading again may still block, if bytes have left the cache since.

    The fetch does not wait for new records in `partitions`, which are those that are being read.
    """

    __slots__ = ("_left", "_warmed", "is_over", "partitions")

    def __init__(self) -> None:
        self._left = 0
        self._warmed: Callable[[], object] | None = None
        self.is_over = False
        self.partitions: dict[TopicPartition, None] = {}

    def add(self, found: ColdReadError, partition: TopicPartition) -> None:
        """A thread is reading bytes of the partition."""
        self.partitions[partition] = None
        self._left += 1
        found.warming.add_done_callback(self._on_warmed)

    def then(self, callback: Callable[[], object]) -> None:
        """All cold reads are added: call back once when everything is read; never if nothing had to be read."""
        self._warmed = callback
        if self.partitions:
            self._call_if_read()

    def _on_warmed(self, warming: asyncio.Future[None]) -> None:
        if not warming.cancelled():
            warming.exception()
        self._left -= 1
        self._call_if_read()

    def _call_if_read(self) -> None:
        if not self._left and self._warmed is not None:
            callback, self._warmed = self._warmed, None
            self.is_over = True
            callback()
