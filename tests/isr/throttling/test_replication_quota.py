"""The quota of replication against what it says, read plainly; and what a greedy sender gets through."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from raftwerk.isr.throttling.replication_quota import UNLIMITED, ReplicationQuota

steps = st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 5000)), max_size=60)
"""Pauses in milliseconds and bytes."""


def plain_rate(events: list[tuple[int, int]], num: int, size_ms: int, now_ms: int) -> tuple[int, int]:
    """Bytes that count, and the time that they count for."""
    live = [(at, size) for at, size in events if size and at // size_ms > now_ms // size_ms - num]
    begin = min((at // size_ms * size_ms for at, _ in live), default=now_ms)
    return sum(size for _, size in live), max(now_ms - begin, size_ms)


@given(steps, st.integers(1, 12), st.sampled_from([100, 1000, 3000]), st.integers(0, 3000))
def test_rate_and_available_bytes_are_those_of_the_live_windows(
    moves: list[tuple[int, int]], num: int, size_ms: int, limit: int
) -> None:
    quota, events, now_ms = ReplicationQuota(num, size_ms), [], 5_000_123
    quota.bytes_per_s = limit
    for pause_ms, size in moves:
        now_ms += pause_ms
        quota.record(size, now_ms)
        events.append((now_ms, size))
        live_bytes, elapsed_ms = plain_rate(events, num, size_ms, now_ms)
        assert quota.rate(now_ms) == live_bytes * 1000 / elapsed_ms
        assert quota.available_bytes(now_ms) == max(limit * elapsed_ms // 1000 - live_bytes, 0)


@given(steps, st.integers(1, 12), st.sampled_from([100, 1000, 3000]), st.integers(0, 3000))
def test_the_wait_ends_when_bytes_are_available_and_not_later(
    moves: list[tuple[int, int]], num: int, size_ms: int, limit: int
) -> None:
    """Before, at each millisecond that may matter, there is none."""
    quota, now_ms = ReplicationQuota(num, size_ms), 7_000_001
    quota.bytes_per_s = limit
    for pause_ms, size in moves:
        now_ms += pause_ms
        quota.record(size, now_ms)
    wait_ms = quota.wait_ms(now_ms)
    assert (wait_ms == 0) == (quota.available_bytes(now_ms) > 0)
    for early_ms in range(0, wait_ms, max(wait_ms // 50, 1)):
        assert quota.available_bytes(now_ms + early_ms) == 0


@given(
    st.integers(1000, 1_000_000),
    st.integers(1, 300_000),
    st.lists(st.integers(0, 700), min_size=1, max_size=300),
    st.integers(2, 11),
)
def test_a_sender_that_never_waits_gets_only_the_quota(rate: int, piece: int, pauses: list[int], num: int) -> None:
    """In any windows in a row: what the quota gives for them, plus one piece that was too large."""
    quota, now_ms, sent = ReplicationQuota(num, 1000), 3_000_000, []
    quota.bytes_per_s = rate
    for pause_ms in pauses:
        now_ms += pause_ms
        if quota.available_bytes(now_ms) > 0:
            quota.record(piece, now_ms)
            sent.append((now_ms // 1000, piece))
    for first in dict(sent):
        in_row = sum(size for number, size in sent if first <= number < first + num)
        assert in_row <= rate * num + piece


@given(st.integers(10_000, 1_000_000), st.integers(1, 100_000))
def test_a_sender_that_waits_as_told_gets_nearly_all_of_the_quota(rate: int, piece: int) -> None:
    """One that always has more to send, and waits as it is told, is near the rate after a minute."""
    quota, now_ms, sent, asked = ReplicationQuota(11, 1000), 0, 0, 0
    quota.bytes_per_s = rate
    while now_ms < 60_000 and asked < 5_000:
        asked += 1
        if quota.available_bytes(now_ms) > 0:
            quota.record(piece, now_ms)
            sent += piece
        now_ms += quota.wait_ms(now_ms)
    assert sent >= 0.9 * rate * (now_ms - 1000) / 1000 - piece


def test_unlimited_and_zero_quota() -> None:
    quota = ReplicationQuota(11, 1000)
    assert (quota.available_bytes(5), quota.wait_ms(5)) == (UNLIMITED, 0)
    quota.record(10**12, 5)
    assert quota.available_bytes(6) == UNLIMITED
    quota.bytes_per_s = 0
    assert quota.available_bytes(10**9) == 0
    assert quota.wait_ms(10**9) > 0


def test_nothing_replicated_begins_no_window() -> None:
    """Else the quota would count from an idle time on, and allow the bytes of that time at once."""
    quota = ReplicationQuota(11, 1000)
    quota.bytes_per_s = 100
    quota.record(0, 1000)
    assert quota.available_bytes(5000) == 100


def test_one_byte_per_second_is_waited_for() -> None:
    quota = ReplicationQuota(11, 1000)
    quota.bytes_per_s = 1
    quota.record(3, 5000)
    assert quota.available_bytes(5000) == 0
    assert quota.wait_ms(5000) == 4000, "then four bytes were allowed since the window began"
