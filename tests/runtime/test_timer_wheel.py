"""The timing wheel against the obvious twin: a list, sorted at each look."""

from __future__ import annotations

import random
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raftwerk.runtime.invariants import InvariantViolation
from raftwerk.runtime.timer_wheel import TimerHandle, TimerWheel


class SortedTimers:
    """The oracle: everything in one list."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.timers: list[tuple[int, int]] = []

    def add(self, deadline_ms: int, number: int) -> None:
        self.timers.append((max(deadline_ms, self.now_ms), number))

    def cancel(self, number: int) -> bool:
        before = len(self.timers)
        self.timers = [timer for timer in self.timers if timer[1] != number]
        return len(self.timers) < before

    def advance(self, now_ms: int) -> list[int]:
        self.now_ms = now_ms
        due = sorted(timer for timer in self.timers if timer[0] <= now_ms)
        self.timers = [timer for timer in self.timers if timer[0] > now_ms]
        return [number for _, number in due]

    def earliest(self) -> int | None:
        return min((deadline for deadline, _ in self.timers), default=None)


DELTAS = st.one_of(st.integers(-5, 70), st.integers(0, 5000), st.integers(0, 1 << 40), st.sampled_from([63, 64, 4095]))
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), DELTAS),
        st.tuples(st.just("cancel"), st.integers(0, 60)),
        st.tuples(st.just("advance"), st.one_of(st.integers(0, 130), st.integers(0, 10_000), st.integers(0, 1 << 41))),
    ),
    max_size=60,
)


@given(start_ms=st.one_of(st.integers(0, 5000), st.just(1_790_000_000_000)), operations=OPERATIONS)
@settings(max_examples=400)
def test_agrees_with_a_sorted_list(start_ms: int, operations: list[tuple[str, int]]) -> None:
    wheel, oracle = TimerWheel(start_ms), SortedTimers(start_ms)
    handles: list[TimerHandle] = []
    fired: list[int] = []
    now_ms = start_ms
    for operation, argument in operations:
        if operation == "add":
            number = len(handles)
            handles.append(wheel.add(now_ms + argument, partial(fired.append, number)))
            oracle.add(now_ms + argument, number)
        elif operation == "cancel" and argument < len(handles):
            assert handles[argument].cancel() == oracle.cancel(argument)
        elif operation == "advance":
            now_ms += argument
            for callback in wheel.advance(now_ms):
                callback()
            assert fired == oracle.advance(now_ms)
            fired.clear()
        assert len(wheel) == len(oracle.timers)
        assert [handle.active for handle in handles] == [
            any(number == timer[1] for timer in oracle.timers) for number in range(len(handles))
        ]
        bound, earliest = wheel.next_deadline_ms(), oracle.earliest()
        assert (bound is None) == (earliest is None)
        assert bound is None or earliest is None or now_ms <= bound <= earliest


def test_following_next_deadline_reaches_every_timer_exactly_on_time() -> None:
    rng = random.Random(7)
    wheel = TimerWheel(123)
    deadlines = sorted(123 + rng.randrange(1, 10 ** rng.randrange(1, 9)) for _ in range(300))
    seen: list[tuple[int, int]] = []

    def fire(deadline_ms: int) -> None:
        seen.append((wheel.now_ms, deadline_ms))

    for deadline_ms in deadlines:
        wheel.add(deadline_ms, partial(fire, deadline_ms))
    steps = 0
    while (next_ms := wheel.next_deadline_ms()) is not None:
        steps += 1
        for callback in wheel.advance(next_ms):
            callback()
    assert [deadline for _, deadline in seen] == deadlines
    assert all(now_ms == deadline_ms for now_ms, deadline_ms in seen)
    assert steps <= 300 * 6


def test_a_callback_may_add_and_cancel_timers() -> None:
    wheel = TimerWheel()
    victim = wheel.add(20, lambda: None)

    def add_another() -> None:
        wheel.add(10, lambda: None)

    wheel.add(10, add_another)
    (callback,) = wheel.advance(10)
    callback()
    assert victim.cancel()
    assert not victim.cancel()
    assert wheel.next_deadline_ms() == 10
    assert len(wheel.advance(10)) == 1


def test_a_callback_may_cancel_a_timer_that_is_due_with_it() -> None:
    wheel = TimerWheel()
    fired: list[str] = []
    cancelled: list[bool] = []
    wheel.add(10, lambda: cancelled.append(second.cancel()))
    second = wheel.add(10, lambda: fired.append("second"))
    wheel.add(20, lambda: fired.append("third"))
    for callback in wheel.advance(20):
        callback()
    assert (cancelled, fired) == ([True], ["third"])
    assert not second.active and not second.cancel()


def test_time_does_not_go_back() -> None:
    wheel = TimerWheel(100)
    with pytest.raises(InvariantViolation):
        wheel.advance(99)
