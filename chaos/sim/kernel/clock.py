"""A wall clock on virtual time, with an offset and a rate that faults change."""

from __future__ import annotations

from collections.abc import Callable

SIMULATION_EPOCH_MS = 1_750_000_000_000


class SimClock:
    """The `Clock` of one host. `now_s` gives the virtual time since the simulation began."""

    def __init__(self, now_s: Callable[[], float], offset_ms: int = 0) -> None:
        self._now_s = now_s
        self._offset_ms = float(offset_ms)
        self._drift = 0.0

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch, by the clock of this host."""
        return SIMULATION_EPOCH_MS + round(self._offset_ms + self._now_s() * 1000 * (1 + self._drift))

    def jump(self, by_ms: int) -> None:
        """Set the clock forward, or back if negative."""
        self._offset_ms += by_ms

    def drift(self, rate: float) -> None:
        """Run faster by this rate from now on (0.01: ten milliseconds a second), or slower if negative."""
        self._offset_ms += self._now_s() * 1000 * (self._drift - rate)
        self._drift = rate
