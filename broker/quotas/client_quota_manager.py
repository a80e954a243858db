"""The quota of one kind, such as `producer_byte_rate`, for all clients of a broker."""

from __future__ import annotations

from typing import NamedTuple

from .client_limits import ClientLimits
from .quota_entities import Bucket, Quotas
from .sampled_rate import THROTTLE_MS_MAX, QuotaWindow, RatesInUse


class Usage(NamedTuple):
    """What a bucket has used, for metrics."""

    bucket: Bucket
    rate: float
    throttle_ms: int


class ClientQuotaManager(ClientLimits):
    """Measures what clients use, and says how long each is throttled. Pure; times are in milliseconds of the loop."""

    def __init__(self, key: str, window: QuotaWindow, throttle_ms_max: int = THROTTLE_MS_MAX) -> None:
        super().__init__(key)
        self._window = window
        self._throttle_ms_max = throttle_ms_max
        self._rates: RatesInUse[Bucket] = RatesInUse(window)

    def on_change(self, quotas: Quotas) -> None:
        """These quotas hold from now on. What was measured stays."""
        super().on_change(quotas)
        if not self.is_on:
            self._rates.clear()

    def window_max(self, user: str, client_id: str) -> float | None:
        """The most that a client may use at once after it was idle; None without a limit."""
        found = self.limit(user, client_id)
        return None if found is None else found[0] * max(self._window.num - 1, 1) * self._window.size_ms / 1000

    def record(self, user: str, client_id: str, amount: float, now_ms: int) -> int:
        """Count what a client uses; returns for how many milliseconds it is throttled."""
        found = self.limit(user, client_id)
        if found is None:
            return 0
        limit, bucket = found
        rate = self._rates.use(bucket, now_ms)
        rate.record(amount, now_ms)
        rate.throttled_ms = min(rate.throttle_ms(limit, now_ms), self._throttle_ms_max)
        return rate.throttled_ms

    def usage(self, now_ms: int, count_max: int) -> list[Usage]:
        """What the buckets that were used last have used, at most so many of them."""
        latest = self._rates.latest(now_ms, count_max)
        return [Usage(bucket, rate.rate(now_ms), rate.throttled_ms) for bucket, rate in latest]
