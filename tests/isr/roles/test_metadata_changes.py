"""What replicas take from a change of the metadata: settings of brokers, and that they lead."""

from __future__ import annotations

import logging

import pytest
from support.isr.manager_cluster import replicated_topic

from raftwerk.controller.metadata.metadata_image import BROKER_RESOURCE
from raftwerk.controller.metadata.metadata_records import ConfigRecord
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
