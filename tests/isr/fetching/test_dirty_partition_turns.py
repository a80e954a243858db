"""In which order a follower's session looks at its partitions, and what answers a fetch of it that waits."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from support.isr.replicas import TOPIC_ID, TP, FakeBrokers, Reg, make_runtime, open_log

from raftwerk.isr.fetching import dirty_partitions
from raftwerk.isr.fetching.dirty_partitions import (
    AUDIT_INTERVAL_MS,
    AUDITED_AT_ONCE,
    DirtyPartitions,
    DirtyPartitionTracker,
)
from raftwerk.isr.leader.leader_state import LeaderConfig
from raftwerk.isr.partition import Partition
from raftwerk.isr.ports import FetchKey
from raftwerk.isr.purgatory.purgatory import DelayedFetch, Purgatory
from raftwerk.isr.replica import Replica
from raftwerk.runtime.timer_wheel import TimerHandle, TimerWheel

KEYS = [FetchKey(TOPIC_ID, index) for index in range(2 * AUDITED_AT_ONCE + 5)]


class Clock:
    """`Timers` whose time does not pass."""

    def __init__(self) -> None:
        self.wheel = TimerWheel()

    def add(self, delay_ms: int, callback: Callable[[], None]) -> TimerHandle:
        return self.wheel.add(delay_ms, callback)


def leading() -> Replica:
    """Broker 1 leads, and 2 and 3 follow."""
    runtime, _ = make_runtime()
    partition = Partition(TP, LeaderConfig(1, 1, 1000), FakeBrokers({1: 101, 2: 102, 3: 103}), 0)
    replica = Replica(TOPIC_ID, partition, open_log(runtime), lambda replica: None)
    replica.make_leader(Reg((1, 2, 3), (1, 2, 3), 1, 5, 10), 0)
    return replica


def clean(
    tracker: DirtyPartitionTracker, replica_id: int = 2, *, keys: list[FetchKey] | None = None
) -> DirtyPartitions:
    """A session of the follower, which has looked at all its partitions."""
    session = tracker.open(replica_id)
    for key in KEYS if keys is None else keys:
        session.add(key)
    session.take()
    return session


def wait(session: DirtyPartitions, answered: list[int], min_bytes: int = 1) -> None:
    """The session's fetch waits; when it is answered, the follower's id is in the list."""
    operation = DelayedFetch(partial(answered.append, session.replica_id), (), min_bytes, session.replica_id)
    Purgatory(Clock()).park_fetch(operation, 500)
    session.parked = operation


def test_clean_partitions_are_looked_at_in_turn_a_few_at_a_time_and_not_with_each_fetch() -> None:
    """The safety net for a change that nobody has reported. It must cost little, and leave none out."""
    session, looked_at = clean(DirtyPartitionTracker()), []
    for number in range(1, 6):
        session.on_fetch(number * AUDIT_INTERVAL_MS)
        turn = session.take()
        looked_at.append(turn)
        session.on_fetch((number + 1) * AUDIT_INTERVAL_MS - 1)
        assert session.take() == [], "four times a second at most"
    sizes = [len(turn) for turn in looked_at]
    assert sizes == [0, AUDITED_AT_ONCE, AUDITED_AT_ONCE, 5, 0]
    assert [key for turn in looked_at for key in turn] == KEYS


def test_a_partition_that_is_fetched_no_more_is_left_out_when_its_turn_comes() -> None:
    session = clean(DirtyPartitionTracker())
    session.on_fetch(AUDIT_INTERVAL_MS)
    session.remove(KEYS[0])
    session.on_fetch(2 * AUDIT_INTERVAL_MS)
    assert session.take() == KEYS[1:AUDITED_AT_ONCE]


def test_of_many_dirty_partitions_those_that_have_waited_longest_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dirty_partitions, "LOOKED_AT_ONCE", 3)
    session = DirtyPartitionTracker().open(2)
    for key in KEYS[:5]:
        session.add(key)
    assert session.take() == KEYS[:3]
    session.mark(KEYS[0])
    assert session.take() == [KEYS[3], KEYS[4], KEYS[0]]
    assert session.take() == []


def test_records_answer_the_fetches_that_wait_for_so_many_bytes() -> None:
    tracker, replica, answered = DirtyPartitionTracker(), leading(), list[int]()
    for replica_id, min_bytes in ((2, 100), (3, 101)):
        session = clean(tracker, replica_id, keys=KEYS[:1])
        session.set_name(KEYS[0], TP)
        wait(session, answered, min_bytes)
    tracker.on_appended(replica, 60)
    assert answered == []
    tracker.on_appended(replica, 40)
    assert answered == [2]
    tracker.on_appended(replica, 1)
    assert answered == [2, 3]


def test_records_that_a_throttle_keeps_back_do_not_answer_the_fetch() -> None:
    """It would be read in vain each time that a record comes."""
    tracker = DirtyPartitionTracker(lambda replica, replica_id: replica_id == 3)
    replica, answered = leading(), list[int]()
    sessions = [clean(tracker, replica_id, keys=KEYS[:1]) for replica_id in (2, 3)]
    for session in sessions:
        session.set_name(KEYS[0], TP)
        wait(session, answered)
    tracker.on_appended(replica, 100)
    assert answered == [2]
    assert [session.take() for session in sessions] == [KEYS[:1], KEYS[:1]], "and the next fetch looks at it"


def test_a_change_without_records_waits_for_the_next_fetch_and_a_lost_role_does_not() -> None:
    """A high watermark is told with the next answer. Who follows a former leader must look for the present one."""
    tracker, replica, answered = DirtyPartitionTracker(), leading(), list[int]()
    session = clean(tracker, keys=KEYS[:1])
    session.set_name(KEYS[0], TP)
    tracker.on_role_lost(replica)
    assert session.take() == KEYS[:1], "no fetch waits, and the next one looks at it"
    wait(session, answered)
    tracker.on_changed(replica)
    assert answered == []
    tracker.on_role_lost(replica)
    assert answered == [2]


def test_a_partition_is_found_by_its_name_only_in_the_sessions_that_have_it() -> None:
    tracker, replica = DirtyPartitionTracker(), leading()
    session = clean(tracker, keys=KEYS[:1])
    session.set_name(KEYS[1], TP)
    tracker.on_changed(replica)
    assert session.take() == [], "it does not have that partition"
    session.set_name(KEYS[0], TP)
    session.set_name(KEYS[0], TP)
    tracker.on_changed(replica)
    assert session.take() == KEYS[:1]
