"""How far groups were behind in the last minutes, as far as somebody looked."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from ..wire.types import TopicPartition

POINTS_MAX = 300
FORGET_AFTER_MS = 15 * 60_000


def lag_of(committed: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> int | None:
    """The records that a group is behind in all partitions; None where it has committed nothing, or no end is known."""
    known = [max(ends[key] - offset, 0) for key, offset in committed.items() if key in ends]
    return sum(known) if known else None


class LagHistory:
    """The lags of groups, by the times at which they were seen. Groups that nobody sees any more are forgotten."""

    def __init__(self) -> None:
        self._points: dict[str, deque[tuple[int, int]]] = {}

    def note(self, at_ms: int, lags: Mapping[str, int | None]) -> None:
        """The groups have these lags now, None for one that is not known. `at_ms` is in milliseconds since 1970."""
        for group_id, lag in lags.items():
            if lag is not None:
                self._points.setdefault(group_id, deque(maxlen=POINTS_MAX)).append((at_ms, lag))
        for group_id in [one for one, points in self._points.items() if points[-1][0] < at_ms - FORGET_AFTER_MS]:
            del self._points[group_id]

    def of(self, group_id: str) -> list[tuple[int, int]]:
        """The times and lags of a group, the oldest first."""
        return list(self._points.get(group_id, ()))
