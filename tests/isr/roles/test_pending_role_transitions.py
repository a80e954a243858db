"""Thousands of partitions in one delta: some in each iteration of the loop, each as the image has it at that time."""

from __future__ import annotations

import errno
import itertools
from typing import Any
from uuid import UUID

import pytest
from support.isr.manager_cluster import Cluster

from raftwerk.controller.metadata.metadata_image import MetadataDelta
from raftwerk.controller.metadata.metadata_records import BrokerChangeRecord
from raftwerk.isr.partition import Partition
from raftwerk.isr.roles import metadata_delta_applier
from raftwerk.isr.roles.pending_role_transitions import (
    NEW_REPLICA_COSTS,
    PARTITIONS_PER_SLICE,
    PAUSE_PER_WORK,
    PAUSE_S,
)
from raftwerk.log.errors import StorageError
from raftwerk.log.partition_log import PartitionLog
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.types import TopicPartition

COUNT = 5 * PARTITIONS_PER_SLICE


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    for node in (1, 2, 3):
        cluster.boot(node)
    return cluster


def here(cluster: Cluster, node: int) -> int:
    return len(cluster.managers[node].partitions)


def create(cluster: Cluster, name: str = "t", number: int = 7, partitions: int = COUNT) -> UUID:
    return cluster.create_topic(name, number, (1, 2, 3), partitions)


def test_the_first_slice_is_at_once_and_the_rest_follows(cluster: Cluster) -> None:
    before = cluster.latest().offset
    create(cluster)
    cluster.tell(1)
    assert here(cluster, 1) == PARTITIONS_PER_SLICE // NEW_REPLICA_COSTS
    assert cluster.managers[1].applied_offset == before
    assert cluster.produce(1, TopicPartition("t", COUNT - 1)).error == ErrorCode.NOT_LEADER_OR_FOLLOWER
    cluster.sleep(0.001)
    assert here(cluster, 1) == COUNT
    assert cluster.managers[1].applied_offset == cluster.latest().offset
    cluster.tell()
    cluster.sleep(2)
    answer = cluster.produce(1, TopicPartition("t", COUNT - 1))
    cluster.sleep(0.1)
    assert answer.error == 0


@pytest.mark.parametrize(("slice_took_s", "pause_s"), [(0.0, PAUSE_S), (0.02, 0.02 * PAUSE_PER_WORK)])
def test_new_replicas_leave_room_for_records(cluster: Cluster, slice_took_s: float, pause_s: float) -> None:
    create(cluster, "busy", 8, 1)
    cluster.tell()
    cluster.sleep(1)
    cluster.produce(1, TopicPartition("busy", 0))
    cluster.work_seconds = itertools.count(0.0, slice_took_s)
    create(cluster)
    cluster.tell(1)
    made = here(cluster, 1)
    for _ in range(10):
        cluster.produce(1, TopicPartition("busy", 0))
        cluster.sleep(pause_s)
        assert here(cluster, 1) == made + PARTITIONS_PER_SLICE // NEW_REPLICA_COSTS
        made = here(cluster, 1)
    cluster.sleep(20 * pause_s)
    assert here(cluster, 1) == COUNT + 1


def test_an_internal_topic_does_not_wait(cluster: Cluster) -> None:
    create(cluster)
    create(cluster, "__consumer_offsets", 8, 3)
    cluster.tell(1)
    replica = cluster.managers[1].partitions[TopicPartition("__consumer_offsets", 2)]
    assert replica.is_leader


def test_a_topic_deleted_while_it_is_created_leaves_nothing(cluster: Cluster) -> None:
    topic_id = create(cluster)
    cluster.tell(1)
    cluster.delete_topic(topic_id)
    cluster.tell(1)
    cluster.sleep(0.01)
    assert here(cluster, 1) == 0


def test_topic_created_again_while_the_former_one_is_deleted(cluster: Cluster) -> None:
    topic_id = create(cluster)
    cluster.tell(1)
    cluster.sleep(0.01)
    cluster.delete_topic(topic_id)
    cluster.tell(1)
    again = create(cluster, "t", 9)
    cluster.tell(1)
    cluster.sleep(0.01)
    assert {replica.topic_id for replica in cluster.managers[1].partitions.values()} == {again}
    assert here(cluster, 1) == COUNT


def test_a_topic_created_again_is_not_served_by_the_log_of_the_former_one(cluster: Cluster) -> None:
    topic_id = cluster.create_topic("t", 7, (1,), COUNT)
    cluster.tell(1)
    cluster.sleep(0.01)
    last = TopicPartition("t", COUNT - 1)
    assert cluster.produce(1, last).error == 0
    cluster.delete_topic(topic_id)
    cluster.tell(1)
    again = cluster.create_topic("t", 9, (1,), COUNT)
    cluster.tell(1)
    assert cluster.managers[1].partitions[last].topic_id == topic_id, "its turn to be removed has not come"
    assert cluster.produce(1, last).error == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert cluster.managers[1].list_offset(last, -1).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    cluster.sleep(1)
    assert cluster.managers[1].partitions[last].topic_id == again
    answer = cluster.produce(1, last)
    assert (answer.error, answer.row.base_offset) == (0, 0)


def test_leadership_that_changes_while_it_is_pending(cluster: Cluster) -> None:
    topic_id = create(cluster)
    cluster.tell(1)
    cluster.change(topic_id, COUNT - 1, leader=2)
    cluster.tell(1)
    cluster.sleep(0.01)
    last = cluster.managers[1].partitions[TopicPartition("t", COUNT - 1)]
    assert not last.is_leader and last.partition.leader_id == 2 and last.partition.leader_epoch == 1


def test_a_new_leader_whose_log_cannot_be_cut_keeps_no_other_partition_waiting(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch of its log has a damaged epoch, and the disk fails as it is cut off."""
    topic_id = create(cluster, "t", 7, PARTITIONS_PER_SLICE)
    cluster.tell()
    cluster.sleep(1)
    broken = TopicPartition("t", 2)
    cluster.produce(1, broken)
    cluster.sleep(1)
    log = cluster.managers[2].partitions[broken].log
    log.epoch_cache.assign(77, 0)
    cuts = PartitionLog.truncate_to

    def refused(cut: PartitionLog, offset: int) -> None:
        if cut is log:
            raise StorageError("it could not be truncated") from OSError(errno.EIO, "the disk is broken")
        cuts(cut, offset)

    monkeypatch.setattr(PartitionLog, "truncate_to", refused)
    for index in range(PARTITIONS_PER_SLICE):
        cluster.change(topic_id, index, leader=2)
    cluster.tell()
    cluster.sleep(1)
    replicas = cluster.managers[2].partitions
    assert [tp.partition for tp, replica in replicas.items() if not replica.is_leader] == [2]
    assert replicas[broken].offline and cluster.storage_errors == [broken]
    assert cluster.managers[2].applied_offset == cluster.latest().offset


def test_an_unexpected_error_about_one_partition_keeps_no_other_from_its_role(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither as a leader nor as a follower; and a start that waits for all roles comes to its end."""
    topic_id = create(cluster)
    cluster.tell()
    cluster.sleep(1)
    broken = TopicPartition("t", COUNT // 2)

    def fail_for_one(name: str) -> None:
        take_up = getattr(Partition, name)

        def take_up_or_fail(partition: Partition, *args: Any) -> bool:
            if partition.topic_partition == broken and partition.config.local_id != 1:
                raise ValueError("what nobody expects")
            return bool(take_up(partition, *args))

        monkeypatch.setattr(Partition, name, take_up_or_fail)

    fail_for_one("make_leader")
    fail_for_one("make_follower")
    for index in range(COUNT):
        cluster.change(topic_id, index, leader=2)
    cluster.tell()
    cluster.sleep(1)
    former = {
        node: [tp for tp, replica in manager.partitions.items() if replica.partition.leader_epoch == 0]
        for node, manager in cluster.managers.items()
    }
    assert former == {1: [], 2: [broken], 3: [broken]}
    assert cluster.managers[2].applied_offset == cluster.latest().offset
    cluster.stop(2)
    cluster.boot(2)
    assert here(cluster, 2) == COUNT
    errors, cluster.scheduler.errors[:] = [str(error) for error in cluster.scheduler.errors], []
    assert len(errors) == 3
    assert all(f"{broken} could not take up its role" in error for error in errors)


def test_a_stopped_manager_takes_up_no_roles(cluster: Cluster) -> None:
    """Neither those that wait, nor those of later metadata."""
    create(cluster)
    cluster.tell(1)
    manager = cluster.managers[1]
    cluster.stop(1)
    cluster.sleep(0.01)
    assert here(cluster, 2) == 0
    assert not manager.partitions
    create(cluster, "later", 8, 1)
    image, delta = cluster.images[1], MetadataDelta()
    for offset in range(image.offset + 1, len(cluster.records)):
        image.replay(cluster.records[offset], offset, delta)
    cluster.on_loop(manager.apply, image, delta)
    cluster.sleep(0.01)
    assert not manager.partitions
    assert cluster.storage_errors == [], "it does not try to open logs that may be another process's"


@pytest.mark.parametrize("is_deleted", [True, False])
def test_a_log_goes_though_its_replica_has_not_taken_up_its_role(cluster: Cluster, is_deleted: bool) -> None:
    """A starting broker hears meanwhile that the topic is deleted, or that its replica is on other brokers now."""
    topic_id = create(cluster)
    cluster.tell()
    cluster.sleep(1)
    last = TopicPartition("t", COUNT - 1)
    cluster.stop(3)
    manager = cluster.begin_boot(3)
    assert last in cluster.logs[3].logs and last not in manager.partitions
    if is_deleted:
        cluster.delete_topic(topic_id)
    else:
        cluster.change(topic_id, last.partition, replicas=(1, 2), isr=(1, 2), leader=1)
    cluster.tell(3)
    cluster.sleep(1)
    assert last not in cluster.logs[3].logs and last not in manager.partitions
    assert here(cluster, 3) == (0 if is_deleted else COUNT - 1)


def test_logs_that_wait_for_space_are_made_as_soon_as_one_directory_has_some() -> None:
    cluster = Cluster(nodes=(1,), dirs=("a", "b"))
    manager = cluster.boot(1)
    cluster.disks[1].fill(0)
    cluster.create_topic("t", 7, (1,), 4)
    cluster.tell()
    cluster.sleep(1)
    assert not here(cluster, 1)
    cluster.disks[1].set_capacity()
    cluster.on_loop(manager.set_full_dirs, ["/a1", "/b1"])
    cluster.on_loop(manager.set_full_dirs, ["/a1", "/b1"])
    assert not here(cluster, 1), "both are full"
    cluster.on_loop(manager.set_full_dirs, ["/a1"])
    assert [replica.log.directory for replica in manager.partitions.values()] == [
        f"/b1/t-{index}" for index in range(4)
    ]


def test_no_log_is_made_while_a_write_is_under_way_that_found_a_directory_full() -> None:
    cluster = Cluster(nodes=(1,), dirs=("a", "b"))
    manager = cluster.boot(1)
    cluster.disks[1].fill(0)
    cluster.create_topic("t", 7, (1,))
    cluster.tell()
    cluster.disks[1].set_capacity()
    cluster.on_loop(manager.set_full_dirs, ["/a1"])
    assert not here(cluster, 1)
    cluster.on_loop(manager.set_full_dirs, ["/a1"])
    assert here(cluster, 1) == 1


def test_a_log_that_waits_for_space_is_not_forgotten_with_the_former_topic_of_that_name() -> None:
    """The roles in internal topics are taken up at once, before the former topic's are given up."""
    cluster = Cluster(nodes=(1,), dirs=("a", "b"))
    manager = cluster.boot(1)
    cluster.disks[1].fill(0)
    former = cluster.create_topic("__internal", 7, (1,))
    cluster.tell()
    cluster.sleep(1)
    cluster.delete_topic(former)
    cluster.create_topic("__internal", 8, (1,))
    cluster.tell()
    cluster.sleep(1)
    cluster.disks[1].set_capacity()
    cluster.on_loop(manager.set_full_dirs, [])
    assert [replica.topic_id for replica in manager.partitions.values()] == [UUID(int=8)]


@pytest.mark.parametrize(("ago_s", "is_busy"), [(0.098, True), (0.102, False)])
def test_only_a_broker_that_has_just_written_records_makes_new_replicas_slowly(
    cluster: Cluster, ago_s: float, is_busy: bool
) -> None:
    create(cluster, "busy", 8, 1)
    cluster.tell()
    cluster.sleep(1)
    cluster.produce(1, TopicPartition("busy", 0))
    cluster.sleep(ago_s)
    create(cluster)
    cluster.tell(1)
    cluster.sleep(0.001)
    assert (here(cluster, 1) < COUNT + 1) is is_busy


def test_roles_that_need_no_new_replica_are_taken_up_without_a_pause(cluster: Cluster) -> None:
    """Thousands of partitions may change their leader when a broker dies, and its clients wait."""
    topic_id = create(cluster)
    create(cluster, "busy", 8, 1)
    cluster.tell()
    cluster.sleep(2)
    cluster.produce(1, TopicPartition("busy", 0))
    for index in range(COUNT):
        cluster.change(topic_id, index, leader=2)
    cluster.tell()
    followers = [tp for tp, one in cluster.managers[1].partitions.items() if not one.is_leader]
    assert len(followers) == PARTITIONS_PER_SLICE, "the first slice is at once"
    cluster.produce(1, TopicPartition("busy", 0))
    cluster.sleep(0.001)
    assert [one.is_leader for one in cluster.managers[2].partitions.values()].count(True) == COUNT


def test_partitions_that_this_broker_shall_lead_come_first(cluster: Cluster) -> None:
    """Clients wait for a leader; nobody waits for another follower."""
    topic_id = create(cluster)
    cluster.tell()
    cluster.sleep(2)
    last = COUNT - 1
    for index in range(last):
        cluster.change(topic_id, index, leader=3)
    cluster.change(topic_id, last, leader=2)
    cluster.tell(2)
    assert cluster.managers[2].partitions[TopicPartition("t", last)].is_leader


def test_a_broker_that_may_join_many_isrs_is_proposed_in_slices(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata_delta_applier, "EXPANSIONS_PER_SLICE", 2)
    topic_id = create(cluster, partitions=10)
    cluster.tell()
    cluster.sleep(2)
    epoch = cluster.latest().brokers[3].epoch
    cluster.records.append(BrokerChangeRecord(3, epoch, fenced=True))
    for index in range(10):
        cluster.change(topic_id, index, isr=(1, 2))
    cluster.tell()
    cluster.sleep(1)
    assert not cluster.alterations
    cluster.records.append(BrokerChangeRecord(3, epoch, fenced=False))
    cluster.tell(1)
    leaders = [one.partition.leader for one in cluster.managers[1].partitions.values()]
    proposed = [one for one in leaders if one is not None and 3 in one.isr_state.maximal_isr]
    assert 0 < len(proposed) <= 2
    cluster.sleep(0.5)
    cluster.tell()
    assert all(one is not None and 3 in one.isr_state.isr for one in leaders)


def test_a_broker_that_is_fenced_again_is_proposed_no_more(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_delta_applier, "EXPANSIONS_PER_SLICE", 2)
    topic_id = create(cluster, partitions=10)
    cluster.tell()
    cluster.sleep(2)
    epoch = cluster.latest().brokers[3].epoch
    cluster.mute[3, 1] = None
    cluster.alter_error = int(ErrorCode.INELIGIBLE_REPLICA)
    for fenced in (True, False, True):
        cluster.records.append(BrokerChangeRecord(3, epoch, fenced=fenced))
        if fenced:
            for index in range(10):
                cluster.change(topic_id, index, isr=(1, 2))
        cluster.tell(1)
    cluster.sleep(0.5)
    assert sum(len(one.proposal.new_isr) == 3 for one in cluster.alterations) <= 2
