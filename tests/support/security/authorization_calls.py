"""Calls of every API that a client may send, to be made by users with different rights.

The calls change next to nothing, so that each can be made by every user, one after the other: a call that would change
something names what does not exist, or is valid no further than its authorization.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

from support.security.authorization_users import UNKNOWN_ID

from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.records import NewRecord, encode_batch


class Ids(NamedTuple):
    """The ids of the topics, and the producer of the open transactions."""

    seen: UUID
    hidden: UUID


Fields: TypeAlias = Mapping[str, Any]


class Call(NamedTuple):
    """A request to make."""

    name: str
    key: ApiKey
    version: int
    fields: Callable[[Ids], Fields]


def _batch(**options: Any) -> bytes:
    return bytes(encode_batch([NewRecord(None, b"value", (), 1_700_000_000_000)], **options))


def _produce(topic: Fields, batch: bytes, transactional_id: str | None = None) -> Fields:
    rows = [{**topic, "partition_data": [{"index": 0, "records": memoryview(batch)}]}]
    return {"transactional_id": transactional_id, "acks": -1, "timeout": 10_000, "topic_data": rows}


def _fetch(topic: Fields, replica_id: int = -1) -> Fields:
    rows = [{"partition": 0, "current_leader_epoch": 0, "fetch_offset": 0, "partition_max_bytes": 1000}]
    state = {"replica_id": replica_id, "replica_epoch": -1}
    sizes = {"max_wait": 0, "min_bytes": 0, "max_bytes": 1000}
    return {**sizes, "replica_state": state, "replica_id": replica_id, "topics": [{**topic, "partitions": rows}]}


def _offsets(**topic: Any) -> Fields:
    return {**topic, "partitions": [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]}


_RECORDS: dict[str, tuple[ApiKey, int, Callable[[Ids], Fields]]] = {
    "produce to a topic": (ApiKey.PRODUCE, 12, lambda ids: _produce({"name": "seen"}, _batch())),
    "produce to a missing topic": (ApiKey.PRODUCE, 12, lambda ids: _produce({"name": "missing"}, _batch())),
    "produce to a hidden topic": (ApiKey.PRODUCE, 12, lambda ids: _produce({"name": "hidden"}, _batch())),
    "produce by topic id": (ApiKey.PRODUCE, 13, lambda ids: _produce({"topic_id": ids.seen}, _batch())),
    "produce by unknown topic id": (ApiKey.PRODUCE, 13, lambda ids: _produce({"topic_id": UNKNOWN_ID}, _batch())),
    "produce by hidden topic id": (ApiKey.PRODUCE, 13, lambda ids: _produce({"topic_id": ids.hidden}, _batch())),
    "produce in a transaction": (
        ApiKey.PRODUCE,
        12,
        lambda ids: _produce(
            {"name": "seen"},
            _batch(producer_id=99_999, producer_epoch=0, base_sequence=0, is_transactional=True),
            "seen-idle",
        ),
    ),
    "produce with a transactional id only": (
        ApiKey.PRODUCE,
        12,
        lambda ids: _produce({"name": "seen"}, _batch(), "hidden-open"),
    ),
    "fetch": (ApiKey.FETCH, 12, lambda ids: _fetch({"topic": "seen"})),
    "fetch a missing topic": (ApiKey.FETCH, 12, lambda ids: _fetch({"topic": "missing"})),
    "fetch a hidden topic": (ApiKey.FETCH, 12, lambda ids: _fetch({"topic": "hidden"})),
    "fetch by topic id": (ApiKey.FETCH, 17, lambda ids: _fetch({"topic_id": ids.seen})),
    "fetch by unknown topic id": (ApiKey.FETCH, 17, lambda ids: _fetch({"topic_id": UNKNOWN_ID})),
    "fetch by hidden topic id": (ApiKey.FETCH, 17, lambda ids: _fetch({"topic_id": ids.hidden})),
    "fetch as a replica": (ApiKey.FETCH, 17, lambda ids: _fetch({"topic_id": ids.seen}, 1)),
    "fetch an unknown id as a replica": (ApiKey.FETCH, 17, lambda ids: _fetch({"topic_id": UNKNOWN_ID}, 1)),
    "list offsets": (
        ApiKey.LIST_OFFSETS,
        7,
        lambda ids: {
            "replica_id": -1,
            "topics": [
                {"name": name, "partitions": [{"partition_index": 0, "timestamp": -1}]}
                for name in ("seen", "hidden", "missing")
            ],
        },
    ),
    "offsets of leader epochs": (
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        4,
        lambda ids: {
            "replica_id": -2,
            "topics": [
                {"topic": name, "partitions": [{"partition": 0, "leader_epoch": 0}]}
                for name in ("seen", "hidden", "missing")
            ],
        },
    ),
    "delete records": (
        ApiKey.DELETE_RECORDS,
        2,
        lambda ids: {
            "topics": [
                {"name": name, "partitions": [{"partition_index": 0, "offset": 0}]}
                for name in ("seen", "hidden", "missing")
            ],
            "timeout": 10_000,
        },
    ),
    "describe producers": (
        ApiKey.DESCRIBE_PRODUCERS,
        0,
        lambda ids: {
            "topics": [{"name": name, "partition_indexes": [0]} for name in ("seen", "hidden", "missing")],
        },
    ),
}


def _metadata(topics: list[Fields] | None, **fields: Any) -> Fields:
    return {
        "topics": topics,
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": True,
        **fields,
    }


_METADATA: dict[str, tuple[ApiKey, int, Callable[[Ids], Fields]]] = {
    "metadata of all topics": (ApiKey.METADATA, 12, lambda ids: _metadata(None)),
    "metadata with the cluster's operations": (
        ApiKey.METADATA,
        10,
        lambda ids: _metadata([], include_cluster_authorized_operations=True),
    ),
    "metadata of a topic": (ApiKey.METADATA, 12, lambda ids: _metadata([{"name": "seen"}])),
    "metadata of a missing topic": (ApiKey.METADATA, 12, lambda ids: _metadata([{"name": "missing"}])),
    "metadata of a hidden topic": (ApiKey.METADATA, 12, lambda ids: _metadata([{"name": "hidden"}])),
    "metadata of an illegal name": (ApiKey.METADATA, 12, lambda ids: _metadata([{"name": "a/b"}])),
    "metadata of a topic that is to be created": (
        ApiKey.METADATA,
        12,
        lambda ids: _metadata([{"name": "a/b"}], allow_auto_topic_creation=True),
    ),
    "metadata by topic id": (ApiKey.METADATA, 12, lambda ids: _metadata([{"topic_id": ids.seen, "name": None}])),
    "metadata by unknown topic id": (
        ApiKey.METADATA,
        12,
        lambda ids: _metadata([{"topic_id": UNKNOWN_ID, "name": None}]),
    ),
    "metadata by hidden topic id": (
        ApiKey.METADATA,
        12,
        lambda ids: _metadata([{"topic_id": ids.hidden, "name": None}]),
    ),
    "describe all topics' partitions": (
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        0,
        lambda ids: {"topics": [], "response_partition_limit": 2000, "cursor": None},
    ),
    "describe topics' partitions": (
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        0,
        lambda ids: {
            "topics": [{"name": name} for name in ("seen", "hidden", "missing")],
            "response_partition_limit": 2000,
            "cursor": None,
        },
    ),
    "describe the cluster": (
        ApiKey.DESCRIBE_CLUSTER,
        1,
        lambda ids: {"include_cluster_authorized_operations": True, "endpoint_type": 1},
    ),
    "describe the controllers at a broker": (
        ApiKey.DESCRIBE_CLUSTER,
        1,
        lambda ids: {"include_cluster_authorized_operations": True, "endpoint_type": 2},
    ),
    "api versions": (
        ApiKey.API_VERSIONS,
        3,
        lambda ids: {"client_software_name": "test", "client_software_version": "1"},
    ),
}


def _coordinator(key_type: int, *keys: str) -> Callable[[Ids], Fields]:
    return lambda ids: {"key_type": key_type, "coordinator_keys": list(keys)}


def _heartbeat(topic: str | None, regex: str | None = None) -> Callable[[Ids], Fields]:
    return lambda ids: {
        "group_id": "seen-group",
        "member_id": "member",
        "member_epoch": 5,
        "rebalance_timeout": 10_000,
        "subscribed_topic_names": None if topic is None else [topic],
        "subscribed_topic_regex": regex,
        "topic_partitions": [],
    }


_GROUPS: dict[str, tuple[ApiKey, int, Callable[[Ids], Fields]]] = {
    "describe a consumer group": (
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        1,
        lambda ids: {"group_ids": ["seen-consumers"], "include_authorized_operations": True},
    ),
    "describe a consumer group with a hidden topic": (
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        1,
        lambda ids: {"group_ids": ["mixed-consumers"], "include_authorized_operations": True},
    ),
    "find group coordinators": (
        ApiKey.FIND_COORDINATOR,
        4,
        _coordinator(0, "seen-group", "hidden-group"),
    ),
    "find a group coordinator, in version 3": (
        ApiKey.FIND_COORDINATOR,
        3,
        lambda ids: {"key_type": 0, "key": "seen-group"},
    ),
    "find transaction coordinators": (ApiKey.FIND_COORDINATOR, 4, _coordinator(1, "seen-open", "hidden-open")),
    "join a group": (
        ApiKey.JOIN_GROUP,
        7,
        lambda ids: {
            "group_id": "missing-group",
            "session_timeout": 10_000,
            "rebalance_timeout": 10_000,
            "member_id": "member",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        },
    ),
    "sync a group": (
        ApiKey.SYNC_GROUP,
        5,
        lambda ids: {
            "group_id": "missing-group",
            "generation_id": 1,
            "member_id": "member",
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [],
        },
    ),
    "heartbeat": (
        ApiKey.HEARTBEAT,
        4,
        lambda ids: {"group_id": "missing-group", "generation_id": 1, "member_id": "member"},
    ),
    "leave a group": (
        ApiKey.LEAVE_GROUP,
        5,
        lambda ids: {"group_id": "missing-group", "members": [{"member_id": "member"}]},
    ),
    "heartbeat of a consumer group": (ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, _heartbeat("seen")),
    "heartbeat that subscribes to a hidden topic": (ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, _heartbeat("hidden")),
    "heartbeat without a subscription": (ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, _heartbeat(None)),
    "heartbeat with an expression": (ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, _heartbeat(None, "se.*")),
    "commit offsets": (
        ApiKey.OFFSET_COMMIT,
        9,
        lambda ids: {
            "group_id": "seen-group",
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "topics": [_offsets(name="seen"), _offsets(name="hidden"), _offsets(name="missing")],
        },
    ),
    "commit offsets by topic ids": (
        ApiKey.OFFSET_COMMIT,
        10,
        lambda ids: {
            "group_id": "seen-group",
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "topics": [_offsets(topic_id=ids.seen), _offsets(topic_id=ids.hidden), _offsets(topic_id=UNKNOWN_ID)],
        },
    ),
    "fetch offsets, in version 7": (
        ApiKey.OFFSET_FETCH,
        7,
        lambda ids: {
            "group_id": "seen-group",
            "topics": [{"name": name, "partition_indexes": [0]} for name in ("seen", "hidden", "missing")],
        },
    ),
    "fetch all offsets, in version 7": (
        ApiKey.OFFSET_FETCH,
        7,
        lambda ids: {"group_id": "seen-group", "topics": None},
    ),
    "fetch offsets": (
        ApiKey.OFFSET_FETCH,
        9,
        lambda ids: {
            "groups": [
                {
                    "group_id": group,
                    "topics": [{"name": name, "partition_indexes": [0]} for name in ("seen", "hidden", "missing")],
                }
                for group in ("seen-group", "hidden-group")
            ]
        },
    ),
    "fetch offsets by topic ids": (
        ApiKey.OFFSET_FETCH,
        10,
        lambda ids: {
            "groups": [
                {
                    "group_id": "seen-group",
                    "topics": [
                        {"topic_id": topic_id, "partition_indexes": [0]}
                        for topic_id in (ids.seen, ids.hidden, UNKNOWN_ID)
                    ],
                }
            ]
        },
    ),
    "fetch all offsets": (
        ApiKey.OFFSET_FETCH,
        9,
        lambda ids: {"groups": [{"group_id": "seen-group", "topics": None}]},
    ),
    "fetch all offsets by topic ids": (
        ApiKey.OFFSET_FETCH,
        10,
        lambda ids: {"groups": [{"group_id": "seen-group", "topics": None}]},
    ),
    "list groups": (ApiKey.LIST_GROUPS, 5, lambda ids: {"states_filter": [], "types_filter": []}),
    "describe groups": (
        ApiKey.DESCRIBE_GROUPS,
        6,
        lambda ids: {"groups": ["seen-group", "hidden-group"], "include_authorized_operations": True},
    ),
    "describe a missing consumer group": (
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        1,
        lambda ids: {"group_ids": ["missing-group"], "include_authorized_operations": True},
    ),
    "delete groups": (
        ApiKey.DELETE_GROUPS,
        2,
        lambda ids: {"groups_names": ["missing-group"]},
    ),
    "delete offsets": (
        ApiKey.OFFSET_DELETE,
        0,
        lambda ids: {
            "group_id": "seen-group",
            "topics": [{"name": name, "partitions": [{"partition_index": 5}]} for name in ("seen", "hidden")],
        },
    ),
    "delete offsets of a missing topic": (
        ApiKey.OFFSET_DELETE,
        0,
        lambda ids: {
            "group_id": "seen-group",
            "topics": [{"name": "missing", "partitions": [{"partition_index": 0}]}],
        },
    ),
}
_PRODUCER = {"producer_id": 99_999, "producer_epoch": 0}


def _added(*names: str) -> list[Fields]:
    return [{"name": name, "partitions": [0]} for name in names]


_TRANSACTIONS: dict[str, tuple[ApiKey, int, Callable[[Ids], Fields]]] = {
    "an idempotent producer's id": (
        ApiKey.INIT_PRODUCER_ID,
        4,
        lambda ids: {"transactional_id": None, "transaction_timeout": 60_000},
    ),
    "a transactional producer's id": (
        ApiKey.INIT_PRODUCER_ID,
        4,
        lambda ids: {"transactional_id": "seen-idle", "transaction_timeout": 60_000},
    ),
    "add partitions to a transaction": (
        ApiKey.ADD_PARTITIONS_TO_TXN,
        3,
        lambda ids: {
            "v3_and_below_transactional_id": "seen-idle",
            "v3_and_below_producer_id": 99_999,
            "v3_and_below_producer_epoch": 0,
            "v3_and_below_topics": _added("seen"),
        },
    ),
    "add a hidden and a missing topic to a transaction": (
        ApiKey.ADD_PARTITIONS_TO_TXN,
        3,
        lambda ids: {
            "v3_and_below_transactional_id": "seen-idle",
            "v3_and_below_producer_id": 99_999,
            "v3_and_below_producer_epoch": 0,
            "v3_and_below_topics": _added("seen", "hidden", "missing"),
        },
    ),
    "verify partitions of a transaction": (
        ApiKey.ADD_PARTITIONS_TO_TXN,
        4,
        lambda ids: {
            "transactions": [
                {"transactional_id": "seen-idle", **_PRODUCER, "verify_only": True, "topics": _added("seen")}
            ]
        },
    ),
    "add offsets to a transaction": (
        ApiKey.ADD_OFFSETS_TO_TXN,
        4,
        lambda ids: {"transactional_id": "seen-idle", **_PRODUCER, "group_id": "seen-group"},
    ),
    "end a transaction": (
        ApiKey.END_TXN,
        4,
        lambda ids: {"transactional_id": "seen-idle", **_PRODUCER, "committed": True},
    ),
    "write markers": (
        ApiKey.WRITE_TXN_MARKERS,
        1,
        lambda ids: {
            "markers": [
                {
                    **_PRODUCER,
                    "transaction_result": False,
                    "coordinator_epoch": 0,
                    "topics": [{"name": "missing", "partition_indexes": [0]}],
                }
            ]
        },
    ),
    "commit offsets in a transaction": (
        ApiKey.TXN_OFFSET_COMMIT,
        4,
        lambda ids: {
            "transactional_id": "seen-idle",
            "group_id": "seen-group",
            **_PRODUCER,
            "topics": [_offsets(name="hidden"), _offsets(name="missing")],
        },
    ),
    "list transactions": (ApiKey.LIST_TRANSACTIONS, 1, lambda ids: {"state_filters": ["Ongoing"]}),
    "describe transactions": (
        ApiKey.DESCRIBE_TRANSACTIONS,
        0,
        lambda ids: {"transactional_ids": ["seen-open", "hidden-open"]},
    ),
}


def _configs(resource_type: int, name: str) -> Callable[[Ids], Fields]:
    row = {"resource_type": resource_type, "resource_name": name, "configuration_keys": ["retention.ms"]}
    return lambda ids: {"resources": [row]}


def _replace(kind: int, name: str, config: str, value: str) -> Callable[[Ids], Fields]:
    row = {"resource_type": kind, "resource_name": name, "configs": [{"name": config, "value": value}]}
    return lambda ids: {"resources": [row], "validate_only": True}


def _increment(resource_type: int, name: str, key: str, value: str) -> Callable[[Ids], Fields]:
    config = {"name": key, "config_operation": 0, "value": value}
    row = {"resource_type": resource_type, "resource_name": name, "configs": [config]}
    return lambda ids: {"resources": [row], "validate_only": True}


_CONFIGS: dict[str, tuple[ApiKey, int, Callable[[Ids], Fields]]] = {
    "configs of a topic": (ApiKey.DESCRIBE_CONFIGS, 4, _configs(2, "seen")),
    "configs of a hidden topic": (ApiKey.DESCRIBE_CONFIGS, 4, _configs(2, "hidden")),
    "configs of a missing topic": (ApiKey.DESCRIBE_CONFIGS, 4, _configs(2, "missing")),
    "configs of an illegal topic": (ApiKey.DESCRIBE_CONFIGS, 4, _configs(2, "a/b")),
    "configs of a broker": (ApiKey.DESCRIBE_CONFIGS, 4, _configs(4, "1")),
    "configs of another broker": (ApiKey.DESCRIBE_CONFIGS, 4, _configs(4, "77")),
    "loggers of a broker": (ApiKey.DESCRIBE_CONFIGS, 4, _configs(8, "1")),
    "configs of client metrics": (ApiKey.DESCRIBE_CONFIGS, 4, _configs(16, "metrics")),
    "configs of a group": (ApiKey.DESCRIBE_CONFIGS, 4, _configs(32, "seen-group")),
    "configs of what is unknown": (ApiKey.DESCRIBE_CONFIGS, 4, _configs(99, "1")),
    "change a topic": (ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, _increment(2, "seen", "retention.ms", "1000")),
    "change a missing topic": (ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, _increment(2, "missing", "retention.ms", "1000")),
    "change a hidden topic": (ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, _increment(2, "hidden", "retention.ms", "1000")),
    "change a broker": (ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, _increment(4, "1", "log.retention.ms", "1000")),
    "change a logger": (ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, _increment(8, "1", "root", "INFO")),
    "change a group": (
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        1,
        _increment(32, "seen-group", "consumer.session.timeout.ms", "50000"),
    ),
    "change client metrics": (ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, _increment(16, "metrics", "interval.ms", "1000")),
    "replace a topic's configs": (ApiKey.ALTER_CONFIGS, 2, _replace(2, "seen", "retention.ms", "1000")),
    "replace a hidden topic's configs": (ApiKey.ALTER_CONFIGS, 2, _replace(2, "hidden", "retention.ms", "1000")),
    "replace a broker's configs": (ApiKey.ALTER_CONFIGS, 2, _replace(4, "1", "log.retention.ms", "1000")),
    "replace a group's configs": (
        ApiKey.ALTER_CONFIGS,
        2,
        _replace(32, "seen-group", "consumer.session.timeout.ms", "50000"),
    ),
    "list client metrics": (ApiKey.LIST_CONFIG_RESOURCES, 0, lambda ids: {}),
    "list topics with configs": (ApiKey.LIST_CONFIG_RESOURCES, 1, lambda ids: {"resource_types": [2]}),
    "describe log directories": (ApiKey.DESCRIBE_LOG_DIRS, 4, lambda ids: {"topics": None}),
    "move to another directory": (
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        2,
        lambda ids: {"dirs": [{"path": "/nowhere", "topics": _added("seen", "hidden")}]},
    ),
    "describe quotas": (ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, lambda ids: {"components": [], "strict": False}),
    # Kafka does not answer those without the right who name no user.
    "describe passwords": (ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, lambda ids: {"users": [{"name": "alice"}]}),
}


def _calls(*tables: dict[str, tuple[ApiKey, int, Callable[[Ids], Fields]]]) -> tuple[Call, ...]:
    return tuple(Call(name, *what) for table in tables for name, what in table.items())


BROKER_CALLS = _calls(_GROUPS, _RECORDS, _METADATA, _TRANSACTIONS, _CONFIGS)
"""The calls that brokers answer, or that change something at the broker."""
