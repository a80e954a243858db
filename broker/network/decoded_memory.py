"""The memory that the items of large requests take on a node, with the bound `queued.max.request.bytes`.

A decoded item takes ten to fifty times the memory of its bytes on the wire. A large request begins to be decoded when
there is memory for what it may become; when it is decoded, it counts with the items that it has, until it is answered.
The others wait in the order in which they came. Small requests do not wait behind large ones: an eighth of the bound is
set aside for them. A request that alone has more items than the bound allows is malformed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

from ...wire.errors import WireFormatError

RESERVED_PER_BYTE = 32
"""What a byte of a request may become, as long as it is not known better."""
SMALL_REQUEST_BYTES = 64 * 1024


class Releasable(Protocol):
    """Memory of a request."""

    def release(self) -> None:
        """Give it back. A second call does nothing."""
        ...


class DecodedItems:
    """The memory of one request's items, and of its `frame`, if that is counted. It is released with the answer."""

    __slots__ = (
        "_begin",
        "_frame",
        "_memory",
        "counted_bytes",
        "held_bytes",
        "is_released",
        "is_small",
        "wanted_bytes",
    )

    def __init__(
        self, memory: DecodedMemory, frame: Releasable | None, size_bytes: int, begin: Callable[[DecodedItems], None]
    ) -> None:
        self._memory = memory
        self._frame = frame
        self._begin: Callable[[DecodedItems], None] | None = begin
        self.is_small = size_bytes <= SMALL_REQUEST_BYTES
        self.wanted_bytes = min(size_bytes * RESERVED_PER_BYTE, memory.limit_bytes)
        """What has to be free before it is decoded."""
        self.held_bytes = 0
        self.counted_bytes = 0
        """Of the items that are known."""
        self.is_released = False

    def begin(self) -> None:
        """There is memory: decode the request."""
        self.held_bytes = self.wanted_bytes
        begin, self._begin = self._begin, None
        if begin is not None:
            begin(self)

    def count(self, size_bytes: int) -> None:
        """More items are known. Raises `WireFormatError` where they are too many."""
        self.check()
        self.counted_bytes += size_bytes
        if self.counted_bytes > self._memory.limit_bytes:
            raise WireFormatError("more items than the memory for requests may hold (queued.max.request.bytes)")
        self._hold(max(self.held_bytes, self.counted_bytes))

    def check(self) -> None:
        """Raises `WireFormatError` when the client is gone, and nobody needs the items."""
        if self.is_released:
            raise WireFormatError("the connection was closed")

    def settle(self) -> None:
        """All items are known."""
        self.check()
        self._hold(self.counted_bytes)

    def release(self) -> None:
        """Give everything back. A second call does nothing."""
        if self.is_released:
            return
        self.is_released = True
        self._begin = None
        self._hold(0)
        if self._frame is not None:
            self._frame.release()

    def _hold(self, size_bytes: int) -> None:
        change = size_bytes - self.held_bytes
        self.held_bytes = size_bytes
        self._memory.change(change)


class DecodedMemory:
    """Shared by the servers of a node's role."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._waiting: deque[DecodedItems] = deque()
        self._is_retry_scheduled = False

    def decode(self, items: DecodedItems) -> None:
        """Begin to decode the request, now or when there is memory for it."""
        if (not self._waiting or items.is_small) and self._fits(items):
            self._begin(items)
        else:
            self._waiting.append(items)

    def change(self, size_bytes: int) -> None:
        """So much more memory is used, or less."""
        self.used_bytes += size_bytes
        if size_bytes < 0 and self._waiting and not self._is_retry_scheduled:
            self._is_retry_scheduled = True
            asyncio.get_running_loop().call_soon(self._retry)

    def _fits(self, items: DecodedItems) -> bool:
        limit_bytes = self.limit_bytes + (self.limit_bytes // 8 if items.is_small else 0)
        return self.used_bytes + items.wanted_bytes <= limit_bytes

    def _begin(self, items: DecodedItems) -> None:
        self.used_bytes += items.wanted_bytes
        items.begin()

    def _retry(self) -> None:
        self._is_retry_scheduled = False
        waiting, self._waiting = self._waiting, deque()
        while waiting:
            items = waiting.popleft()
            if items.is_released:
                continue
            if (not self._waiting or items.is_small) and self._fits(items):
                self._begin(items)
            else:
                self._waiting.append(items)
