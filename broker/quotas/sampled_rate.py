"""A rate over the last samples of time, as Apache Kafka measures it for quotas (its classes `Rate` and `SampledStat`).

A sample begins with what is recorded first after the end of the one before. The rate is what the live samples hold,
divided by the time since the oldest of them began, to which full samples are added up to one less than their number.
So a client that was idle may send as much at once as its quota gives for that time, ten seconds by default.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class QuotaWindow:
    """`quota.window.num` samples, each of `quota.window.size.seconds` (here in milliseconds)."""

    num: int = 11
    size_ms: int = 1_000

    @property
    def total_ms(self) -> int:
        """After this time without requests nothing is left of a rate."""
        return self.num * self.size_ms


DEFAULT_WINDOW = QuotaWindow()
THROTTLE_MS_MAX = 2**31 - 1
"""The longest throttle time that an answer can say."""


def throttle_time_ms(wait_ms: float) -> int:
    """A time to wait as a throttle time; of a tiny quota it is endless, and of an infinite one it may be no number."""
    return round(min(max(0.0, wait_ms), THROTTLE_MS_MAX))


class SampledRate:
    """Pure; times are milliseconds of any monotonic clock."""

    __slots__ = ("_samples", "_total", "_window", "throttled_ms")

    def __init__(self, window: QuotaWindow) -> None:
        self._window = window
        self.throttled_ms = 0
        """For how long its user was throttled last; it is here for metrics."""
        self._samples: deque[list[float]] = deque()
        """Begin, time of the last record and amount of each sample, oldest first."""
        self._total = 0.0

    def record(self, amount: float, now_ms: int) -> None:
        """Add an amount."""
        samples = self._samples
        if samples and now_ms - samples[-1][0] < self._window.size_ms:
            last = samples[-1]
            last[1] = now_ms
            last[2] += amount
        else:
            samples.append([now_ms, now_ms, amount])
        self._total += amount

    def rate(self, now_ms: int) -> float:
        """The amount a second."""
        elapsed_ms = self._elapsed_ms(now_ms)
        return self._total * 1000 / elapsed_ms

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """After how long the rate is down at `limit`, if nothing more is recorded; 0 where it is not above it."""
        elapsed_ms = self._elapsed_ms(now_ms)
        return throttle_time_ms(self._total * 1000 / limit - elapsed_ms)

    def is_idle(self, now_ms: int) -> bool:
        """Whether nothing is left of what was recorded."""
        self._elapsed_ms(now_ms)
        return not self._samples

    def _elapsed_ms(self, now_ms: int) -> int:
        window, samples = self._window, self._samples
        while samples and now_ms - samples[0][1] >= window.total_ms:
            self._total -= samples.popleft()[2]
        if not samples:
            self._total = 0.0
        elapsed_ms = now_ms - int(samples[0][0]) if samples else 0
        missing = window.num - 1 - elapsed_ms // window.size_ms
        if missing > 0:
            elapsed_ms += missing * window.size_ms
        return max(elapsed_ms, window.size_ms)


class RatesInUse(Generic[K]):
    """A rate for each key. One of which nothing is left in its window is forgotten, so that new keys fill no memory."""

    def __init__(self, window: QuotaWindow) -> None:
        self._window = window
        self._rates: dict[K, SampledRate] = {}
        """In the order of their last use."""

    def use(self, key: K, now_ms: int) -> SampledRate:
        """The rate of a key, which is the one used last from now on."""
        rate = self._rates.pop(key, None)
        if rate is None:
            self._forget_idle(now_ms)
            rate = SampledRate(self._window)
        self._rates[key] = rate
        return rate

    def latest(self, now_ms: int, count_max: int) -> list[tuple[K, SampledRate]]:
        """The rates that were used last, at most so many."""
        self._forget_idle(now_ms)
        return list(self._rates.items())[-count_max:]

    def clear(self) -> None:
        """Forget all."""
        self._rates.clear()

    def _forget_idle(self, now_ms: int) -> None:
        while self._rates:
            key, rate = next(iter(self._rates.items()))
            if not rate.is_idle(now_ms):
                return
            del self._rates[key]
