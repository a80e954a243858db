"""The high watermark of one replica: the offset below which every record is committed.

A leader advances it to the smallest log end offset among the replicas that it has to wait for (`LeaderState`); a
follower learns it from its leader's answers (`Partition`). Both go through `HighWatermark.advance`. This is the
only place where it moves forward, and the only source of that notification: delayed produces and fetches are completed
from there.
The object outlives changes of role: a follower that becomes leader starts from what it has learnt.
"""

from __future__ import annotations

from collections.abc import Callable


def _ignore() -> None:
    """The default listener."""


class HighWatermark:
    """The offset, and the listener that is called after each advance."""

    __slots__ = ("offset", "on_advanced")

    def __init__(self, offset: int, on_advanced: Callable[[], None] = _ignore) -> None:
        self.offset = offset
        self.on_advanced = on_advanced

    def advance(self, offset: int) -> bool:
        """Move forward to `offset` and tell the listener; false when that is not forward."""
        if offset <= self.offset:
            return False
        self.offset = offset
        self.on_advanced()
        return True

    def forget_listener(self) -> None:
        """The replica is removed. Its listener refers to it, so that each would keep the other in memory."""
        self.on_advanced = _ignore

    def reset(self, offset: int) -> None:
        """Set it without a notification: the log was truncated, or all its records were deleted."""
        self.offset = offset
