"""Incremental fetches of followers look at dirty partitions only, and miss no change."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

import pytest
from support.isr.manager_cluster import Cluster
from support.isr.replicas import batch

from raftwerk.isr.fetching.dirty_partitions import DirtyPartitions, DirtyPartitionTracker
from raftwerk.isr.leader.leader_state import LeaderState
from raftwerk.isr.ports import FetchKey
from raftwerk.wire.types import TopicPartition

PARTITIONS = 300


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[FetchKey]:
    """Collects the partitions that incremental fetches of followers look at."""
    seen: list[FetchKey] = []
    take = DirtyPartitions.take

    def collect(self: DirtyPartitions) -> list[FetchKey]:
        taken = take(self)
        seen.extend(taken)
        return taken

    monkeypatch.setattr(DirtyPartitions, "take", collect)
    return seen


def make_cluster(partitions: int = PARTITIONS, *, reads_dirty_only: bool = True, **config: Any) -> Cluster:
    cluster = Cluster(**config)
    cluster.reads_dirty_only = reads_dirty_only
    for node in (1, 2, 3):
        cluster.boot(node)
    cluster.create_topic("t", 7, (1, 2, 3), partitions)
    cluster.tell()
    cluster.sleep(3)
    return cluster


def test_idle_fetches_look_at_a_few_partitions_only(looked_at: list[FetchKey]) -> None:
    cluster = make_cluster()
    looked_at.clear()
    fetches = len(cluster.fetches)
    cluster.sleep(5)
    fetches = len(cluster.fetches) - fetches
    assert 2 * 9 <= fetches <= 2 * 11, "twice a second, by two followers"
    assert len(looked_at) <= 2 * fetches * 25


def test_followers_are_told_at_once_of_a_log_that_begins_later_since_its_retention_is_over() -> None:
    cluster, key = make_cluster(), TopicPartition("t", 299)
    for _ in range(3):
        cluster.produce(1, key)
    cluster.sleep(10)
    cluster.managers[1].partitions[key].log.advance_start(2)
    cluster.on_loop(cluster.managers[1].on_log_start_incremented, key)
    cluster.sleep(1)
    assert [manager.partitions[key].log.log_start_offset for manager in cluster.managers.values()] == [2, 2, 2]


def test_one_busy_partition_costs_the_others_nothing(looked_at: list[FetchKey]) -> None:
    cluster = make_cluster()
    answers = []
    looked_at.clear()
    for _ in range(100):
        answers.append(cluster.produce(1, TopicPartition("t", 5)))
        cluster.sleep(0.005)
    assert all(answer.error == 0 for answer in answers)
    assert len(looked_at) < 100 * 2 * 6


def test_a_follower_without_news_is_not_behind_when_records_come() -> None:
    """It told nothing of the partition for longer than the lag time, but it went on fetching."""
    cluster = make_cluster(1, replica_lag_time_max_ms=2_000)
    cluster.sleep(60)
    tp = TopicPartition("t", 0)
    cluster.mute[(2, 1)] = None
    assert cluster.produce(1, tp, acks=1).error == 0
    cluster.on_loop(cluster.managers[1].shrink_isrs)
    leader = cluster.managers[1].partitions[tp].partition.leader
    assert isinstance(leader, LeaderState)
    assert leader.isr_state.maximal_isr == (1, 2, 3) == leader.isr_state.isr
    assert not cluster.alterations
    cluster.sleep(5)
    assert [replica for replica, _ in cluster.alterations[0].proposal.new_isr] == [1, 3]


@pytest.mark.parametrize("reads_dirty_only", [True, False])
def test_what_is_appended_when_an_append_is_committed_is_replicated_at_once(reads_dirty_only: bool) -> None:
    """It is the fetch of a follower that commits the first one; that follower is not waiting at that moment."""
    cluster = make_cluster(1, reads_dirty_only=reads_dirty_only)
    tp, manager = TopicPartition("t", 0), cluster.managers[1]
    committed: list[float] = []

    def append_next(_rows: object) -> None:
        committed.append(cluster.loop.time())
        if len(committed) < 20:
            manager.append(-1, 1000, [(tp, batch(b"v"))], append_next)

    began = cluster.loop.time()
    cluster.on_loop(manager.append, -1, 1000, [(tp, batch(b"v"))], append_next)
    cluster.sleep(1)
    assert len(committed) == 20
    assert committed[-1] - began < 20 * 0.006, "three times the way between two brokers, for each"


def test_a_change_that_was_not_reported_is_found_in_the_end() -> None:
    cluster = make_cluster(50)
    tp = TopicPartition("t", 33)
    for _ in range(3):
        cluster.produce(1, tp)
    cluster.sleep(2)
    cluster.managers[1].partitions[tp].log.raise_start(2)
    cluster.sleep(5)
    assert cluster.managers[2].partitions[tp].log.log_start_offset == 2


def test_a_partition_that_changes_while_it_is_looked_at_is_dirty_again() -> None:
    partitions = DirtyPartitionTracker().open(2)
    key = FetchKey(UUID(int=7), 0)
    partitions.add(key)
    assert partitions.take() == [key] and partitions.take() == []
    partitions.mark(key)
    assert partitions.take() == [key]
    partitions.remove(key)
    partitions.mark(key)
    assert partitions.take() == []


def play(seed: int, *, reads_dirty_only: bool) -> list[Any]:
    """Produces, leader changes and pauses by seed; what every replica holds in the end, after a while of quiet."""
    rng = random.Random(seed)
    cluster = make_cluster(6, reads_dirty_only=reads_dirty_only, replica_lag_time_max_ms=3_000)
    topic_id = next(iter(cluster.names))
    leaders = dict.fromkeys(range(6), 1)
    for _ in range(60):
        action, index = rng.random(), rng.randrange(6)
        if action < 0.7:
            cluster.produce(leaders[index], TopicPartition("t", index), acks=rng.choice((-1, 1)))
        elif action < 0.8:
            isr = cluster.latest().topics_by_id[topic_id].partitions[index].isr
            leaders[index] = rng.choice(isr)
            cluster.change(topic_id, index, leader=leaders[index])
            cluster.tell(*rng.sample((1, 2, 3), 3))
        elif action < 0.9:
            cluster.mute[(rng.randrange(1, 4), rng.randrange(1, 4))] = None
        else:
            cluster.mute.clear()
            for node in (1, 2, 3):
                cluster.kill_links(node)
        cluster.sleep(rng.choice((0.001, 0.004, 0.1, 1.0)))
    cluster.mute.clear()
    for node in (1, 2, 3):
        cluster.kill_links(node)
    cluster.sleep(8)
    cluster.tell()
    cluster.sleep(8)
    found = []
    for index in range(6):
        replicas = [manager.partitions[TopicPartition("t", index)] for manager in cluster.managers.values()]
        ends = [replica.log_end_offset for replica in replicas]
        marks = [replica.high_watermark for replica in replicas]
        found.append((ends, marks, cluster.latest().topics_by_id[topic_id].partitions[index].isr))
    return found


@pytest.mark.parametrize("seed", range(12))
def test_all_replicas_are_equal_in_the_end(seed: int) -> None:
    for ends, marks, isr in play(seed, reads_dirty_only=True):
        assert len(set(ends)) == len(set(marks)) == 1 and ends[0] == marks[0]
        assert sorted(isr) == [1, 2, 3]
