"""Incremental fetches look at what has news, and leave out nothing."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from support.isr.manager_cluster import Cluster

from raftwerk.isr.fetching.incremental_fetch_context import Watches
from raftwerk.isr.leader.leader_state import LeaderState
from raftwerk.wire.types import TopicPartition

PARTITIONS = 300

_made: list[Cluster] = []


@pytest.fixture(autouse=True)
def _nothing_is_left_over() -> Iterator[None]:
    yield
    clusters, _made[:] = _made[:], []
    for cluster in clusters:
        cluster.process.dispose()
        assert not cluster.scheduler.errors


def make_cluster(partitions: int = PARTITIONS, *, is_watched: bool = True, **config: Any) -> Cluster:
    cluster = Cluster(**config)
    cluster.is_watched = is_watched
    _made.append(cluster)
    for node in (1, 2, 3):
        cluster.boot(node)
    cluster.create_topic("t", 7, (1, 2, 3), partitions)
    cluster.tell()
    cluster.sleep(3)
    return cluster


def test_idle_fetches_look_at_a_few_partitions_only() -> None:
    cluster = make_cluster()
    cluster.looked_at = fetches = 0
    fetches = len(cluster.fetches)
    cluster.sleep(5)
    fetches = len(cluster.fetches) - fetches
    assert 2 * 9 <= fetches <= 2 * 11, "twice a second, by two followers"
    assert cluster.looked_at <= 2 * fetches * 25


def test_one_busy_partition_costs_the_others_nothing() -> None:
    cluster = make_cluster()
    answers = []
    cluster.looked_at = 0
    for _ in range(100):
        answers.append(cluster.produce(1, TopicPartition("t", 5)))
        cluster.sleep(0.005)
    assert all(answer.error == 0 for answer in answers)
    assert cluster.looked_at < 100 * 2 * 6


def test_a_quiet_follower_is_not_behind_when_records_come() -> None:
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


def test_a_change_that_nobody_told_of_is_found_in_the_end() -> None:
    cluster = make_cluster(50)
    tp = TopicPartition("t", 33)
    for _ in range(3):
        cluster.produce(1, tp)
    cluster.sleep(2)
    cluster.managers[1].partitions[tp].log.raise_start(2)
    cluster.sleep(5)
    assert cluster.managers[2].partitions[tp].log.log_start_offset == 2


def test_what_changes_while_it_is_looked_at_wakes_again() -> None:
    watch = Watches().open(2)
    key = (next(iter(make_cluster(1).names)), 0)
    watch.want(key)
    assert watch.take_awake() == [key] and watch.take_awake() == []
    watch.stays_awake(key)
    assert watch.take_awake() == [key]
    watch.forget(key)
    watch.stays_awake(key)
    assert watch.take_awake() == []


def play(seed: int, *, is_watched: bool) -> list[Any]:
    """Produces, leader changes and pauses by seed; what every replica holds in the end, after a while of quiet."""
    rng = random.Random(seed)
    cluster = make_cluster(6, is_watched=is_watched, replica_lag_time_max_ms=3_000)
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
def test_in_the_end_all_replicas_are_alike(seed: int) -> None:
    for ends, marks, isr in play(seed, is_watched=True):
        assert len(set(ends)) == len(set(marks)) == 1 and ends[0] == marks[0]
        assert sorted(isr) == [1, 2, 3]
