"""The memory that the items of large requests take on a node, with the bound `queued.max.request.bytes`.

A decoded item takes ten to fifty times the memory of its bytes on the wire. A large request begins to be decoded when
there is memory for what it may become; when it is decoded, it counts with the items that it has, until it is answered.
The others wait in the order in which they came. Small requests do not wait behind large ones: an eighth of the bound is
set aside for them. A request that alone has more items than the bound allows is malformed, and so is one that has more
than were expected of it when twice the bound is used up.

A request may be held for minutes, such as a JoinGroup that waits for other members, and a very large one may want all
of the memory. So the first one that waits is let in beside the others after a second. There is one such request at a
time, so that about twice the bound is used at most, and it counts as the others do as soon as all of them fit.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

from ...wire.errors import WireFormatError

RESERVED_PER_BYTE = 32
"""What a byte of a request may become, as long as it is not known better, and where its API does not say less."""
SMALL_REQUEST_BYTES = 64 * 1024
_BESIDE_MAX = 2
"""So many times the bound is used at most, by a request that was let in beside the others, or that grows."""
WAIT_MAX_S = 1.0
"""How long the first request that waits does so, if there is no other one beside the bound."""


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
        "waits_since_s",
        "wanted_bytes",
    )

    def __init__(
        self,
        memory: DecodedMemory,
        frame: Releasable | None,
        size_bytes: int,
        begin: Callable[[DecodedItems], None],
        reserved_per_byte: int = RESERVED_PER_BYTE,
    ) -> None:
        self._memory = memory
        self._frame = frame
        self._begin: Callable[[DecodedItems], None] | None = begin
        self.is_small = size_bytes <= SMALL_REQUEST_BYTES
        self.wanted_bytes = min(size_bytes * reserved_per_byte, memory.limit_bytes)
        """What has to be free before it is decoded."""
        self.held_bytes = 0
        self.counted_bytes = 0
        """Of the items that are known."""
        self.waits_since_s = 0.0
        """When it began to wait for memory, by the clock of the loop."""
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
        memory = self._memory
        growth_bytes = max(0, self.counted_bytes - self.held_bytes)
        is_too_much = growth_bytes and memory.used_bytes + growth_bytes > _BESIDE_MAX * memory.limit_bytes
        if is_too_much or self.counted_bytes > memory.limit_bytes:
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

    def free_frame(self) -> None:
        """The bytes of the request are not needed any more. What is decoded counts until the answer."""
        frame, self._frame = self._frame, None
        if frame is not None:
            frame.release()

    def release(self) -> None:
        """Give everything back. A second call does nothing."""
        if self.is_released:
            return
        self.is_released = True
        self._begin = None
        self._hold(0)
        self._memory.released(self)
        self.free_frame()

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
        self._beside: DecodedItems | None = None
        """The request that was let in though there was no memory for it."""
        self._is_retry_scheduled = False
        self._timer: asyncio.TimerHandle | None = None

    def decode(self, items: DecodedItems) -> None:
        """Begin to decode the request, now or when there is memory for it."""
        if (not self._waiting or items.is_small) and self._fits(items):
            self._begin(items)
        else:
            items.waits_since_s = asyncio.get_running_loop().time()
            self._waiting.append(items)
            self._watch_wait()

    def change(self, size_bytes: int) -> None:
        """So much more memory is used, or less."""
        self.used_bytes += size_bytes
        if size_bytes < 0:
            self._retry_soon()

    def released(self, items: DecodedItems) -> None:
        """The request is answered, or given up, perhaps while it waited: others may begin."""
        if self._beside is items:
            self._beside = None
        self._retry_soon()

    def _retry_soon(self) -> None:
        if self._waiting and not self._is_retry_scheduled:
            self._is_retry_scheduled = True
            asyncio.get_running_loop().call_soon(self._retry)

    def _fits(self, items: DecodedItems) -> bool:
        limit_bytes = self.limit_bytes + (self.limit_bytes // 8 if items.is_small else 0)
        beside_bytes = 0 if self._beside is None else self._beside.held_bytes
        return self.used_bytes - beside_bytes + items.wanted_bytes <= limit_bytes

    def _may_begin_beside(self, items: DecodedItems) -> bool:
        """Whether the first request that waits has done so for long, and no other is beside the bound."""
        if self.used_bytes <= self.limit_bytes:
            self._beside = None
        return self._beside is None and self._wait_left_s(items) <= 0

    def _wait_left_s(self, items: DecodedItems) -> float:
        return items.waits_since_s + WAIT_MAX_S - asyncio.get_running_loop().time()

    def _watch_wait(self) -> None:
        """Look again when the first request has waited for long. From then on, every release does."""
        if self._waiting and self._timer is None:
            left_s = self._wait_left_s(self._waiting[0])
            if left_s > 0:
                self._timer = asyncio.get_running_loop().call_later(left_s, self._on_long_wait)

    def _on_long_wait(self) -> None:
        self._timer = None
        self._retry()

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
            elif not self._waiting and self._may_begin_beside(items):
                self._beside = items
                self._begin(items)
            else:
                self._waiting.append(items)
        self._watch_wait()
