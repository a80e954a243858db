"""A new replica that copies under a throttle of its leader, of its own, or both; what is in sync does not notice."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from support.isr.manager_cluster import Answer, Cluster, registration

from raftwerk.controller.metadata.metadata_image import BROKER_RESOURCE, TOPIC_RESOURCE
from raftwerk.controller.metadata.metadata_records import ConfigRecord
from raftwerk.wire.types import TopicPartition

TP = TopicPartition("t", 0)
RECORD_BYTES = 10_000
RATE = 100_000
LEADER = {"leader.replication.throttled.replicas": "0:1,0:2"}
FOLLOWER = {"follower.replication.throttled.replicas": "0:3"}
RATES = {"leader.replication.throttled.rate": str(RATE), "follower.replication.throttled.rate": str(RATE)}


class Copying:
    """Partition t-0 on 1 and 2, with records; `add` gives it to 3 too."""

    def __init__(self, records: int = 100, *, reads_dirty_only: bool = True, **config: Any) -> None:
        self.cluster = cluster = Cluster(**config)
        cluster.reads_dirty_only = reads_dirty_only
        for node in (1, 2, 3):
            cluster.boot(node)
        self.topic_id: UUID = cluster.create_topic("t", 7, (1, 2))
        cluster.tell()
        cluster.sleep(1)
        for _ in range(records):
            self.produce()
        cluster.sleep(1)

    def produce(self, acks: int = -1) -> Answer:
        return self.cluster.produce(1, TP, b"x" * RECORD_BYTES, acks)

    def configure(self, kind: int, name: str, values: dict[str, str | None]) -> None:
        for key, value in values.items():
            self.cluster.records.append(ConfigRecord(kind, name, key, value))
        self.cluster.tell()

    def throttle(self, *topic_values: dict[str, str], broker: str = "") -> None:
        self.configure(BROKER_RESOURCE, broker, dict(RATES))
        for values in topic_values:
            self.configure(TOPIC_RESOURCE, "t", dict(values))

    def add(self) -> None:
        self.cluster.change(self.topic_id, 0, replicas=(1, 2, 3))
        self.cluster.tell()

    def end_of(self, node: int) -> int:
        replica = self.cluster.managers[node].partitions.get(TP)
        return 0 if replica is None else replica.log_end_offset

    def seconds_to_copy(self, limit_s: float = 60) -> float:
        began = self.cluster.loop.time()
        while self.end_of(3) < self.end_of(1):
            self.cluster.sleep(0.01)
            assert self.cluster.loop.time() < began + limit_s, f"{self.end_of(3)} of {self.end_of(1)}"
        return self.cluster.loop.time() - began


def test_without_a_throttle_it_takes_no_time() -> None:
    copying = Copying()
    copying.configure(BROKER_RESOURCE, "", dict(RATES))
    copying.add()
    assert copying.seconds_to_copy() < 0.5, "a rate holds for replicas that are named only"


@pytest.mark.parametrize("sides", [(LEADER,), (FOLLOWER,), (LEADER, FOLLOWER)], ids=["leader", "follower", "both"])
@pytest.mark.parametrize("reads_dirty_only", [True, False])
def test_a_new_replica_copies_at_the_rate(sides: tuple[dict[str, str], ...], reads_dirty_only: bool) -> None:
    copying = Copying(reads_dirty_only=reads_dirty_only)
    copying.throttle(*sides)
    copying.add()
    taken_s = copying.seconds_to_copy()
    assert 100 * RECORD_BYTES / RATE * 0.8 < taken_s < 100 * RECORD_BYTES / RATE * 1.3


def test_a_star_stands_for_all_replicas_and_a_broker_has_its_own_rate() -> None:
    copying = Copying()
    copying.configure(BROKER_RESOURCE, "", dict.fromkeys(RATES, "1"))
    copying.configure(TOPIC_RESOURCE, "t", {"leader.replication.throttled.replicas": "*"})
    copying.throttle(broker="1")
    copying.add()
    assert 8 < copying.seconds_to_copy() < 13


def test_only_the_named_broker_is_throttled() -> None:
    copying = Copying()
    copying.throttle({"leader.replication.throttled.replicas": "0:2,1:1", **dict.fromkeys(FOLLOWER, "0:2")})
    copying.add()
    assert copying.seconds_to_copy() < 0.5


@pytest.mark.parametrize("sides", [(LEADER,), (FOLLOWER,)], ids=["leader", "follower"])
def test_acks_all_is_as_fast_as_before(sides: tuple[dict[str, str], ...]) -> None:
    """What is in sync is served although the quota is used up by it, and above it."""
    copying = Copying()
    copying.throttle(*(dict.fromkeys(side, "*") for side in sides))
    copying.add()
    for _ in range(200):
        answer = copying.produce()
        copying.cluster.sleep(0.01)
        assert answer.error == 0
    assert copying.end_of(2) == 300
    assert copying.end_of(3) < 100, "a megabyte a second goes to 2; nothing is left for 3"


def test_the_rate_and_the_replicas_change_live() -> None:
    copying = Copying()
    copying.throttle(LEADER, FOLLOWER)
    copying.configure(BROKER_RESOURCE, "", dict.fromkeys(RATES, "0"))
    copying.add()
    copying.cluster.sleep(20)
    assert copying.end_of(3) == 0, "nothing passes"
    copying.configure(BROKER_RESOURCE, "", {key: str(10 * RATE) for key in RATES})
    assert copying.seconds_to_copy() < 2
    copying.configure(BROKER_RESOURCE, "", dict.fromkeys(RATES, "0"))
    copying.cluster.change(copying.topic_id, 0, replicas=(1, 2), isr=(1, 2))
    copying.cluster.tell()
    copying.cluster.sleep(1)
    copying.add()
    copying.cluster.sleep(5)
    assert copying.end_of(3) == 0
    copying.configure(TOPIC_RESOURCE, "t", dict.fromkeys([*LEADER, *FOLLOWER]))
    assert copying.seconds_to_copy() < 1


def test_a_throttled_replica_joins_the_isr_in_the_end_and_is_not_throttled_then() -> None:
    copying = Copying()
    copying.throttle(LEADER, FOLLOWER)
    copying.add()
    copying.seconds_to_copy()
    copying.cluster.sleep(1)
    copying.cluster.tell()
    partition = copying.cluster.latest().partition(copying.topic_id, 0)
    assert partition is not None
    assert set(partition.isr) == {1, 2, 3}
    for _ in range(100):
        answer = copying.produce()
        copying.cluster.sleep(0.01)
        assert answer.error == 0
    copying.cluster.sleep(0.1)
    assert copying.end_of(3) == 200


def test_throttled_partitions_do_not_delay_others_and_cost_few_fetches() -> None:
    """Another partition of the same fetcher goes on; and the fetches are few."""
    copying = Copying()
    cluster = copying.cluster
    cluster.create_topic("u", 8, (1, 3))
    copying.throttle(LEADER, FOLLOWER)
    copying.configure(BROKER_RESOURCE, "", dict.fromkeys(RATES, "1000"))
    copying.add()
    cluster.sleep(3)
    for _ in range(20):
        answer = cluster.produce(1, TopicPartition("u", 0))
        cluster.sleep(0.02)
        assert answer.error == 0
    before = len(cluster.fetches)
    cluster.sleep(5)
    assert len(cluster.fetches) - before < 3 * 5 * 5
    assert copying.end_of(3) < 100


def test_a_deleted_topic_is_not_throttled_any_more() -> None:
    copying = Copying(records=1)
    copying.throttle(LEADER, FOLLOWER)
    assert copying.cluster.managers[1].throttles.leader.is_throttled(TP)
    copying.cluster.delete_topic(copying.topic_id)
    copying.cluster.tell()
    for manager in copying.cluster.managers.values():
        assert manager.throttles.leader.is_idle
        assert manager.throttles.follower.is_idle


@pytest.mark.parametrize("sides", [(LEADER,), (FOLLOWER,)], ids=["leader", "follower"])
def test_a_throttled_replica_that_was_in_sync_does_not_delay_acks_all(sides: tuple[dict[str, str], ...]) -> None:
    """It was fenced a moment ago, and has four megabytes to catch up with: until it has, the high watermark goes on."""
    copying = Copying(records=0)
    cluster = copying.cluster
    copying.add()
    cluster.sleep(1)
    cluster.tell()
    copying.produce()
    cluster.sleep(0.5)
    cluster.records.append(registration(3, fenced=True))
    cluster.change(copying.topic_id, 0, isr=(1, 2))
    cluster.mute[(3, 1)] = None
    cluster.tell()
    for _ in range(400):
        answer = copying.produce()
        cluster.sleep(0.01)
        assert answer.error == 0
    copying.throttle(*(dict.fromkeys(side, "*") for side in sides))
    del cluster.mute[(3, 1)]
    cluster.kill_links(3)
    cluster.records.append(registration(3))
    cluster.tell()
    cluster.sleep(0.2)
    for _ in range(50):
        answer = copying.produce()
        cluster.sleep(0.05)
        assert answer.error == 0
    assert copying.end_of(3) < 451, "it is still on its way"
