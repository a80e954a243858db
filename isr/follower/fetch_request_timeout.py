"""How long a follower waits for the answer of its leader.

A connection may be closed at the leader's end without the follower's end learning it: then no answer ever comes. A
leader answers a fetch within the request's maximal wait. If nothing is received for much longer, the follower gives the
request up and connects again. The leader may just be slow, so each time in a row it is given twice as long; the time is
counted from the last bytes received. No request takes longer than `replica.socket.timeout.ms`. Times are in seconds.
"""

from __future__ import annotations

_GRACE_S = 2.0
"""How long the leader may be silent after the maximal wait of a fetch."""
_STALL_S = 0.5
"""If this node looks so late after the deadline, it stood still itself, and the answer may be in a buffer."""


class FetchRequestTimeout:
    """The time-out of one fetcher, for one request at a time. `wait_s` is the maximal wait of a fetch."""

    def __init__(self, wait_s: float, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._first_s = min(wait_s + _GRACE_S, timeout_s)
        self._allowed_s = self._first_s
        self.sent_at = 0.0
        self._heard_at = 0.0
        self._received_bytes = 0

    @property
    def deadline(self) -> float:
        """When the time is over unless bytes are received."""
        return min(self._heard_at + self._allowed_s, self.sent_at + self.timeout_s)

    def on_sent(self, received_bytes: int, now: float) -> None:
        """A request is sent; `received_bytes` were received over its connection before."""
        self.sent_at = self._heard_at = now
        self._received_bytes = received_bytes

    def on_answer(self) -> None:
        """The request is answered: the next one gets the normal time."""
        self._allowed_s = self._first_s

    def is_over(self, received_bytes: int, now: float) -> bool:
        """Whether to give up the request and its connection. If so, the next request gets twice the time."""
        late_s = now - self.deadline
        if received_bytes != self._received_bytes or late_s > _STALL_S:
            self._received_bytes = received_bytes
            self._heard_at = now
        if now < self.deadline:
            return False
        self._allowed_s = min(2 * self._allowed_s, self.timeout_s)
        return True
