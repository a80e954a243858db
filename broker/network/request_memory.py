"""The memory that all connections of a node use for large requests, with a bound (`queued.max.request.bytes`).

Every request that is too large for the shared read buffer has a claim, from its first bytes until it is answered. Those
that may wait for long without needing their bytes, Produce and Fetch, end it before: a produced batch that is in the
log and waits for followers must keep no memory from their fetches. A claim grows with the bytes that have arrived. Near
the bound it gets all of the rest of its frame or nothing, so that each frame that goes on can be completed; the others
wait, and their connections are not read. The bytes of a frame that were read before it was known to be large are kept
in any case; for them an eighth of the bound is set aside, and for the copies of small requests that wait for a thread.

While a claim waits, frames that do not arrive are given up: those that have received nothing for five seconds, and
those that began thirty seconds ago, as their clients have given them up too (`request.timeout.ms`).
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from .decoded_memory import DecodedMemory

STALLED_S = 5.0
TOO_OLD_S = 30.0
DEFAULT_LIMIT_BYTES = 256 * 1024 * 1024
CHECK_INTERVAL_S = 1.0


def default_limit_bytes(max_frame_bytes: int) -> int:
    """The bound where `queued.max.request.bytes` is -1."""
    return max(DEFAULT_LIMIT_BYTES, 2 * max_frame_bytes)


class ClaimOwner(Protocol):
    """The connection that a claim belongs to."""

    def on_memory_granted(self) -> None:
        """The claim that had to wait has got what it asked for."""
        ...

    def on_frame_too_slow(self) -> None:
        """The frame did not arrive in time while others waited for memory: close the connection."""
        ...


class Claim:
    """The memory of one frame of `frame_bytes` bytes."""

    __slots__ = (
        "_memory",
        "began_at",
        "frame_bytes",
        "held_bytes",
        "is_complete",
        "owner",
        "progress_at",
        "wanted_bytes",
    )

    def __init__(self, memory: RequestMemory, owner: ClaimOwner, frame_bytes: int, now: float) -> None:
        self._memory = memory
        self.owner = owner
        self.frame_bytes = frame_bytes
        self.held_bytes = 0
        self.wanted_bytes = 0
        """What the claim waits for, in all; 0 when it does not wait."""
        self.is_complete = False
        """Whether the whole frame has arrived."""
        self.began_at = self.progress_at = now

    def grow(self, size_bytes: int) -> bool:
        """Whether the frame may have a buffer of this size now. If not, the claim waits, and its owner is told."""
        return self._memory.grow(self, size_bytes)

    def keep(self, size_bytes: int) -> bool:
        """Account for a buffer of this size that holds bytes which have arrived. False: it is beyond the bound."""
        return self._memory.keep(self, size_bytes)

    def on_progress(self) -> None:
        """Bytes of the frame have arrived."""
        self.progress_at = asyncio.get_running_loop().time()

    def complete(self) -> None:
        """All of the frame has arrived."""
        self.is_complete = True

    def release(self) -> None:
        """Give everything back. A second call does nothing."""
        self._memory.release(self)


class RequestMemory:
    """Shared by the servers of a node's role. Each of them takes frames of at most `max_frame_bytes`."""

    def __init__(self, limit_bytes: int, max_frame_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._free_growth_bytes = limit_bytes - max_frame_bytes  # below it, any frame can still be completed
        self._kept_limit_bytes = limit_bytes + limit_bytes // 8
        self._short_from_bytes = limit_bytes // 2
        self._claims: dict[Claim, None] = {}
        self._waiting: dict[Claim, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._is_retry_scheduled = False
        self.used_bytes = 0
        self.decoded = DecodedMemory(limit_bytes)
        """The memory of the items in requests; it has a bound of its own."""

    @property
    def is_short(self) -> bool:
        """Whether more than half of it is used. What is left is for those who have none."""
        return self.used_bytes > self._short_from_bytes

    def claim(self, owner: ClaimOwner, frame_bytes: int) -> Claim:
        """The claim of a frame whose first bytes have arrived."""
        claim = Claim(self, owner, frame_bytes, asyncio.get_running_loop().time())
        self._claims[claim] = None
        return claim

    def grow(self, claim: Claim, size_bytes: int) -> bool:
        """See `Claim.grow`."""
        if self._take(claim, size_bytes):
            return True
        claim.wanted_bytes = size_bytes
        self._waiting[claim] = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(CHECK_INTERVAL_S, self._give_up_slow_frames)
        return False

    def keep(self, claim: Claim, size_bytes: int) -> bool:
        """See `Claim.keep`."""
        growth = max(0, size_bytes - claim.held_bytes)
        if self.used_bytes + growth > self._kept_limit_bytes:
            return False
        self.used_bytes += growth
        claim.held_bytes += growth
        return True

    def release(self, claim: Claim) -> None:
        """See `Claim.release`."""
        if claim not in self._claims:
            return
        del self._claims[claim]
        self._waiting.pop(claim, None)
        self.used_bytes -= claim.held_bytes
        claim.held_bytes = 0
        if self._waiting and not self._is_retry_scheduled:
            self._is_retry_scheduled = True
            asyncio.get_running_loop().call_soon(self._retry)

    def _take(self, claim: Claim, size_bytes: int) -> bool:
        growth = size_bytes - claim.held_bytes
        if growth > 0 and self.used_bytes + growth > self._free_growth_bytes:
            size_bytes = claim.frame_bytes
            growth = size_bytes - claim.held_bytes
            if self.used_bytes + growth > self._limit_bytes:
                return False
        if growth > 0:
            self.used_bytes += growth
            claim.held_bytes = size_bytes
        return True

    def _retry(self) -> None:
        """Those that fit go on, in the order in which they came."""
        self._is_retry_scheduled = False
        for claim in list(self._waiting):
            if claim in self._waiting and self._take(claim, claim.wanted_bytes):
                del self._waiting[claim]
                claim.wanted_bytes = 0
                claim.on_progress()
                claim.owner.on_memory_granted()

    def _give_up_slow_frames(self) -> None:
        self._timer = None
        if not self._waiting:
            return
        now = asyncio.get_running_loop().time()
        for claim in [claim for claim in self._claims if not claim.is_complete]:
            stalled = not claim.wanted_bytes and now - claim.progress_at >= STALLED_S
            if stalled or now - claim.began_at >= TOO_OLD_S:
                claim.owner.on_frame_too_slow()
        if self._waiting:
            self._timer = asyncio.get_running_loop().call_later(CHECK_INTERVAL_S, self._give_up_slow_frames)
