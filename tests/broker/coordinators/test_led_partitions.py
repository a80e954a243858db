"""Which partitions of its topic a coordinator has shards for."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from support.broker import group_harness
from support.broker.group_harness import OFFSETS_TOPIC_ID, FakeLeader, FakeLog, settle
from support.broker.transaction_harness import PARTITIONS, TRANSACTION_TOPIC_ID, TransactionHarness, played
from support.isr.manager_cluster import Cluster, dispose_clusters

from raftwerk.broker.coordinators.coordinator_topic import CoordinatorTopic
from raftwerk.broker.coordinators.led_partitions import LedPartitions
from raftwerk.broker.transactions.transaction_config import TRANSACTION_TOPIC, TransactionTopicConfig
from raftwerk.broker.transactions.transaction_coordinator_shard import TransactionCoordinatorShard
from raftwerk.controller.metadata.metadata_image import MetadataDelta
from raftwerk.controller.metadata.metadata_records import (
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from raftwerk.wire.types import TopicPartition


class Owner:
    def new_shard(self, partition: int, leader_epoch: int) -> TransactionCoordinatorShard:
        return TransactionCoordinatorShard(partition, leader_epoch, lambda: 1)

    def on_loaded(self, shard: TransactionCoordinatorShard, loader: Any) -> None:
        shard.finish_loading(0)

    def on_resigned(self, shard: TransactionCoordinatorShard) -> None:
        pass


def test_a_partition_whose_log_waited_for_space_is_loaded_when_it_is_made() -> None:
    """No metadata tells that there is space again: the replica itself begins to lead later."""
    key = TopicPartition(TRANSACTION_TOPIC, 0)
    cluster = Cluster(nodes=(1,))
    manager, image = cluster.boot(1), cluster.images[1]
    metadata: Any = SimpleNamespace(image=image)
    topic = CoordinatorTopic(TRANSACTION_TOPIC, TransactionTopicConfig(), metadata)
    led: LedPartitions[TransactionCoordinatorShard] = LedPartitions(topic, 1, manager, Owner(), logging.getLogger("x"))
    cluster.on_loop(led.start, image)
    cluster.disks[1].fill(0)
    cluster.create_topic(TRANSACTION_TOPIC, 9, (1,), 1)
    delta = MetadataDelta()
    for offset in range(image.offset + 1, len(cluster.records)):
        image.replay(cluster.records[offset], offset, delta)
    cluster.on_loop(manager.apply, image, delta)
    cluster.on_loop(led.on_metadata, image, delta)
    cluster.sleep(1)
    assert key not in manager.partitions and not led.shards
    cluster.disks[1].set_capacity()
    cluster.on_loop(manager.set_full_dirs, [])
    assert manager.partitions[key].is_leader
    cluster.sleep(1)
    assert [shard.partition for shard in led.active] == [0]
    dispose_clusters()


@group_harness.played
async def test_changes_of_other_topics_do_not_concern_a_coordinator_whose_topic_is_not_there(
    harness: group_harness.GroupHarness,
) -> None:
    harness.transactions.start()
    delta = harness.replay(PartitionChangeRecord(OFFSETS_TOPIC_ID, 0, leader=2))
    assert delta.changed_partitions
    harness.transactions.on_metadata(harness.image, delta)
    assert harness.transactions.partitions.shards == {}


@played
async def test_the_shards_of_a_topic_that_was_deleted_and_created_again_are_loaded_anew(
    harness: TransactionHarness,
) -> None:
    """Both came in one delta: the leader epoch is the same, and the ids of the former topic are in no log."""
    assert (await harness.init())[0] == 0
    new_id = UUID(int=0x7B)
    records: list[Any] = [RemoveTopicRecord(TRANSACTION_TOPIC_ID), TopicRecord(TRANSACTION_TOPIC, new_id)]
    records += [PartitionRecord(new_id, index, (1, 2, 3), (1, 2, 3), 1) for index in range(PARTITIONS)]
    delta = MetadataDelta()
    for record in records:
        harness.offset += 1
        harness.image.replay(record, harness.offset, delta)
    for index in range(PARTITIONS):
        key = TopicPartition(TRANSACTION_TOPIC, index)
        harness.logs[key] = harness.transaction_logs[key] = FakeLog()
        harness.replicas.partitions[key] = FakeLeader(key, harness.logs[key])
    harness.transactions.on_metadata(harness.image, delta)
    await settle()
    shards = harness.transactions.loaded_shards()
    assert len(shards) == PARTITIONS
    assert not any(shard.entries for shard in shards)
    assert (await harness.init())[0] == 0
