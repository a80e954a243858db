"""What replicas take from a change of the metadata: settings of brokers, and that they lead."""

from __future__ import annotations

import logging
from uuid import UUID

import pytest
from support.isr.manager_cluster import registration, replicated_topic

from raftwerk.controller.metadata.metadata_image import BROKER_RESOURCE
from raftwerk.controller.metadata.metadata_records import BrokerChangeRecord, ConfigRecord
from raftwerk.isr.roles.local_replicas import LocalReplicas
from raftwerk.log.config import LogConfig
from raftwerk.log.state.checkpoints import HIGH_WATERMARK_FILE
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.types import TopicPartition

TP = TopicPartition("t", 0)


@pytest.mark.parametrize("broker", ["", "1"])
def test_a_setting_of_brokers_reaches_the_logs_of_topics_that_have_none_of_their_own(broker: str) -> None:
    cluster, _ = replicated_topic()
    cluster.records.append(ConfigRecord(BROKER_RESOURCE, broker, "log.segment.bytes", "2097152"))
    cluster.tell()
    cluster.sleep(0.1)
    sizes = [manager.partitions[TP].log.config.segment_bytes for manager in cluster.managers.values()]
    assert sizes == [2097152, *[2097152 if broker == "" else 1 << 30] * 2]


def test_the_log_tells_who_leads_on_and_not_each_new_partition(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    cluster, topic_id = replicated_topic()

    def leads() -> list[str]:
        return [record.getMessage() for record in caplog.records if "leads" in record.getMessage()]

    assert not leads()
    assert cluster.produce(1, TP).rows is None
    cluster.sleep(0.1)
    cluster.change(topic_id, 0, leader=2)
    cluster.tell()
    cluster.sleep(0.1)
    (line,) = leads()
    assert "log_end_offset=1" in line and "leader_epoch=1" in line


def test_a_replica_that_was_removed_and_added_again_joins_the_isr_only_after_a_fetch() -> None:
    """The leader hears of both reassignments, and of a change of the broker, at once."""
    cluster, topic_id = replicated_topic()
    for _ in range(5):
        cluster.produce(1, TP)
        cluster.sleep(0.1)
    assert cluster.managers[3].partitions[TP].log_end_offset == 5
    cluster.change(topic_id, 0, replicas=(1, 2), isr=(1, 2), leader=1)
    cluster.tell(3)
    assert TP not in cluster.managers[3].partitions
    cluster.change(topic_id, 0, replicas=(1, 2, 3), isr=(1, 2), adding_replicas=(3,))
    epoch = cluster.latest().brokers[3].epoch
    cluster.records.append(BrokerChangeRecord(3, epoch, log_dirs=(UUID(int=77),)))
    cluster.tell(1)
    cluster.sleep(0.05)
    assert not cluster.alterations
    cluster.tell(3)
    cluster.sleep(1.0)
    assert [[member for member, _ in one.proposal.new_isr] for one in cluster.alterations] == [[1, 2, 3]]
    assert cluster.managers[3].partitions[TP].log_end_offset == 5


def test_a_follower_learns_the_high_watermark_though_it_dropped_the_answer_that_told_it() -> None:
    """It hears of the same leader's next epoch, as at the end of a reassignment, while the answer is on its way."""
    cluster, topic_id = replicated_topic()
    cluster.create_topic("u", 8)
    cluster.tell()
    cluster.sleep(1.0)
    cluster.produce(1, TP)
    cluster.sleep(0.499)  # the fetch that waits for records, 500 ms at most, is being answered
    managers = cluster.managers
    assert (managers[1].partitions[TP].high_watermark, managers[2].partitions[TP].high_watermark) == (1, 0)
    cluster.change(topic_id, 0, leader=1)
    cluster.tell(2)
    cluster.sleep(0.003)
    cluster.tell(1, 3)
    cluster.sleep(10.0)
    assert [manager.partitions[TP].high_watermark for manager in managers.values()] == [1, 1, 1]


def test_a_leader_that_was_restarted_is_fetched_from_at_once() -> None:
    """The connection to its former incarnation seems to be open, and the answer would be waited for for seconds."""
    cluster, _ = replicated_topic()
    cluster.mute[2, 1] = None
    cluster.sleep(1.0)
    cluster.mute.clear()
    before = len(cluster.fetches)
    cluster.records.append(registration(1))
    cluster.tell(2)
    cluster.sleep(0.01)
    assert [(source, target) for source, target, _ in cluster.fetches[before:]].count((2, 1)) > 0


def test_a_follower_fetches_from_its_new_leader_and_no_more_from_the_former_one() -> None:
    cluster, topic_id = replicated_topic()
    cluster.change(topic_id, 0, leader=2)
    cluster.tell()
    cluster.sleep(1.0)
    cluster.fetches.clear()
    cluster.sleep(3.0)
    assert {(source, target) for source, target, _ in cluster.fetches} == {(1, 2), (3, 2)}


def test_a_change_of_a_leaders_registration_is_no_restart() -> None:
    """Its connection stays: thousands of partitions would else be named again."""
    cluster, _ = replicated_topic()
    before = cluster.connects
    for fenced in (True, False):
        epoch = cluster.latest().brokers[1].epoch
        cluster.records.append(BrokerChangeRecord(1, epoch, fenced=fenced))
        cluster.tell(2, 3)
        cluster.sleep(1.0)
    assert cluster.connects == before


@pytest.mark.parametrize(
    ("checkpoint", "high_watermark"), [(b"0\n1\nt 0 99\n", 5), (b"0\n1\nt 0 4\n", 4), (b"0\n1\nt 0 0\n", 3), (None, 3)]
)
def test_a_replica_begins_with_its_last_high_watermark_as_far_as_it_is_within_its_log(
    checkpoint: bytes | None, high_watermark: int
) -> None:
    """The checkpoint may be older than the log's start, or newer than what a loss of power has left of its end."""
    cluster, topic_id = replicated_topic(replicas=(1,))
    for _ in range(5):
        cluster.produce(1, TP)
    cluster.on_loop(cluster.managers[1].delete_records, TP, 3)
    cluster.sleep(1.0)
    cluster.stop(1)
    path, disk = f"/n1/{HIGH_WATERMARK_FILE}", cluster.disks[1]
    disk.remove(path)
    if checkpoint is not None:
        disk.write_atomic(path, checkpoint)
    cluster.change(topic_id, 0, leader=-1)
    replica = cluster.boot(1).partitions[TP]
    assert (replica.log.log_start_offset, replica.log_end_offset) == (3, 5)
    assert replica.high_watermark == high_watermark


def test_a_topic_has_its_own_minimum_in_sync_before_that_of_the_broker_and_of_all_brokers() -> None:
    cluster, _ = replicated_topic(default_min_isr=2)
    partition = cluster.managers[1].partitions[TP].partition
    assert partition.config.min_isr == 2
    told = ((4, "2", "1", 2), (4, "1", "4", 4), (4, "", "3", 4), (4, "1", None, 3), (2, "t", "1", 1), (4, "", "2", 1))
    for kind, name, value, expected in told:
        cluster.records.append(ConfigRecord(kind, name, "min.insync.replicas", value))
        cluster.tell()
        assert partition.config.min_isr == expected


def test_an_unexpected_error_about_the_settings_of_one_topic_keeps_no_partition_from_its_role(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster, topic_id = replicated_topic()
    cluster.create_topic("u", 8)
    cluster.tell()
    log_config = LocalReplicas.log_config

    def fail_for_one(replicas: LocalReplicas, topic: str) -> LogConfig:
        if topic == "t":
            raise ValueError("what nobody expects")
        return log_config(replicas, topic)

    monkeypatch.setattr(LocalReplicas, "log_config", fail_for_one)
    cluster.records.append(ConfigRecord(BROKER_RESOURCE, "", "min.insync.replicas", "2"))
    cluster.change(topic_id, 0, leader=2)
    cluster.tell()
    cluster.sleep(1)
    assert cluster.managers[2].partitions[TP].is_leader
    other = TopicPartition("u", 0)
    assert [manager.partitions[other].partition.config.min_isr for manager in cluster.managers.values()] == [2, 2, 2]
    errors, cluster.scheduler.errors[:] = [str(error) for error in cluster.scheduler.errors], []
    assert errors and all("t could not take up its settings" in error for error in errors)


def test_a_log_whose_replica_is_on_other_brokers_now_is_deleted_and_nothing_is_fetched() -> None:
    cluster, topic_id = replicated_topic()
    cluster.change(topic_id, 0, replicas=(1, 2), isr=(1, 2))
    cluster.tell()
    assert TP not in cluster.managers[3].partitions
    assert cluster.logs[3].get(TP) is None
    cluster.sleep(1.0)
    cluster.fetches.clear()
    cluster.sleep(2.0)
    assert {source for source, _, _ in cluster.fetches} == {2}


def test_who_leads_from_now_on_is_told_to_who_watches_the_topic() -> None:
    """In each leader epoch anew, and not for other topics: a coordinator loads its state then."""
    cluster, topic_id = replicated_topic(partitions=2)
    cluster.create_topic("u", 8)
    led: list[int] = []
    cluster.managers[2].watch_leadership("t", led.append)
    cluster.change(topic_id, 1, leader=2)
    cluster.change(UUID(int=8), 0, leader=2)
    cluster.tell()
    assert led == [1]
    cluster.change(topic_id, 1, leader=2)
    cluster.tell()
    assert led == [1, 1]
    cluster.change(topic_id, 1, leader=1)
    cluster.tell()
    assert led == [1, 1]


def test_a_partition_that_is_fetched_no_more_leaves_the_connection_to_the_others() -> None:
    cluster, topic_id = replicated_topic(partitions=2)
    before = cluster.connects
    cluster.change(topic_id, 1, replicas=(1, 2), isr=(1, 2))
    cluster.tell()
    cluster.sleep(1.0)
    assert cluster.connects == before
    assert cluster.produce(1, TP, acks=1).error == 0
    cluster.sleep(0.1)
    assert cluster.managers[3].partitions[TP].log_end_offset == 1


@pytest.mark.parametrize("is_deleted", [True, False])
def test_a_produce_that_waits_is_told_whether_the_topic_is_gone_or_has_moved(is_deleted: bool) -> None:
    cluster, topic_id = replicated_topic()
    waiting = cluster.produce(1, TP, timeout_ms=10_000)
    assert waiting.rows is None
    if is_deleted:
        cluster.delete_topic(topic_id)
    else:
        cluster.change(topic_id, 0, replicas=(2, 3), isr=(2, 3), leader=2)
    cluster.tell(1)
    cluster.sleep(0.1)
    gone, moved = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert waiting.error == (gone if is_deleted else moved)
