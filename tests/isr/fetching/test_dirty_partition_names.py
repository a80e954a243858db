"""A change of a partition is found by its name in each session, and a clean one counts as fetched until then."""

from __future__ import annotations

from uuid import UUID

from support.isr.replicas import TOPIC_ID, TP, FakeBrokers, Reg, make_runtime, open_log

from raftwerk.isr.fetching.dirty_partitions import DirtyPartitions, DirtyPartitionTracker
from raftwerk.isr.leader.leader_state import LeaderConfig
from raftwerk.isr.partition import Partition
from raftwerk.isr.ports import FetchKey
from raftwerk.isr.replica import Replica
from raftwerk.wire.types import TopicPartition

KEY = FetchKey(TOPIC_ID, 0)
OTHER = FetchKey(UUID(int=78), 0)


def leading() -> Replica:
    """Broker 1 leads, and 2 follows."""
    runtime, _ = make_runtime()
    partition = Partition(TP, LeaderConfig(1, 1, 1000), FakeBrokers({1: 101, 2: 102}), 0)
    replica = Replica(TOPIC_ID, partition, open_log(runtime), lambda replica: None)
    replica.make_leader(Reg((1, 2), (1, 2), 1, 5, 10), 0)
    return replica


def clean_session(tracker: DirtyPartitionTracker) -> DirtyPartitions:
    """A session of follower 2 with the partition, which it has looked at."""
    session = tracker.open(2)
    for key, name in ((KEY, TP), (OTHER, TopicPartition("u", 0))):
        session.add(key)
        session.set_name(key, name)
    assert session.take() == [KEY, OTHER]
    return session


def test_a_change_makes_it_dirty_in_each_session() -> None:
    tracker, replica = DirtyPartitionTracker(), leading()
    first, second = clean_session(tracker), clean_session(tracker)
    tracker.on_changed(replica)
    assert first.take() == second.take() == [KEY]
    assert first.take() == []


def test_what_is_fetched_no_more_is_not_found() -> None:
    tracker, replica = DirtyPartitionTracker(), leading()
    removed, closed = clean_session(tracker), clean_session(tracker)
    removed.remove(KEY)
    closed.close()
    tracker.on_changed(replica)
    assert removed.take() == closed.take() == []
    removed.mark(KEY)
    assert removed.take() == []


def test_until_it_changes_each_fetch_counts_for_the_follower() -> None:
    """Else a follower that has all records would seem to be silent, and leave the ISR at the first new record."""
    tracker, replica = DirtyPartitionTracker(), leading()
    session = clean_session(tracker)
    leader = replica.partition.leader
    assert leader is not None
    leader.on_follower_fetch(leader.check_follower(2, 102), 102, (0, 0), 0, 100)
    session.on_fetch(900)
    assert not leader.followers[2].has_fetched_within(500, 1000)
    tracker.on_changed(replica)
    assert leader.followers[2].has_fetched_within(500, 1000)


def test_a_session_that_has_not_fetched_yet_says_nothing_of_the_follower() -> None:
    tracker, replica = DirtyPartitionTracker(), leading()
    clean_session(tracker)
    leader = replica.partition.leader
    assert leader is not None
    tracker.on_changed(replica)
    assert not leader.followers[2].has_fetched_within(500, 10_000)
