"""Rates over samples: against a plain model of Apache Kafka's, and what a client can get through at most."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from raftwerk.broker.quotas.sampled_rate import QuotaWindow, SampledRate

WINDOWS = st.builds(QuotaWindow, st.integers(1, 12), st.sampled_from([100, 1000, 2000]))
EVENTS = st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 5000)), max_size=60)


class KafkaRate:
    """All samples ever made, judged anew each time, as `SampledStat` and `Rate` do it."""

    def __init__(self, window: QuotaWindow) -> None:
        self.window = window
        self.samples: list[tuple[int, int, int]] = []

    def record(self, amount: int, now_ms: int) -> None:
        if self.samples and now_ms - self.samples[-1][0] < self.window.size_ms:
            began_ms, _, before = self.samples.pop()
            self.samples.append((began_ms, now_ms, before + amount))
        else:
            self.samples.append((now_ms, now_ms, amount))

    def rate(self, now_ms: int) -> float:
        window = self.window
        live = [one for one in self.samples if now_ms - one[1] < window.num * window.size_ms]
        elapsed_ms = now_ms - min([one[0] for one in live], default=now_ms)
        full = elapsed_ms // window.size_ms
        elapsed_ms += max(window.num - 1 - full, 0) * window.size_ms
        return sum(one[2] for one in live) / (max(elapsed_ms, window.size_ms) / 1000)


@given(WINDOWS, EVENTS)
def test_the_rate_is_apache_kafkas(window: QuotaWindow, events: list[tuple[int, int]]) -> None:
    rate, model = SampledRate(window), KafkaRate(window)
    now_ms = 0
    for wait_ms, amount in events:
        now_ms += wait_ms
        assert abs(rate.rate(now_ms) - model.rate(now_ms)) < 1e-6
        rate.record(amount, now_ms)
        model.record(amount, now_ms)
        assert abs(rate.rate(now_ms) - model.rate(now_ms)) < 1e-6


@given(st.integers(2, 12), st.integers(10, 10_000), st.data())
def test_a_client_that_sends_as_fast_as_it_may_is_at_the_limit(num: int, limit: int, data: st.DataObject) -> None:
    """Over a long time it gets what the limit gives, and what one window gives at the beginning."""
    window = QuotaWindow(num, 1000)
    rate = SampledRate(window)
    amounts = data.draw(st.lists(st.integers(1, limit), min_size=1, max_size=5))
    now_ms, total, count = 0, 0, 0
    while now_ms < 60_000 and count < 5_000:
        amount = amounts[count % len(amounts)]
        assert total <= limit * (now_ms + window.total_ms) / 1000 + 1, "over by one request at most"
        rate.record(amount, now_ms)
        now_ms += rate.throttle_ms(limit, now_ms)
        total += amount
        count += 1
    assert total >= limit * now_ms / 1000 - 2 * limit


def test_throttle_times_by_hand() -> None:
    """Kafka's (O - T) / T * W, where W is ten seconds at first."""
    rate = SampledRate(QuotaWindow())
    rate.record(10_000, 0)
    assert (rate.rate(0), rate.throttle_ms(1000, 0)) == (1000, 0), "what ten seconds give, at once"
    rate.record(500, 0)
    assert (rate.rate(0), rate.throttle_ms(1000, 0)) == (1050, 500)
    assert rate.throttle_ms(1000, 500) == 0
    rate.record(100_000, 500)
    assert rate.throttle_ms(1000, 500) == 100_000
    assert not rate.is_idle(11_499)
    assert rate.is_idle(11_500)
    assert rate.rate(11_500) == 0
