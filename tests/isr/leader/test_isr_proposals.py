"""What a leader looks at from time to time, without a fetch or a record."""

from __future__ import annotations

import logging

import pytest
from support.isr.manager_cluster import replicated_topic

from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.types import TopicPartition

TP = TopicPartition("t", 0)


def test_records_are_committed_though_a_replica_dies_that_was_about_to_join() -> None:
    """The high watermark waits for it a while after its last fetch, and nobody else fetches or writes after that."""
    cluster, topic_id = replicated_topic(replicas=(1, 2))
    cluster.alter_error = int(ErrorCode.INELIGIBLE_REPLICA)
    cluster.change(topic_id, 0, isr=(1,))
    cluster.tell()
    cluster.sleep(1.0)
    cluster.stop(2)
    answer = cluster.produce(1, TP, timeout_ms=60_000)
    cluster.sleep(1.0)
    assert answer.rows is None
    cluster.sleep(20.0)
    assert answer.error == 0


def test_a_proposal_is_not_sent_again_once_another_broker_leads_or_the_topic_is_gone() -> None:
    cluster, topic_id = replicated_topic()
    cluster.alter_error = int(ErrorCode.NOT_CONTROLLER)
    cluster.change(topic_id, 0, isr=(1, 2))
    cluster.tell()
    cluster.sleep(0.3)
    assert {one.proposal.leader_epoch for one in cluster.alterations} == {0}
    cluster.change(topic_id, 0, leader=2)
    cluster.tell()
    cluster.sleep(0.1)
    cluster.alterations.clear()
    cluster.sleep(1.0)
    assert {one.proposal.leader_epoch for one in cluster.alterations} == {1}, "those of the new leader"
    cluster.delete_topic(topic_id)
    cluster.tell()
    cluster.sleep(0.1)
    cluster.alterations.clear()
    cluster.sleep(1.0)
    assert cluster.alterations == []


def test_a_follower_that_is_behind_is_proposed_once_for_removal_and_not_while_that_is_decided(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    cluster, _ = replicated_topic(replica_lag_time_max_ms=2_000)
    cluster.sleep(1.0)
    cluster.mute[2, 1] = None
    cluster.produce(1, TP, acks=1)
    cluster.sleep(6.0)
    proposed = [[broker for broker, _ in one.proposal.new_isr] for one in cluster.alterations]
    assert proposed == [[1, 3]]
    told = [record for record in caplog.records if "isr-proposed" in record.getMessage()]
    assert [getattr(record, "fields", {}) for record in told] == [
        {"event": "isr-proposed", "topic": "t", "partition": 0, "isr": [1, 3], "isr_before": (1, 2, 3)}
    ]
    cluster.tell()
    leader = cluster.managers[1].partitions[TP].partition.leader
    assert leader is not None and leader.isr_state.isr == (1, 3)
