"""The buckets of durations, compared with the sorted list of all durations."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftwerk.cluster.metrics.latency import QUANTILES, WINDOW_S, Latency, bucket_of, upper_bound_s

DURATIONS = st.floats(1e-6, 1e5, allow_nan=False)


@given(DURATIONS)
def test_a_bucket_holds_what_it_says_within_seven_percent(duration_s: float) -> None:
    bucket = bucket_of(duration_s)
    assert duration_s <= upper_bound_s(bucket) * (1 + 1e-9)
    assert upper_bound_s(bucket) <= duration_s * 1.07


@given(st.lists(DURATIONS, min_size=1, max_size=200))
def test_quantiles_are_those_of_the_sorted_list(durations: list[float]) -> None:
    latency = Latency()
    for one in durations:
        latency.observe(one)
    ordered = sorted(durations)
    for quantile, found_s in latency.quantiles_s(1.0):
        expected_s = ordered[math.ceil(quantile * len(ordered)) - 1]
        assert expected_s * (1 - 1e-9) <= found_s <= expected_s * 1.07
    assert latency.count == len(durations)
    assert latency.sum_s == pytest.approx(math.fsum(durations))


def test_quantiles_forget_after_two_windows() -> None:
    latency = Latency()
    latency.observe(0.5)
    assert len(latency.quantiles_s(100.0)) == len(QUANTILES)
    latency.observe(0.001)
    assert dict(latency.quantiles_s(101 + WINDOW_S))[0.99] < 0.01
    assert latency.quantiles_s(200 + 5 * WINDOW_S) == []
    assert latency.count == 2


def test_nothing_is_too_short_or_too_long() -> None:
    assert bucket_of(0.0) == 0
    assert bucket_of(1e12) == bucket_of(1e13)
