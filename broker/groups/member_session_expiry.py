"""When a group member's session expires, in both group protocols.

A heartbeat only moves the deadline; a new timer for each heartbeat would cost more. When the timer fires before the
deadline, it is set again, to the deadline. When it fires much later than the deadline, this process
was stopped, and heartbeats may wait unread in its sockets: the member then gets a second more.
"""

from __future__ import annotations

from dataclasses import dataclass

LATE_MS = 500
"""A timer that fires this long after the deadline shows that the process was stopped."""
GRACE_MS = 1_000
"""How much longer the session then lasts, from the moment at which the timer fired."""


@dataclass(slots=True)
class MemberSession:
    """The session of one member: its deadline (monotonic milliseconds), and whether a timer runs for it."""

    deadline_ms: int = 0
    has_timer: bool = False

    def extend(self, now_ms: int, timeout_ms: int) -> bool:
        """Let the session last `timeout_ms` from now. Returns whether a timer must be set, to `deadline_ms`."""
        is_earlier = now_ms + timeout_ms < self.deadline_ms
        self.deadline_ms = now_ms + timeout_ms
        must_set_timer = is_earlier or not self.has_timer
        self.has_timer = True
        return must_set_timer

    def has_expired(self, now_ms: int) -> bool:
        """The timer fired: whether the session is over. If not, the timer must be set again, to `deadline_ms`."""
        if now_ms - self.deadline_ms > LATE_MS:
            self.deadline_ms = now_ms + GRACE_MS
        self.has_timer = self.deadline_ms > now_ms
        return not self.has_timer

    def end(self) -> None:
        """The member is gone, or its timer is cancelled."""
        self.deadline_ms = 0
        self.has_timer = False
