"""A limit on log lines about what clients do, so that a client that goes on and on cannot fill the disk."""

from __future__ import annotations

import re

INTERVAL_S = 600.0
ENTRIES_MAX = 1000

_CHOSEN_BY_PEER = re.compile(r"'[^']*'|\S*\d\S*|\b[A-Z_]{2,}\b")
_REASON_CHARS_MAX = 200


def kind_of(reason: str) -> str:
    """The kind of a reason: the text up to a colon, without what the peer chooses: quotations, numbers, APIs."""
    return _CHOSEN_BY_PEER.sub("#", reason[:_REASON_CHARS_MAX].partition(":")[0])


class LogLimiter:
    """Logs each kind of reason once in ten minutes for each peer, and at most a thousand lines in that time.

    Of these at most `kinds_max` are for one peer, if that is given.
    """

    def __init__(self, kinds_max: int | None = None) -> None:
        self._kinds_max = kinds_max
        self._logged_at: dict[tuple[str, str], float] = {}
        """By peer and kind, in the order of the times."""

    def should_log(self, peer: str, reason: str, now: float) -> bool:
        """Whether a line with that reason may be logged now. It then counts as logged."""
        return self.should_log_of_kind(peer, kind_of(reason), now)

    def should_log_of_kind(self, peer: str, kind: str, now: float) -> bool:
        """As `should_log`, with a kind that the caller has found."""
        logged_at = self._logged_at
        while logged_at and now - next(iter(logged_at.values())) >= INTERVAL_S:
            del logged_at[next(iter(logged_at))]
        key = (peer, kind)
        if key in logged_at or len(logged_at) >= ENTRIES_MAX:
            return False
        if self._kinds_max is not None and sum(other == peer for other, _ in logged_at) >= self._kinds_max:
            return False
        logged_at[key] = now
        return True
