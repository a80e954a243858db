"""The fetch of a follower that is to fetch another partition is parked only briefly."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from raftwerk.isr.leader.expected_first_fetches import EXPECTED_WAIT_MS, ExpectedFetches
from raftwerk.isr.purgatory.purgatory import DelayedFetch, Purgatory
from raftwerk.runtime.timer_wheel import TimerHandle, TimerWheel
from raftwerk.wire.types import TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


class Clock:
    """`Timers` of a clock that the test moves."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.wheel = TimerWheel()

    def add(self, delay_ms: int, callback: Callable[[], None]) -> TimerHandle:
        return self.wheel.add(self.now_ms + delay_ms, callback)

    def advance(self, by_ms: int) -> None:
        self.now_ms += by_ms
        for callback in self.wheel.advance(self.now_ms):
            callback()


def test_fetches_are_short_until_all_partitions_were_fetched() -> None:
    expected = ExpectedFetches(Purgatory(Clock()))
    expected.expect(A, [2], 1000)
    expected.expect(B, [2], 1000)
    assert expected.wait_ms(2, 500, 1001) == EXPECTED_WAIT_MS
    assert expected.wait_ms(2, 5, 1001) == 5, "never longer than it asks for"
    assert expected.wait_ms(3, 500, 1001) == 500, "nothing is expected of another follower"
    expected.on_fetched(2, A)
    expected.on_fetched(3, B)
    assert expected.wait_ms(2, 500, 1002) == EXPECTED_WAIT_MS
    expected.on_fetched(2, B)
    assert expected.wait_ms(2, 500, 1003) == 500


def test_a_follower_that_does_not_fetch_is_given_up_after_two_seconds() -> None:
    expected = ExpectedFetches(Purgatory(Clock()))
    expected.expect(A, [2], 1000)
    assert expected.wait_ms(2, 500, 2999) == EXPECTED_WAIT_MS
    assert expected.wait_ms(2, 500, 3000) == 500
    assert expected.wait_ms(2, 500, 2999) == 500, "it was given up"
    expected.expect(A, [2], 3000)
    assert expected.wait_ms(2, 500, 4999) == EXPECTED_WAIT_MS


def test_a_parked_fetch_is_answered_soon_and_once() -> None:
    clock = Clock()
    answers: list[str] = []
    purgatory = Purgatory(clock)
    expected = ExpectedFetches(purgatory)
    for replica_id in (0, 2, 3):
        operation = DelayedFetch(partial(answers.append, f"fetch of {replica_id}"), [A], 1, replica_id)
        purgatory.park_fetch(operation, 500)
    expected.expect(B, [0, 2], 0)
    clock.advance(EXPECTED_WAIT_MS - 1)
    expected.expect(B, [2], clock.now_ms)
    assert answers == []
    clock.advance(1)
    assert answers == ["fetch of 0", "fetch of 2"], "a second partition does not make it wait longer"
    assert len(clock.wheel) == 1, "only the other follower's fetch still waits"
    assert purgatory.sizes() == (0, 1)
