"""A wall clock that follows the simulator's virtual time, with an offset that a fault may move."""

from __future__ import annotations

from collections.abc import Callable

SIMULATION_EPOCH_MS = 1_750_000_000_000


class SimClock:
    """`Clock` of one host. `now_s` is the virtual time since the simulation began."""

    def __init__(self, now_s: Callable[[], float], offset_ms: int = 0) -> None:
        self._now_s = now_s
        self._offset_ms = offset_ms

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch, as this host believes."""
        return SIMULATION_EPOCH_MS + self._offset_ms + round(self._now_s() * 1000)

    def jump(self, by_ms: int) -> None:
        """Set the clock forward, or back."""
        self._offset_ms += by_ms
