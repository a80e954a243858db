"""Delayed operations on a clock that the test moves."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftwerk.isr.purgatory.purgatory import DelayedFetch, DelayedProduce, Purgatory, UncommittedAppend
from raftwerk.runtime.incremental_work import ITEMS_PER_STEP, Work
from raftwerk.runtime.timer_wheel import TimerHandle, TimerWheel
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.produce import ProducePartitionResponse
from raftwerk.wire.types import LeaderIdAndEpoch, TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
TIMED_OUT = int(ErrorCode.REQUEST_TIMED_OUT)


class FakeClock:
    """`Timers` over the product's wheel."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.wheel = TimerWheel()

    def add(self, delay_ms: int, callback: Callable[[], None]) -> TimerHandle:
        return self.wheel.add(self.now_ms + delay_ms, callback)

    def advance(self, by_ms: int) -> None:
        self.now_ms += by_ms
        for callback in self.wheel.advance(self.now_ms):
            callback()


class Rig:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.purgatory = Purgatory(self.clock)
        self.answers: list[list[int]] = []
        self.woken: list[str] = []

    def produce(self, *waits: tuple[TopicPartition, int], timeout_ms: int = 100) -> DelayedProduce:
        rows = [ProducePartitionResponse(key.partition, 0, offset - 1) for key, offset in waits]
        operation = DelayedProduce(rows, lambda rows: self.answers.append([int(row.error_code) for row in rows]))
        appends = [UncommittedAppend(key, offset, row) for row, (key, offset) in zip(rows, waits, strict=True)]
        self.purgatory.park_produce(operation, appends, timeout_ms)
        return operation

    def fetch(
        self, name: str, *keys: TopicPartition, missing: int = 1, replica: int = -1, wait_ms: int = 50
    ) -> DelayedFetch:
        operation = DelayedFetch(lambda: self.woken.append(name), list(keys), missing, replica)
        self.purgatory.park_fetch(operation, wait_ms)
        return operation

    def committed(self, key: TopicPartition, high_watermark: int, size: int = 10, error: int = 0) -> None:
        self.purgatory.on_high_watermark(key, high_watermark, size, size, error)


def test_produce_is_answered_when_its_last_partition_is_committed() -> None:
    rig = Rig()
    rig.produce((A, 5), (B, 7))
    rig.committed(A, 5)
    rig.committed(B, 6)
    assert not rig.answers
    rig.committed(B, 7)
    assert rig.answers == [[0, 0]]
    assert len(rig.clock.wheel) == 0, "the time-out is cancelled"


def test_time_out_answers_with_what_is_known() -> None:
    rig = Rig()
    rig.produce((A, 5), (B, 7))
    rig.committed(A, 5)
    rig.clock.advance(99)
    assert not rig.answers
    rig.clock.advance(1)
    assert rig.answers == [[0, TIMED_OUT]]
    rig.committed(B, 7)
    assert len(rig.answers) == 1
    assert rig.purgatory.sizes() == (0, 0)


def test_error_of_a_late_commit_is_passed_on() -> None:
    rig = Rig()
    rig.produce((A, 5))
    rig.committed(A, 5, error=int(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND))
    assert rig.answers == [[20]]


def test_duplicate_of_an_older_batch_does_not_wait_for_newer_ones() -> None:
    rig = Rig()
    rig.produce((A, 9))
    rig.produce((A, 4))
    rig.committed(A, 4)
    assert rig.answers == [[0]]


def test_an_answer_may_park_a_produce_for_an_earlier_offset() -> None:
    """The callback of the first one waits for less than the second one. Each partition is settled once."""
    rig = Rig()
    row = ProducePartitionResponse(0)

    def answered(_: list[ProducePartitionResponse]) -> None:
        rig.produce((A, 4))

    first = DelayedProduce([row], answered)
    rig.purgatory.park_produce(first, [UncommittedAppend(A, 3, row)], 100)
    rig.produce((A, 5), (B, 7))
    rig.committed(A, 5)
    assert rig.answers == [[0]]
    rig.committed(A, 6)
    assert rig.answers == [[0]], "the second one waits for its other partition"
    rig.committed(B, 7)
    assert rig.answers == [[0], [0, 0]]
    assert rig.purgatory.sizes() == (0, 0)


def test_lost_leadership_answers_with_the_leader() -> None:
    rig = Rig()
    hints = []
    row = ProducePartitionResponse(0)
    operation = DelayedProduce([row], lambda rows: hints.append(rows[0].current_leader))
    rig.purgatory.park_produce(operation, [UncommittedAppend(A, 5, row)], 100)
    rig.fetch("f", A)
    rig.purgatory.on_role_lost(A, 6, LeaderIdAndEpoch(2, 9))
    assert hints == [LeaderIdAndEpoch(2, 9)] and row.error_code == 6
    assert rig.woken == ["f"]


@pytest.mark.parametrize("broker", [0, 2])
def test_followers_wait_for_the_log_and_consumers_for_the_high_watermark(broker: int) -> None:
    rig = Rig()
    rig.fetch("consumer", A)
    rig.fetch("follower", A, replica=broker)
    rig.purgatory.on_appended(A, 10)
    assert rig.woken == ["follower"]
    rig.committed(A, 1)
    assert rig.woken == ["follower", "consumer"]


def test_bytes_of_all_partitions_add_up() -> None:
    rig = Rig()
    rig.fetch("f", A, B, missing=25)
    rig.committed(A, 1)
    rig.committed(B, 1)
    assert not rig.woken
    rig.committed(A, 2, size=5)
    assert rig.woken == ["f"]
    rig.committed(B, 2, size=500)
    assert rig.woken == ["f"] and rig.purgatory.sizes() == (0, 0)


def test_fetch_ends_with_its_time_or_is_forgotten() -> None:
    rig = Rig()
    rig.fetch("timed", A)
    gone = rig.fetch("gone", A)
    assert gone.cancel() and not gone.cancel()
    rig.clock.advance(50)
    assert rig.woken == ["timed"] and not gone.cancel()


def test_completion_may_park_again() -> None:
    rig = Rig()

    def park_again() -> None:
        rig.fetch("again", A)

    operation = DelayedFetch(park_again, [A], 1, -1)
    rig.purgatory.park_fetch(operation, 50)
    rig.committed(A, 1)
    assert rig.purgatory.sizes() == (0, 1) and not rig.woken


def test_a_follower_that_is_expected_to_ask_for_more_is_answered_soon() -> None:
    rig = Rig()
    rig.fetch("expected", A, replica=2)
    rig.fetch("another", A, replica=3)
    rig.purgatory.shorten_wait(2, 10)
    rig.purgatory.shorten_wait(2, 40)
    assert len(rig.clock.wheel) == 2, "the former time-out is cancelled"
    rig.clock.advance(9)
    assert not rig.woken
    rig.clock.advance(1)
    assert rig.woken == ["expected"]
    rig.clock.advance(40)
    assert rig.woken == ["expected", "another"]


class Stepping:
    """A `FetchCaller` that leaves all work to the test."""

    on_gone: Callable[[], object] | None = None
    is_gone = False

    def __init__(self) -> None:
        self.work: list[Work[None]] = []

    def run_in_steps(self, work: Work[None]) -> None:
        self.work.append(work)

    def charge(self, items: int) -> None: ...


def test_a_fetch_of_many_partitions_enters_and_leaves_their_lists_in_steps() -> None:
    rig, caller, woken = Rig(), Stepping(), []
    keys = [TopicPartition("many", index) for index in range(2 * ITEMS_PER_STEP + 1)]
    operation = DelayedFetch(lambda: woken.append(1), keys, 1, -1, caller=caller)
    assert len(list(rig.purgatory.listing(operation))) == 3
    rig.committed(keys[-1], 1)
    assert woken == [1]
    (leaving,) = caller.work
    assert len(list(leaving)) == 3
    rig.committed(keys[-1], 2)
    assert woken == [1]
    assert rig.purgatory.sizes() == (0, 0)


def test_close_answers_all() -> None:
    rig = Rig()
    rig.produce((A, 5))
    rig.fetch("f", B)
    rig.purgatory.close()
    assert rig.answers == [[6]] and rig.woken == ["f"]
    assert len(rig.clock.wheel) == 0


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("produce"), st.integers(1, 3), st.integers(1, 60)),
            st.tuples(st.just("commit"), st.integers(0, 4)),
            st.tuples(st.just("wait"), st.integers(1, 40)),
            st.tuples(st.just("lose")),
        ),
        max_size=60,
    )
)
def test_every_produce_is_answered_once_and_rightly(steps: list[tuple[Any, ...]]) -> None:
    rig = Rig()
    end = high_watermark = 0
    expected: dict[int, tuple[int, int]] = {}
    got: dict[int, int] = {}
    for number, step in enumerate(steps):
        if step[0] == "produce":
            end += step[1]
            expected[number] = (end, rig.clock.now_ms + step[2])
            row = ProducePartitionResponse(0)

            def done(rows: list[ProducePartitionResponse], number: int = number) -> None:
                assert number not in got
                got[number] = int(rows[0].error_code)

            rig.purgatory.park_produce(DelayedProduce([row], done), [UncommittedAppend(A, end, row)], step[2])
        elif step[0] == "commit":
            high_watermark = min(end, high_watermark + step[1])
            rig.committed(A, high_watermark)
        elif step[0] == "wait":
            rig.clock.advance(step[1])
        else:
            rig.purgatory.on_role_lost(A, 6, None)
        for parked, (offset, deadline) in expected.items():
            if parked not in got:
                assert offset > high_watermark and deadline > rig.clock.now_ms and step[0] != "lose"
            elif got[parked] == 0:
                assert offset <= high_watermark
    assert rig.purgatory.sizes()[0] == len(expected) - len(got)


def test_a_fetch_that_is_answered_before_its_time_leaves_no_time_out_behind() -> None:
    """A busy broker answers thousands a second: their time-outs would be half a second's worth of memory and work."""
    rig = Rig()
    rig.fetch("f", A)
    rig.committed(A, 1)
    assert rig.woken == ["f"]
    assert len(rig.clock.wheel) == 0


class Keys(list[TopicPartition]):
    """The partitions of a fetch; a test can see when nothing refers to them any more."""


@pytest.mark.parametrize("replica", [-1, 2])
@pytest.mark.parametrize("end", ["answered", "timed out", "cancelled"])
def test_a_fetch_that_has_ended_is_kept_by_nothing(end: str, replica: int) -> None:
    """A partition without records would else collect all fetches that have ever waited for it."""
    rig = Rig()
    keys = Keys([A, B])
    kept = weakref.ref(keys)
    operation = DelayedFetch(lambda: None, keys, 1, replica)
    rig.purgatory.park_fetch(operation, 50)
    if end == "answered":
        rig.committed(A, 1)
        rig.purgatory.on_appended(A, 1)
    elif end == "timed out":
        rig.clock.advance(50)
    else:
        assert operation.cancel()
    del operation, keys
    assert kept() is None
    assert rig.purgatory.sizes() == (0, 0)


def test_a_node_that_stops_answers_everything() -> None:
    """Also the fetch of a follower's session, which waits for no partition by name."""
    rig = Rig()
    rig.produce((A, 5), (B, 7))
    rig.fetch("consumer", A)
    rig.fetch("follower", B, replica=2)
    rig.fetch("session", replica=3)
    rig.purgatory.close()
    code = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert rig.answers == [[code, code]]
    assert sorted(rig.woken) == ["consumer", "follower", "session"]
    assert rig.purgatory.sizes() == (0, 0) and len(rig.clock.wheel) == 0


def test_the_fetches_of_one_follower_are_answered_and_no_others() -> None:
    rig = Rig()
    for replica in (2, 3, -1):
        rig.fetch(f"of {replica}", A, replica=replica)
    rig.fetch("session of 2", replica=2)
    rig.purgatory.finish_fetches_of(2)
    rig.purgatory.finish_fetches_of(9)
    assert rig.woken == ["of 2", "session of 2"]


def test_a_consumer_of_committed_transactions_waits_for_stable_bytes_only() -> None:
    rig = Rig()
    operation = DelayedFetch(lambda: rig.woken.append("stable"), [A], 10, -1, is_read_committed=True)
    rig.purgatory.park_fetch(operation, 50)
    rig.fetch("any", A, missing=10)
    rig.purgatory.on_high_watermark(A, 1, 10, 9, 0)
    assert rig.woken == ["any"]
    rig.purgatory.on_high_watermark(A, 2, 0, 1, 0)
    assert rig.woken == ["any", "stable"]


def test_what_is_told_of_one_partition_answers_no_fetch_of_another() -> None:
    rig = Rig()
    for replica in (-1, 2):
        rig.fetch(f"of {replica}", A, replica=replica)
    rig.committed(B, 1)
    rig.purgatory.on_appended(B, 10)
    rig.purgatory.on_role_lost(B, 6, None)
    rig.purgatory.finish_fetches(B)
    assert rig.woken == []
    assert rig.purgatory.sizes() == (0, 2)
