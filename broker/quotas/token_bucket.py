"""A token bucket, as Apache Kafka measures changes of the metadata with it (its class `TokenBucket`, KIP-599)."""

from __future__ import annotations

from .sampled_rate import QuotaWindow, throttle_time_ms


class TokenBucket:
    """Pure. It fills at a rate, up to what the rate gives in the whole window; it may be overdrawn. It begins full."""

    __slots__ = ("_filled_ms", "_tokens", "_window")

    def __init__(self, window: QuotaWindow) -> None:
        self._window = window
        self._tokens: float | None = None
        self._filled_ms = 0

    def tokens(self, rate: float, now_ms: int) -> float:
        """How many tokens there are now; negative when it is overdrawn."""
        burst = rate * self._window.total_ms / 1000
        if self._tokens is None:
            self._tokens = burst
        self._tokens = min(burst, self._tokens + rate * (now_ms - self._filled_ms) / 1000)
        self._filled_ms = now_ms
        return self._tokens

    def take(self, count: float, rate: float, now_ms: int) -> None:
        """Take tokens, also those that are not there yet."""
        self._tokens = self.tokens(rate, now_ms) - count

    def is_full(self, rate: float, now_ms: int) -> bool:
        """Whether it is as at the beginning."""
        return self.tokens(rate, now_ms) >= rate * self._window.total_ms / 1000

    def throttle_ms(self, rate: float, now_ms: int) -> int:
        """After how long it is not overdrawn any more."""
        return throttle_time_ms(-self.tokens(rate, now_ms) * 1000 / rate)
