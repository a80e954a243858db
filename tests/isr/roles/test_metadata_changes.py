"""What replicas take from a change of the metadata: settings of brokers, and that they lead."""

from __future__ import annotations

import logging
from uuid import UUID

import pytest
from support.isr.manager_cluster import registration, replicated_topic

from raftwerk.controller.metadata.metadata_image import BROKER_RESOURCE
from raftwerk.controller.metadata.metadata_records import BrokerChangeRecord, ConfigRecord
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
