"""A wall clock that follows the simulator's virtual time, with an offset and a rate that a fault may change."""

from __future__ import annotations

from collections.abc import Callable

SIMULATION_EPOCH_MS = 1_750_000_000_000


class SimClock:
    """`Clock` of one host. `now_s` is the virtual time since the simulation began."""

    def __init__(self, now_s: Callable[[], float], offset_ms: int = 0) -> None:
        self._now_s = now_s
        self._offset_ms = float(offset_ms)
        self._drift = 0.0

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch, as this host believes."""
        return SIMULATION_EPOCH_MS + round(self._offset_ms + self._now_s() * 1000 * (1 + self._drift))

    def jump(self, by_ms: int) -> None:
        """Set the clock forward, or back."""
        self._offset_ms += by_ms

    def drift(self, rate: float) -> None:
        """From now on run faster than time by this rate (0.01: ten milliseconds a second), or slower; no jump."""
        self._offset_ms += self._now_s() * 1000 * (self._drift - rate)
        self._drift = rate
