"""A coordinator has a shard for each partition that its broker leads, in that leader epoch, and for no other."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from support.isr.manager_cluster import Cluster, dispose_clusters
from support.isr.replicas import batch

from raftwerk.broker.coordinators.coordinator_loader import CoordinatorLoader
from raftwerk.broker.coordinators.coordinator_topic import CoordinatorTopic
from raftwerk.broker.coordinators.led_partitions import LedPartitions
from raftwerk.broker.coordinators.partition_for import partition_for
from raftwerk.broker.coordinators.record_fields import CoordinatorRecord
from raftwerk.broker.transactions.transaction_config import TRANSACTION_TOPIC, TransactionTopicConfig
from raftwerk.controller.metadata.metadata_image import MetadataDelta
from raftwerk.wire.errors import ErrorCode, ProtocolError
from raftwerk.wire.types import TopicPartition

PARTITIONS = 2
TOPIC_ID = UUID(int=9)
TIMES = (1_700_000_000_000, 500)
RECORDS = (CoordinatorRecord(b"k", b"v"),)


class Shard:
    """Counts the records that are replayed."""

    def __init__(self, partition: int, leader_epoch: int) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.is_loading = True
        self.name = f"shard {partition}"
        self.replayed = 0

    def replay(self, key: bytes | None, value: bytes | None, *, transaction_of: int) -> None:
        self.replayed += 1

    def end_transaction(self, producer_id: int, *, is_committed: bool) -> None: ...


class Rig:
    """Broker 1's coordinator of a topic of which all three brokers have a replica; broker 1 leads at first."""

    def __init__(self, records: int = 0) -> None:
        self.cluster = cluster = Cluster(replica_lag_time_max_ms=600_000)
        for node in (1, 2, 3):
            cluster.boot(node)
        cluster.create_topic(TRANSACTION_TOPIC, TOPIC_ID.int, (1, 2, 3), PARTITIONS)
        cluster.tell()
        cluster.sleep(1.0)
        for _ in range(records):
            cluster.on_loop(
                cluster.managers[1].append, -1, 1_000, [(TopicPartition(TRANSACTION_TOPIC, 0), batch())], lambda _: None
            )
            cluster.sleep(0.1)
        self.loaded: list[Shard] = []
        self.resigned: list[Shard] = []
        metadata: Any = SimpleNamespace(image=cluster.images[1])
        topic = CoordinatorTopic(TRANSACTION_TOPIC, TransactionTopicConfig(), metadata)
        self.manager = cluster.managers[1]
        self.led: LedPartitions[Shard] = LedPartitions(topic, 1, self.manager, self, logging.getLogger("raftwerk.test"))

    def start(self) -> None:
        self.cluster.on_loop(self.led.start, self.cluster.images[1])

    def tell(self) -> None:
        """The brokers hear of all metadata, and the coordinator after the replicas."""
        self.cluster.tell(2, 3)
        image, delta = self.cluster.images[1], MetadataDelta()
        for offset in range(image.offset + 1, len(self.cluster.records)):
            image.replay(self.cluster.records[offset], offset, delta)
        self.cluster.on_loop(self.manager.apply, image, delta)
        if self.led.is_started:
            self.cluster.on_loop(self.led.on_metadata, image, delta)

    def lead(self, partition: int, leader: int) -> None:
        self.cluster.change(TOPIC_ID, partition, leader=leader)
        self.tell()

    def append(self, shard: Shard) -> list[Any]:
        events: list[Any] = []
        self.cluster.on_loop(
            self.led.append, shard, RECORDS, TIMES, events.append, None, lambda: events.append("committed")
        )
        return events

    @property
    def active(self) -> list[tuple[int, int]]:
        return [(shard.partition, shard.leader_epoch) for shard in self.led.active]

    # ---- the owner

    def new_shard(self, partition: int, leader_epoch: int) -> Shard:
        return Shard(partition, leader_epoch)

    def on_loaded(self, shard: Shard, loader: CoordinatorLoader[Shard]) -> None:
        shard.is_loading = False
        self.loaded.append(shard)

    def on_resigned(self, shard: Shard) -> None:
        self.resigned.append(shard)


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig(records=3)
    made.start()
    made.cluster.sleep(0.1)
    assert made.active == [(0, 0), (1, 0)]
    yield made
    dispose_clusters()


def key_of(partition: int) -> str:
    return next(str(number) for number in range(100) if partition_for(str(number), PARTITIONS) == partition)


def refusal(rig: Rig, partition: int) -> ErrorCode | None:
    try:
        assert rig.led.shard_of(key_of(partition)).partition == partition
    except ProtocolError as error:
        return error.code
    return None


def test_each_led_partition_is_loaded_once_with_all_its_records(rig: Rig) -> None:
    assert [(shard.partition, shard.replayed) for shard in sorted(rig.loaded, key=lambda one: one.partition)] == [
        (0, 3),
        (1, 0),
    ]
    assert rig.led.loaders == {} and rig.resigned == []
    rig.cluster.create_topic("another", 10)
    rig.tell()
    rig.cluster.sleep(1.0)
    assert len(rig.loaded) == 2


def test_a_shard_is_dropped_when_another_broker_leads_and_loaded_anew_when_that_ends(rig: Rig) -> None:
    former = rig.led.shards[0]
    rig.lead(0, 2)
    assert rig.resigned == [former] and rig.active == [(1, 0)]
    assert (refusal(rig, 0), refusal(rig, 1)) == (ErrorCode.NOT_COORDINATOR, None)
    assert rig.append(former) == [ErrorCode.NOT_COORDINATOR]
    rig.cluster.sleep(1.0)
    rig.lead(0, 1)
    rig.cluster.sleep(1.0)
    assert rig.active == [(1, 0), (0, 2)]
    assert rig.led.shards[0] is not former and rig.led.shards[0].replayed == 3
    assert refusal(rig, 0) is None


def test_a_shard_of_a_former_epoch_is_dropped_though_the_same_broker_leads(rig: Rig) -> None:
    """What it has written may have been taken back by a leader that was there in between."""
    former = rig.led.shards[1]
    rig.lead(1, 1)
    rig.cluster.sleep(0.1)
    assert rig.resigned == [former]
    assert rig.active == [(0, 0), (1, 1)]
    assert not rig.led.is_current(former) and rig.led.is_current(rig.led.shards[1])


def test_a_shard_serves_nobody_until_all_that_it_has_loaded_is_committed() -> None:
    """It could else act on a record that a later leader does not have."""
    rig = Rig(records=1)
    cluster = rig.cluster
    cluster.held.update({(2, 1): [], (3, 1): []})
    cluster.sleep(1.0)
    cluster.on_loop(rig.manager.append, 1, 1_000, [(TopicPartition(TRANSACTION_TOPIC, 0), batch())], lambda _: None)
    rig.start()
    cluster.sleep(15.0)
    assert (refusal(rig, 0), refusal(rig, 1)) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, None)
    with pytest.raises(ProtocolError) as refused:
        rig.led.all_loaded()
    assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    cluster.release(2, 1)
    cluster.release(3, 1)
    cluster.sleep(3.0)
    assert refusal(rig, 0) is None
    assert {(shard.partition, shard.replayed) for shard in rig.led.all_loaded()} == {(0, 2), (1, 0)}
    dispose_clusters()


def test_a_coordinator_that_has_stopped_has_no_shards_whatever_it_hears(rig: Rig) -> None:
    former = list(rig.led.shards.values())
    rig.cluster.on_loop(rig.led.stop)
    assert rig.resigned == former
    assert not rig.led.is_started
    rig.lead(0, 2)
    rig.lead(0, 1)
    rig.cluster.sleep(5.0)
    assert rig.led.shards == {}
    assert len(rig.loaded) == 2, "nothing is loaded any more"


def test_before_the_start_nothing_is_loaded() -> None:
    rig = Rig(records=1)
    rig.lead(0, 2)
    rig.lead(0, 1)
    rig.cluster.sleep(1.0)
    assert rig.led.shards == {} and rig.loaded == []
    assert refusal(rig, 0) is ErrorCode.NOT_COORDINATOR
    dispose_clusters()


def test_records_are_answered_when_they_are_committed_and_only_to_the_shard_that_wrote_them(rig: Rig) -> None:
    shard = rig.led.shards[0]
    events = rig.append(shard)
    assert events == []
    rig.cluster.sleep(0.1)
    assert events == ["committed", ErrorCode.NONE]
    pending = rig.append(shard)
    rig.lead(0, 1)
    rig.cluster.sleep(1.0)
    assert pending == [ErrorCode.NOT_COORDINATOR], "they are in the log, and the next shard has loaded them"
    assert rig.led.shards[0].replayed == 5


def test_only_a_shard_that_is_there_is_confirmed(rig: Rig) -> None:
    shard = rig.led.shards[0]
    answers: list[bool] = []
    rig.cluster.on_loop(rig.led.confirm, shard, 1_000, answers.append)
    rig.cluster.sleep(0.1)
    assert answers == [True]
    rig.lead(0, 1)
    rig.cluster.on_loop(rig.led.confirm, shard, 1_000, answers.append)
    assert answers == [True, False]


def test_a_shard_whose_memory_may_differ_from_the_log_is_loaded_again(rig: Rig) -> None:
    former = rig.led.shards[0]
    rig.cluster.on_loop(rig.led.reload, former)
    assert rig.resigned == [former]
    assert refusal(rig, 0) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    rig.cluster.sleep(0.1)
    assert refusal(rig, 0) is None
    assert rig.led.shards[0].replayed == 3
    rig.cluster.on_loop(rig.led.reload, former)
    assert len(rig.resigned) == 1, "that one is gone already"


def test_the_shards_of_a_deleted_topic_are_dropped(rig: Rig) -> None:
    former = list(rig.led.shards.values())
    rig.cluster.delete_topic(TOPIC_ID)
    rig.tell()
    assert rig.resigned == former and rig.led.shards == {}
    assert refusal(rig, 0) is ErrorCode.NOT_COORDINATOR
