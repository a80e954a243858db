"""How long a follower waits for an answer."""

from __future__ import annotations

from raftwerk.isr.follower.fetch_request_timeout import FetchRequestTimeout


def test_the_timeout_follows_the_maximal_wait_and_doubles_each_time_in_a_row() -> None:
    timeout = FetchRequestTimeout(0.5, 30.0)
    now, waited = 100.0, []
    for _ in range(6):
        timeout.on_sent(7, now)
        assert not timeout.is_over(7, timeout.deadline - 0.001)
        waited.append(timeout.deadline - now)
        now = timeout.deadline
        assert timeout.is_over(7, now)
    assert waited == [2.5, 5.0, 10.0, 20.0, 30.0, 30.0]
    timeout.on_answer()
    timeout.on_sent(7, now)
    assert timeout.deadline == now + 2.5


def test_received_bytes_extend_the_time_up_to_a_limit() -> None:
    timeout = FetchRequestTimeout(0.5, 30.0)
    timeout.on_sent(0, 0.0)
    received, looks = 0, 0
    while True:
        received += 1000
        looks += 1
        now = timeout.deadline
        if timeout.is_over(received, now):
            break
        assert timeout.deadline > now
    assert now == 30.0
    assert looks == 12


def test_a_node_that_stood_still_waits_again() -> None:
    timeout = FetchRequestTimeout(0.5, 30.0)
    timeout.on_sent(0, 0.0)
    assert not timeout.is_over(0, 9.0)
    assert timeout.deadline == 11.5
    assert timeout.is_over(0, 11.5)


def test_the_socket_timeout_is_the_limit() -> None:
    timeout = FetchRequestTimeout(0.5, 1.0)
    timeout.on_sent(0, 0.0)
    assert timeout.deadline == 1.0
