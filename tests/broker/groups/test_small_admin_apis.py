"""Small admin APIs that many tools call."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from support.broker.broker_harness import TOPIC
from support.broker.group_harness import GroupHarness, play, played

from raftwerk.broker.apis.api_table import broker_registry
from raftwerk.log.state.producer_state import BatchMetadata, ProducerStateEntry
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.types import TopicPartition


@played
async def test_describe_producers(harness: GroupHarness) -> None:
    entry = ProducerStateEntry(3)
    entry.batches.append(BatchMetadata(0, 4, 4, 4, 1000))
    entry.last_timestamp = 1000
    log = SimpleNamespace(producers={77: entry})
    harness.replicas.partitions[TopicPartition(TOPIC, 0)] = SimpleNamespace(is_leader=True, log=log)
    fields = {"topics": [{"name": TOPIC, "partition_indexes": [0, 1, 9]}]}
    here, elsewhere, nowhere = (await harness.call(ApiKey.DESCRIBE_PRODUCERS, 0, fields)).topics[0].partitions
    (row,) = here.active_producers
    assert (row.producer_id, row.producer_epoch, row.last_sequence, row.last_timestamp) == (77, 3, 4, 1000)
    assert row.current_txn_start_offset == -1
    assert elsewhere.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert nowhere.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", range(2))
def test_list_config_resources(version: int) -> None:
    async def test(harness: GroupHarness) -> None:
        answer = await harness.call(ApiKey.LIST_CONFIG_RESOURCES, version, {"resource_types": [2]})
        found = [(row.get("resource_type"), row.resource_name) for row in answer.config_resources]
        assert found == ([] if version == 0 else [(2, "__consumer_offsets"), (2, TOPIC)])
        if version:
            refused = await harness.call(ApiKey.LIST_CONFIG_RESOURCES, version, {"resource_types": [99]})
            assert refused.error_code == ErrorCode.UNSUPPORTED_VERSION

    play(test)


def test_client_telemetry_is_not_served() -> None:
    """As in Apache Kafka without a metrics reporter that receives them: the APIs are not listed."""
    served = {int(api.key) for api in broker_registry()}
    assert not served & {int(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS), int(ApiKey.PUSH_TELEMETRY)}
