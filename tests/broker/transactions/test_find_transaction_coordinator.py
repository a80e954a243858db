"""FindCoordinator for transactional ids: the leader of the id's partition of `__transaction_state`."""

from __future__ import annotations

from uuid import UUID

import pytest
from support.broker.broker_harness import settle
from support.broker.group_harness import GroupHarness, play, played

from raftwerk.broker.coordinators.partition_for import partition_for
from raftwerk.broker.transactions.transaction_config import TRANSACTION_TOPIC, TransactionConfig, TransactionTopicConfig
from raftwerk.controller.configs.broker_configs import BROKER_CONFIGS
from raftwerk.controller.metadata.metadata_records import PartitionRecord, TopicRecord
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.errors import ErrorCode

TOPIC_ID = UUID(int=0x7A)


def create_topic(harness: GroupHarness, leaders: tuple[int, ...]) -> None:
    harness.transactions.start()
    harness.replay(TopicRecord(TRANSACTION_TOPIC, TOPIC_ID))
    for index, leader in enumerate(leaders):
        delta = harness.replay(PartitionRecord(TOPIC_ID, index, (leader,), (leader,), leader))
        harness.transactions.on_metadata(harness.image, delta)


@pytest.mark.parametrize("version", range(7))
def test_the_leader_of_the_partition_is_found(version: int) -> None:
    async def test(harness: GroupHarness) -> None:
        create_topic(harness, (3, 2, 1))
        for key in ("a", "b", "c", ""):
            fields = {"key": key, "key_type": 1, "coordinator_keys": [key]}
            answer = await harness.call(ApiKey.FIND_COORDINATOR, version, fields)
            row = answer.coordinators[0] if version >= 4 else answer
            if version == 0:
                continue
            assert (row.error_code, row.node_id) == (0, (3, 2, 1)[partition_for(key, 3)])

    play(test)


@played
async def test_the_first_request_creates_the_topic(harness: GroupHarness) -> None:
    answer = harness.parked(ApiKey.FIND_COORDINATOR, 4, {"key_type": 1, "coordinator_keys": ["t"]})
    await settle()
    assert harness.controller.created == [TRANSACTION_TOPIC]
    assert answer() is None
    create_topic(harness, (2,))
    await settle()
    found = answer()
    assert found is not None
    assert found.coordinators[0].node_id == 2


@played
async def test_who_waits_for_the_topic_is_answered_when_the_broker_stops(harness: GroupHarness) -> None:
    """Clients then ask another broker; they would else wait for a time-out."""
    harness.transactions.start()
    answer = harness.parked(ApiKey.FIND_COORDINATOR, 4, {"key_type": 1, "coordinator_keys": ["t"]})
    await settle()
    assert answer() is None
    harness.transactions.stop()
    await settle()
    found = answer()
    assert found is not None
    assert found.coordinators[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


@played
async def test_without_the_topic_the_coordinator_is_not_available(harness: GroupHarness) -> None:
    answer = await harness.call(ApiKey.FIND_COORDINATOR, 4, {"key_type": 2, "coordinator_keys": ["t"]})
    assert answer.coordinators[0].error_code == ErrorCode.INVALID_REQUEST
    assert harness.transactions.partition_of("t") == partition_for("t", 50)


def test_the_topic_has_the_settings_of_apache_kafka() -> None:
    assert TransactionTopicConfig(min_isr=2).topic_configs() == {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": "2",
        "segment.bytes": "104857600",
        "unclean.leader.election.enable": "false",
    }


def test_a_coordinator_that_is_made_by_hand_has_the_defaults_of_a_broker() -> None:
    made, topic = TransactionConfig(), TransactionConfig().topic
    defaults = {
        "transaction.state.log.num.partitions": topic.partitions,
        "transaction.state.log.replication.factor": topic.replication_factor,
        "transaction.state.log.min.isr": topic.min_isr,
        "transaction.state.log.segment.bytes": topic.segment_bytes,
        "transaction.max.timeout.ms": made.max_timeout_ms,
        "transaction.two.phase.commit.enable": made.is_two_phase_commit_enabled,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": made.abort_interval_ms,
        "transactional.id.expiration.ms": made.id_expiration_ms,
        "transaction.remove.expired.transaction.cleanup.interval.ms": made.expiration_interval_ms,
    }
    assert defaults == {name: BROKER_CONFIGS[name].default_value for name in defaults}
