"""What an answer of a controller confirms is looked for in the metadata."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from support.controller.metadata_states import batch_of

from raftwerk.chaos.sim.invariants.answers.decided_changes import first_untrue
from raftwerk.chaos.specification.metadata.metadata_state import MetadataState, Parts
from raftwerk.controller.metadata.metadata_records import (
    BrokerChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    Record,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.codec import Struct, decode_request, decode_response, encode_request, encode_response

TOPIC, OTHER, DIRECTORY = UUID(int=100), UUID(int=101), UUID(int=200)
BROKERS = tuple(RegisterBrokerRecord(each, UUID(int=each), (), "rack", log_dirs=(DIRECTORY,)) for each in (1, 2, 3))
CREATED = (
    TopicRecord("t", TOPIC),
    PartitionRecord(TOPIC, 0, (1, 2, 3), (1, 2, 3), 1),
    ConfigRecord(2, "t", "retention.ms", "5"),
)
_TOPIC_ROW = {"name": "t", "num_partitions": 1, "replication_factor": 3, "assignments": []}
_RETENTION = {"name": "retention.ms", "value": "5"}


def states(*changes: Record) -> list[Parts]:
    """Three brokers and a topic, and the metadata after each of these changes."""
    state, offset, found = MetadataState(), 0, []
    for records in (BROKERS, CREATED, *((change,) for change in changes)):
        state.replay(batch_of(offset, *records))
        offset += len(records)
        found.append(state.parts())
    return found[1:]


def request(api: ApiKey, version: int, fields: dict[str, Any]) -> Struct:
    return decode_request(api, version, b"".join(bytes(one) for one in [encode_request(api, version, fields)]), 0)


def response(api: ApiKey, version: int, fields: dict[str, Any]) -> Struct:
    return decode_response(api, version, b"".join(bytes(one) for one in [encode_response(api, version, fields)]), 0)


def untrue(api: ApiKey, version: int, asked: dict[str, Any], told: dict[str, Any], *changes: Record) -> str | None:
    """What is not true of an answer, if these changes were made after the topic was created."""
    return first_untrue(api, request(api, version, asked), response(api, version, told), states(*changes))


def partition_row(**fields: Any) -> dict[str, Any]:
    return {"topics": [{"topic_id": TOPIC, "partitions": [{"partition_index": 0, "error_code": 0, **fields}]}]}


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"configs": []}, {}),
        ({"configs": [{"name": "retention.ms", "value": "6"}]}, {}),
        ({"num_partitions": 2, "configs": [_RETENTION]}, {}),
        ({"replication_factor": 2, "configs": [_RETENTION]}, {}),
        ({"configs": [_RETENTION]}, {"topic_id": OTHER}),
        ({"configs": [_RETENTION], "assignments": [{"partition_index": 0, "broker_ids": [2, 1, 3]}]}, {}),
    ],
)
def test_a_topic_is_there_as_it_was_asked_for(asked: dict[str, Any], told: dict[str, Any]) -> None:
    def what(asked: dict[str, Any], told: dict[str, Any]) -> str | None:
        fields = {"topics": [{**_TOPIC_ROW, **asked}], "validate_only": False}
        rows = [{"name": "t", "topic_id": TOPIC, "num_partitions": 1, "replication_factor": 3, **told}]
        return untrue(ApiKey.CREATE_TOPICS, 7, fields, {"topics": rows})

    assert what({"configs": [_RETENTION]}, {}) is None
    assert what({"num_partitions": -1, "replication_factor": -1, "configs": [_RETENTION]}, {}) is None
    assert what(asked, told) == "topic t as it was asked for"
    assert what(asked, {**told, "error_code": 36}) is None


def test_a_deleted_topic_is_gone_and_so_are_its_settings() -> None:
    asked: dict[str, Any] = {"topics": [{"name": "t", "topic_id": None}]}
    told = {"responses": [{"name": "t", "topic_id": TOPIC}]}
    assert untrue(ApiKey.DELETE_TOPICS, 6, asked, told) == "no topic t"
    assert untrue(ApiKey.DELETE_TOPICS, 6, asked, told, RemoveTopicRecord(TOPIC)) is None
    assert states(RemoveTopicRecord(TOPIC))[-1]["settings"] == ()


def test_partitions_are_as_many_as_were_asked_for() -> None:
    asked = {"topics": [{"name": "t", "count": 2, "assignments": None}], "validate_only": False}
    told = {"results": [{"name": "t"}]}
    more = PartitionRecord(TOPIC, 1, (1, 2, 3), (1, 2, 3), 1)
    assert untrue(ApiKey.CREATE_PARTITIONS, 3, asked, told) == "2 partitions of t"
    assert untrue(ApiKey.CREATE_PARTITIONS, 3, asked, told, more) is None
    assert untrue(ApiKey.CREATE_PARTITIONS, 3, {**asked, "validate_only": True}, told) is None


@pytest.mark.parametrize(
    ("operation", "value", "change"),
    [(0, "7", ConfigRecord(2, "t", "retention.ms", "7")), (1, None, ConfigRecord(2, "t", "retention.ms", None))],
)
def test_settings_are_those_that_were_asked_for(operation: int, value: str | None, change: Record) -> None:
    row = {"name": "retention.ms", "config_operation": operation, "value": value}
    asked = {"resources": [{"resource_type": 2, "resource_name": "t", "configs": [row]}], "validate_only": False}
    told = {"responses": [{"resource_type": 2, "resource_name": "t"}]}
    api = ApiKey.INCREMENTAL_ALTER_CONFIGS
    assert untrue(api, 1, asked, told) == "the settings of t"
    assert untrue(api, 1, asked, told, change) is None
    later = ConfigRecord(2, "t", "retention.ms", "9")
    assert untrue(api, 1, asked, told, change, later) is None


def test_a_reassignment_has_its_target_in_the_order_that_was_asked_for() -> None:
    def what(replicas: list[int] | None, *changes: Record) -> str | None:
        row = {"partition_index": 0, "replicas": replicas}
        told = {"responses": [{"name": "t", "partitions": [{"partition_index": 0}]}]}
        asked = {"topics": [{"name": "t", "partitions": [row]}]}
        return untrue(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, asked, told, *changes)

    begun = PartitionChangeRecord(TOPIC, 0, replicas=(2, 3, 1), removing_replicas=(1,))
    assert what([2, 3]) == "t-0 on the way to (2, 3)"
    assert what([2, 3], begun) is None
    assert what([3, 2], begun) == "t-0 on the way to (3, 2)"
    assert what(None) is None
    asked_later = {"topics": [{"name": "t", "partitions": [{"partition_index": 0, "replicas": None}]}]}
    told_later = {"responses": [{"name": "t", "partitions": [{"partition_index": 0}]}]}
    api = ApiKey.ALTER_PARTITION_REASSIGNMENTS
    parts = states(begun)[-1:]
    assert first_untrue(api, request(api, 0, asked_later), response(api, 0, told_later), parts) is not None


def test_an_election_gives_the_leader_that_was_asked_for() -> None:
    def what(election_type: int, *changes: Record) -> str | None:
        asked = {"election_type": election_type, "topic_partitions": [{"topic": "t", "partitions": [0]}]}
        told = {"replica_election_results": [{"topic": "t", "partition_result": [{"partition_id": 0}]}]}
        api = ApiKey.ELECT_LEADERS
        return first_untrue(api, request(api, 2, asked), response(api, 2, told), states(*changes)[-1:])

    assert what(0) is None
    assert what(0, PartitionChangeRecord(TOPIC, 0, leader=2)) == "a leader of t-0"
    assert what(1, PartitionChangeRecord(TOPIC, 0, leader=2)) is None
    assert what(1, PartitionChangeRecord(TOPIC, 0, leader=-1)) == "a leader of t-0"


def test_a_leader_is_told_the_state_that_its_partition_has() -> None:
    def what(**told: Any) -> str | None:
        state = {"leader_id": 1, "leader_epoch": 0, "isr": [1, 2], "leader_recovery_state": 0, "partition_epoch": 1}
        change = PartitionChangeRecord(TOPIC, 0, isr=(1, 2))
        return untrue(ApiKey.ALTER_PARTITION, 2, {}, partition_row(**{**state, **told}), change)

    assert what() is None
    for told in ({"isr": [2, 1]}, {"partition_epoch": 2}, {"leader_epoch": 1}, {"leader_id": 2}):
        assert what(**told) is not None, told
    assert what(isr=[1], error_code=42) is None


def test_a_replica_is_in_the_directory_that_its_broker_has_told() -> None:
    api = ApiKey.ASSIGN_REPLICAS_TO_DIRS
    rows = {"id": DIRECTORY, **partition_row()}
    asked = {"broker_id": 2, "directories": [{"id": DIRECTORY, "topics": [{"topic_id": TOPIC, "partitions": []}]}]}
    told = {"directories": [rows]}
    there = PartitionChangeRecord(TOPIC, 0, directories=(UUID(int=1), DIRECTORY, UUID(int=1)))
    elsewhere = PartitionChangeRecord(TOPIC, 0, directories=(DIRECTORY, UUID(int=1), UUID(int=1)))
    assert untrue(api, 0, asked, told, there) is None
    assert untrue(api, 0, asked, told, elsewhere) == "the directory of partition 0"


def test_brokers_are_registered_fenced_and_removed_as_they_are_told() -> None:
    gone = UnregisterBrokerRecord(2, 1)
    assert untrue(ApiKey.UNREGISTER_BROKER, 0, {"broker_id": 2}, {"error_code": 0}) == "no broker 2"
    assert untrue(ApiKey.UNREGISTER_BROKER, 0, {"broker_id": 2}, {"error_code": 0}, gone) is None
    asked: dict[str, Any] = {"broker_id": 2, "incarnation_id": UUID(int=2), "rack": "rack", "log_dirs": [DIRECTORY]}
    assert untrue(ApiKey.BROKER_REGISTRATION, 4, asked, {"broker_epoch": 1}) is None
    wrongs: tuple[dict[str, Any], ...] = ({"incarnation_id": UUID(int=9)}, {"rack": None}, {"log_dirs": []})
    for wrong in wrongs:
        assert untrue(ApiKey.BROKER_REGISTRATION, 4, {**asked, **wrong}, {"broker_epoch": 1}) is not None, wrong
    assert untrue(ApiKey.BROKER_REGISTRATION, 4, asked, {"broker_epoch": 2}) is not None
    beat = {"broker_id": 2, "broker_epoch": 1}
    unfenced = BrokerChangeRecord(2, 1, fenced=False)
    assert untrue(ApiKey.BROKER_HEARTBEAT, 1, beat, {"is_fenced": True}) is None
    assert untrue(ApiKey.BROKER_HEARTBEAT, 1, beat, {"is_fenced": False}) == "broker 2 not fenced"
    assert untrue(ApiKey.BROKER_HEARTBEAT, 1, beat, {"is_fenced": False}, unfenced) is None


def test_features_have_the_levels_that_were_asked_for() -> None:
    asked = {"feature_updates": [{"feature": "f", "max_version_level": 2, "upgrade_type": 1}], "validate_only": False}
    assert untrue(ApiKey.UPDATE_FEATURES, 1, asked, {"results": []}) == "f at 2"
    assert untrue(ApiKey.UPDATE_FEATURES, 1, asked, {"results": []}, FeatureLevelRecord("f", 2)) is None
    assert untrue(ApiKey.UPDATE_FEATURES, 1, asked, {"results": [{"feature": "f", "error_code": 1}]}) is None
