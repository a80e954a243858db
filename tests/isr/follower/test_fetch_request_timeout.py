"""How long a follower waits for an answer."""

from __future__ import annotations

from raftwerk.isr.follower.fetch_request_timeout import FetchRequestTimeout


def test_silence_is_over_soon_after_the_maximal_wait_and_twice_as_late_each_time_in_a_row() -> None:
    patience = FetchRequestTimeout(0.5, 30.0)
    now, waited = 100.0, []
    for _ in range(6):
        patience.on_sent(7, now)
        assert not patience.is_over(7, patience.deadline - 0.001)
        waited.append(patience.deadline - now)
        now = patience.deadline
        assert patience.is_over(7, now)
    assert waited == [2.5, 5.0, 10.0, 20.0, 30.0, 30.0]
    patience.on_answer()
    patience.on_sent(7, now)
    assert patience.deadline == now + 2.5


def test_who_gets_bytes_waits_on_but_not_for_ever() -> None:
    patience = FetchRequestTimeout(0.5, 30.0)
    patience.on_sent(0, 0.0)
    received, looks = 0, 0
    while True:
        received += 1000
        looks += 1
        now = patience.deadline
        if patience.is_over(received, now):
            break
        assert patience.deadline > now
    assert now == 30.0
    assert looks == 12


def test_who_stood_still_looks_again() -> None:
    patience = FetchRequestTimeout(0.5, 30.0)
    patience.on_sent(0, 0.0)
    assert not patience.is_over(0, 9.0)
    assert patience.deadline == 11.5
    assert patience.is_over(0, 11.5)


def test_a_short_timeout_is_kept() -> None:
    patience = FetchRequestTimeout(0.5, 1.0)
    patience.on_sent(0, 0.0)
    assert patience.deadline == 1.0
