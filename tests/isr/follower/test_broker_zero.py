"""Broker 0 is a follower like any other: nothing takes its id for that of a consumer, which is -1."""

from __future__ import annotations

from uuid import UUID

import pytest
from support.isr.manager_cluster import Cluster

from raftwerk.controller.metadata.metadata_image import BROKER_RESOURCE, TOPIC_RESOURCE
from raftwerk.controller.metadata.metadata_records import ConfigRecord
from raftwerk.wire.types import TopicPartition

TP = TopicPartition("t", 0)
RATE = 100_000


@pytest.fixture
def cluster() -> Cluster:
    """Brokers 1 and 0 have a replica of t-0, and 1 leads."""
    made = Cluster(nodes=(0, 1))
    for node in (0, 1):
        made.boot(node)
    made.create_topic("t", 7, (1, 0))
    made.tell()
    made.sleep(1.0)
    return made


def test_a_record_reaches_broker_0_within_a_round_trip_and_not_when_its_wait_is_over(cluster: Cluster) -> None:
    answer = cluster.produce(1, TP)
    cluster.sleep(0.0035)
    assert answer.error == 0


def test_the_parked_fetch_of_broker_0_is_answered_for_a_read_that_waits_for_it(cluster: Cluster) -> None:
    answers: list[bool] = []
    cluster.on_loop(cluster.managers[1].confirm_leadership, TP, 0, 1_000, answers.append)
    assert answers == []
    cluster.sleep(0.0045)
    assert answers == [True]


def test_broker_0_fetches_a_new_partition_soon_though_its_fetch_is_parked(cluster: Cluster) -> None:
    cluster.create_topic("new", 8, (1, 0))
    cluster.tell()
    answer = cluster.produce(1, TopicPartition("new", 0))
    cluster.sleep(0.03)
    assert answer.error == 0


@pytest.mark.parametrize("reads_dirty_only", [True, False])
def test_what_broker_0_copies_is_throttled_and_counted(reads_dirty_only: bool) -> None:
    cluster = Cluster(nodes=(0, 1))
    cluster.reads_dirty_only = reads_dirty_only
    for node in (0, 1):
        cluster.boot(node)
    cluster.create_topic("t", 7, (1,))
    cluster.records.append(ConfigRecord(BROKER_RESOURCE, "", "leader.replication.throttled.rate", str(RATE)))
    cluster.records.append(ConfigRecord(TOPIC_RESOURCE, "t", "leader.replication.throttled.replicas", "*"))
    cluster.tell()
    cluster.sleep(0.1)
    for _ in range(50):
        cluster.produce(1, TP, b"x" * 10_000)
    assert cluster.managers[1].throttled_rates()["leader"] == 0.0, "nothing is replicated yet"
    cluster.change(UUID(int=7), 0, replicas=(1, 0))
    cluster.tell()
    cluster.sleep(3.0)
    copied = cluster.managers[0].partitions[TP].log_end_offset
    assert 10 < copied < 50, "five times as much as the rate allows in a second"
    rates = cluster.managers[1].throttled_rates()
    assert 0.5 * RATE < rates["leader"] <= 1.5 * RATE
    assert (rates["follower"], rates["alterlogdirs"]) == (0.0, 0.0)
