"""How long a follower waits for an answer of its leader.

A connection may be lost at the leader's end alone: nothing is to come over it any more, and nobody says so. A leader
answers a fetch within its maximal wait, so one that is silent for much longer is asked anew over another connection. It
may as well be slow, by its disk or by what it has to do; so each time in a row it is given twice as long. While bytes
come it is not silent. In no case does a request take longer than `replica.socket.timeout.ms`. Times in seconds.
"""

from __future__ import annotations

_GRACE_S = 2.0
"""Beyond the maximal wait of a fetch, before the leader counts as silent."""
_STALL_S = 0.5
"""Whoever looks that much too late stood still himself, and may have the answer in a buffer."""


class FetchRequestTimeout:
    """Of one fetcher, for one request at a time."""

    def __init__(self, wait_s: float, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._first_s = min(wait_s + _GRACE_S, timeout_s)
        self._allowed_s = self._first_s
        self.sent_at = 0.0
        self._heard_at = 0.0
        self._received_bytes = 0

    @property
    def deadline(self) -> float:
        """When it is over unless something is heard."""
        return min(self._heard_at + self._allowed_s, self.sent_at + self.timeout_s)

    def on_sent(self, received_bytes: int, now: float) -> None:
        """A request left; so much had come over its connection before."""
        self.sent_at = self._heard_at = now
        self._received_bytes = received_bytes

    def on_answer(self) -> None:
        """The leader is as quick as it should be."""
        self._allowed_s = self._first_s

    def is_over(self, received_bytes: int, now: float) -> bool:
        """Whether to give the request up, with its connection; if so, the next one is given longer."""
        late_s = now - self.deadline
        if received_bytes != self._received_bytes or late_s > _STALL_S:
            self._received_bytes = received_bytes
            self._heard_at = now
        if now < self.deadline:
            return False
        self._allowed_s = min(2 * self._allowed_s, self.timeout_s)
        return True
