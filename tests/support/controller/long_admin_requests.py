"""Requests with very many items to a controller, each with the state of the cluster that it is meant for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID

from support.controller.controller_harness import CLUSTER_ID
from support.controller.controller_listener import (
    DIRECTORIES,
    LARGE_TOPIC,
    LARGE_TOPIC_ID,
    ControllerListener,
    State,
    topic_id,
    topic_name,
)

from raftwerk.broker.authorization import Authorization
from raftwerk.controller.metadata.features import SUPPORTED_FEATURES
from raftwerk.controller.metadata.metadata_records import AccessControlEntryRecord
from raftwerk.security.authorizer.standard_authorizer import StandardAuthorizer
from raftwerk.wire.api_keys import ApiKey

ITEMS = 5_000
TOPIC_RESOURCE = 2
ISR_OF_TWO = [{"broker_id": broker_id, "broker_epoch": -1} for broker_id in (1, 2)]


class LongRequest(NamedTuple):
    """A request, by name; `cluster` makes the controller that it goes to."""

    name: str
    key: ApiKey
    fields: dict[str, Any]
    cluster: Callable[[], ControllerListener]


def _topics_in(state: State) -> Callable[[], ControllerListener]:
    return lambda: ControllerListener(topics=ITEMS, state=state)


def _partitions_in(state: State) -> Callable[[], ControllerListener]:
    return lambda: ControllerListener(partitions=ITEMS, state=state)


_many_topics, _one_large_topic, _small = _topics_in(State.HEALTHY), _partitions_in(State.HEALTHY), ControllerListener


def _broker_1_is_away() -> ControllerListener:
    return ControllerListener(state=State.LEADERLESS)


def _guarded() -> ControllerListener:
    """A controller with an authorizer, at which everybody is a super user."""
    listener = ControllerListener()
    listener.services.authorization = Authorization(StandardAuthorizer(["User:ANONYMOUS"]))
    return listener


def _entry(number: int) -> dict[str, Any]:
    names = {"resource_name": f"t{number}", "principal": "User:alice", "host": "*"}
    return {"resource_type": TOPIC_RESOURCE, "resource_pattern_type": 3, **names, "operation": 3, "permission_type": 3}


def _filter(name: str | None) -> dict[str, Any]:
    texts = {"resource_name_filter": name, "principal_filter": None, "host_filter": None}
    return {"resource_type_filter": 1, "pattern_type_filter": 1, **texts, "operation": 1, "permission_type": 1}


def _many_entries() -> ControllerListener:
    listener = _guarded()
    for image in (listener.services.controller.image, listener.services.metadata.image):
        for number in range(ITEMS):
            image.restore(AccessControlEntryRecord(UUID(int=number + 1), 2, f"t{number}", 3, "User:alice", "*", 3, 3))
    return listener


def _resources(configs: list[dict[str, Any]], *, is_known: bool = True) -> dict[str, Any]:
    names = [topic_name(number) if is_known else f"nobody-{number}" for number in range(ITEMS)]
    rows = [{"resource_type": TOPIC_RESOURCE, "resource_name": name, "configs": configs} for name in names]
    return {"resources": rows, "validate_only": False}


def _one_resource(kind: int, name: str, configs: list[dict[str, Any]]) -> dict[str, Any]:
    rows = [{"resource_type": kind, "resource_name": name, "configs": configs}]
    return {"resources": rows, "validate_only": False}


def _topics(rows: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {"topics": rows, "timeout": 1_000, **more}


def _new_topic(name: str, count: int = 1) -> dict[str, Any]:
    return {"name": name, "num_partitions": count, "replication_factor": 3, "assignments": [], "configs": []}


def _from_broker(**more: Any) -> dict[str, Any]:
    return {"broker_id": 1, "broker_epoch": 1, **more}


_SET = {"name": "retention.ms", "config_operation": 0, "value": "5"}
_KNOWN = [topic_name(number) for number in range(ITEMS)]
_UNKNOWN = [f"nobody-{number}" for number in range(2 * ITEMS)]
_ALL = list(range(ITEMS))
_SHRINK = {
    "leader_epoch": 0,
    "new_isr_with_epochs": ISR_OF_TWO,
    "leader_recovery_state": 0,
    "partition_epoch": 0,
}


def _reassigned(names: list[str], replicas: list[int] | None) -> dict[str, Any]:
    rows = [{"name": name, "partitions": [{"partition_index": 0, "replicas": replicas}]} for name in names]
    return _topics(rows, allow_replication_factor_change=True)


def _elected(names: list[str] | None, kind: int = 0) -> dict[str, Any]:
    rows = None if names is None else [{"topic": name, "partitions": [0]} for name in names]
    return {"election_type": kind, "topic_partitions": rows, "timeout": 1_000}


def _registration(log_dirs: int, listeners: int, features: int) -> dict[str, Any]:
    return {
        "broker_id": 1,
        "cluster_id": CLUSTER_ID,
        "incarnation_id": UUID(int=77),
        "listeners": [
            {"name": f"L{number}", "host": "h", "port": 1, "security_protocol": 0} for number in range(listeners)
        ],
        "features": [
            {"name": f"f{number}", "min_supported_version": 0, "max_supported_version": 1} for number in range(features)
        ]
        + [
            {"name": name, "min_supported_version": low, "max_supported_version": high}
            for name, (low, high) in SUPPORTED_FEATURES.items()
        ],
        "rack": None,
        "log_dirs": [UUID(int=5_000 + number) for number in range(log_dirs)],
        "previous_broker_epoch": 1,
    }


def _controller(listeners: int) -> dict[str, Any]:
    return {**_registration(0, listeners, 1), "controller_id": 1, "zk_migration_ready": False}


def _quota(user: str, key: str = "request_percentage", count: int = 1) -> dict[str, Any]:
    ops = [{"key": f"{key}-{number}" if number else key, "value": 5.0, "remove": False} for number in range(count)]
    return {"entity": [{"entity_type": "user", "entity_name": user}], "ops": ops}


def _password(user: str) -> dict[str, Any]:
    return {"name": user, "mechanism": 1, "iterations": 4096, "salt": b"1234567890", "salted_password": bytes(32)}


K = ApiKey
LONG_REQUESTS = [
    LongRequest("incremental of topics", K.INCREMENTAL_ALTER_CONFIGS, _resources([_SET]), _many_topics),
    LongRequest(
        "incremental of unknown topics", K.INCREMENTAL_ALTER_CONFIGS, _resources([_SET], is_known=False), _small
    ),
    LongRequest(
        "incremental of one topic twice and more",
        K.INCREMENTAL_ALTER_CONFIGS,
        {"resources": _resources([_SET])["resources"][:1] * ITEMS, "validate_only": False},
        _many_topics,
    ),
    LongRequest(
        "many configurations of all brokers",
        K.INCREMENTAL_ALTER_CONFIGS,
        _one_resource(4, "", [{**_SET, "name": f"unknown-{number}"} for number in range(ITEMS)]),
        _small,
    ),
    LongRequest(
        "min.insync.replicas of all",
        K.INCREMENTAL_ALTER_CONFIGS,
        _one_resource(4, "", [{**_SET, "name": "min.insync.replicas", "value": "2"}]),
        _topics_in(State.SHRUNK),
    ),
    LongRequest("alter of topics", K.ALTER_CONFIGS, _resources([{"name": "retention.ms", "value": "5"}]), _many_topics),
    LongRequest("new topics", K.CREATE_TOPICS, _topics([_new_topic(name) for name in _UNKNOWN[:3_000]]), _many_topics),
    LongRequest("bad topic names", K.CREATE_TOPICS, _topics([_new_topic(f"{name}!") for name in _UNKNOWN]), _small),
    LongRequest("topics that exist", K.CREATE_TOPICS, _topics([_new_topic(name) for name in _KNOWN]), _many_topics),
    LongRequest("one topic thousands of times", K.CREATE_TOPICS, _topics([_new_topic("twice")] * 2 * ITEMS), _small),
    LongRequest(
        "names that may collide", K.CREATE_TOPICS, _topics([_new_topic(f"a_{i}") for i in range(2_000)]), _many_topics
    ),
    LongRequest(
        "deleted by name",
        K.DELETE_TOPICS,
        _topics([{"name": name, "topic_id": None} for name in _KNOWN]),
        _many_topics,
    ),
    LongRequest(
        "deleted by id",
        K.DELETE_TOPICS,
        _topics([{"name": None, "topic_id": topic_id(number)} for number in _ALL]),
        _many_topics,
    ),
    LongRequest(
        "unknown topics deleted",
        K.DELETE_TOPICS,
        _topics([{"name": name, "topic_id": None} for name in _UNKNOWN]),
        _small,
    ),
    LongRequest(
        "more partitions",
        K.CREATE_PARTITIONS,
        _topics([{"name": name, "count": 2, "assignments": None} for name in _KNOWN], validate_only=False),
        _many_topics,
    ),
    LongRequest(
        "more partitions of unknown topics",
        K.CREATE_PARTITIONS,
        _topics([{"name": name, "count": 2, "assignments": None} for name in _UNKNOWN], validate_only=False),
        _small,
    ),
    LongRequest("preferred leaders", K.ELECT_LEADERS, _elected(_KNOWN), _topics_in(State.MOVED)),
    LongRequest("all preferred leaders", K.ELECT_LEADERS, _elected(None), _topics_in(State.MOVED)),
    LongRequest("elections not needed", K.ELECT_LEADERS, _elected(_KNOWN), _many_topics),
    LongRequest("elections of unknown", K.ELECT_LEADERS, _elected(_UNKNOWN), _small),
    LongRequest("reassignments", K.ALTER_PARTITION_REASSIGNMENTS, _reassigned(_KNOWN, [2, 3]), _many_topics),
    LongRequest("cancellations", K.ALTER_PARTITION_REASSIGNMENTS, _reassigned(_KNOWN, None), _many_topics),
    LongRequest("reassignments of unknown", K.ALTER_PARTITION_REASSIGNMENTS, _reassigned(_UNKNOWN, [1]), _small),
    LongRequest(
        "all reassignments listed",
        K.LIST_PARTITION_REASSIGNMENTS,
        {"timeout": 1, "topics": None},
        _topics_in(State.REASSIGNED),
    ),
    LongRequest(
        "reassignments of one topic listed",
        K.LIST_PARTITION_REASSIGNMENTS,
        {"timeout": 1, "topics": [{"name": LARGE_TOPIC, "partition_indexes": _ALL}]},
        _partitions_in(State.REASSIGNED),
    ),
    LongRequest(
        "reassignments of many topics listed",
        K.LIST_PARTITION_REASSIGNMENTS,
        {"timeout": 1, "topics": [{"name": name, "partition_indexes": [0]} for name in _KNOWN]},
        _many_topics,
    ),
    LongRequest(
        "cancelled reassignments",
        K.ALTER_PARTITION_REASSIGNMENTS,
        _reassigned(_KNOWN, None),
        _topics_in(State.REASSIGNED),
    ),
    LongRequest(
        "one partition on very many brokers",
        K.ALTER_PARTITION_REASSIGNMENTS,
        _reassigned(["large"], list(range(2 * ITEMS))),
        _one_large_topic,
    ),
    LongRequest(
        "preferred leaders of one topic",
        K.ELECT_LEADERS,
        {"election_type": 0, "topic_partitions": [{"topic": LARGE_TOPIC, "partitions": _ALL}], "timeout": 1},
        _partitions_in(State.MOVED),
    ),
    LongRequest("all preferred leaders of one topic", K.ELECT_LEADERS, _elected(None), _partitions_in(State.MOVED)),
    LongRequest("all unclean leaders", K.ELECT_LEADERS, _elected(None, 1), _topics_in(State.LEADERLESS)),
    LongRequest(
        "no eligible leader replicas",
        K.UPDATE_FEATURES,
        {
            "timeout": 1,
            "feature_updates": [
                {"feature": "eligible.leader.replicas.version", "max_version_level": 0, "upgrade_type": 2}
            ],
            "validate_only": False,
        },
        _topics_in(State.SHRUNK),
    ),
    LongRequest(
        "unknown features",
        K.UPDATE_FEATURES,
        {
            "timeout": 1,
            "feature_updates": [
                {"feature": f"f{number}", "max_version_level": 1, "upgrade_type": 1} for number in range(2 * ITEMS)
            ],
            "validate_only": False,
        },
        _small,
    ),
    LongRequest(
        "smaller ISRs",
        K.ALTER_PARTITION,
        _from_broker(
            topics=[{"topic_id": LARGE_TOPIC_ID, "partitions": [{"partition_index": i, **_SHRINK} for i in _ALL]}]
        ),
        _one_large_topic,
    ),
    LongRequest(
        "assigned directories",
        K.ASSIGN_REPLICAS_TO_DIRS,
        _from_broker(
            directories=[
                {
                    "id": DIRECTORIES[0][1],
                    "topics": [{"topic_id": LARGE_TOPIC_ID, "partitions": [{"partition_index": i} for i in _ALL]}],
                }
            ]
        ),
        _one_large_topic,
    ),
    LongRequest(
        "a failed directory",
        K.BROKER_HEARTBEAT,
        _from_broker(
            current_metadata_offset=1, want_fence=False, want_shut_down=False, offline_log_dirs=[DIRECTORIES[0][0]]
        ),
        _one_large_topic,
    ),
    LongRequest(
        "a broker shuts down",
        K.BROKER_HEARTBEAT,
        _from_broker(current_metadata_offset=1, want_fence=False, want_shut_down=True),
        _many_topics,
    ),
    LongRequest("a broker leaves", K.UNREGISTER_BROKER, {"broker_id": 1}, _many_topics),
    LongRequest(
        "a broker returns",
        K.BROKER_HEARTBEAT,
        _from_broker(current_metadata_offset=1, want_fence=False, want_shut_down=False),
        _topics_in(State.LEADERLESS),
    ),
    LongRequest(
        "a fenced broker restarts", K.BROKER_REGISTRATION, _registration(1, 1, 1), _topics_in(State.LEADERLESS)
    ),
    LongRequest("many directories", K.BROKER_REGISTRATION, _registration(2 * ITEMS, 1, 1), _broker_1_is_away),
    LongRequest("many listeners", K.BROKER_REGISTRATION, _registration(1, 2 * ITEMS, 1), _broker_1_is_away),
    LongRequest("many features", K.BROKER_REGISTRATION, _registration(1, 1, 2 * ITEMS), _broker_1_is_away),
    LongRequest(
        "passwords of many users",
        K.ALTER_USER_SCRAM_CREDENTIALS,
        {"deletions": [], "upsertions": [_password(f"u{number}") for number in range(ITEMS)]},
        _small,
    ),
    LongRequest(
        "unknown users",
        K.ALTER_USER_SCRAM_CREDENTIALS,
        {"deletions": [{"name": f"u{number}", "mechanism": 1} for number in range(2 * ITEMS)], "upsertions": []},
        _small,
    ),
    LongRequest(
        "quotas of many users",
        K.ALTER_CLIENT_QUOTAS,
        {"entries": [_quota(f"u{number}") for number in range(ITEMS)], "validate_only": False},
        _small,
    ),
    LongRequest(
        "many quotas of one user",
        K.ALTER_CLIENT_QUOTAS,
        {"entries": [_quota("u", "request_percentage", 2 * ITEMS)], "validate_only": False},
        _small,
    ),
    LongRequest("many entries", K.CREATE_ACLS, {"creations": [_entry(number) for number in range(ITEMS)]}, _guarded),
    LongRequest("many filters", K.DELETE_ACLS, {"filters": [_filter(f"t{n}") for n in range(100)]}, _many_entries),
    LongRequest("all entries", K.DELETE_ACLS, {"filters": [_filter(None)]}, _many_entries),
    LongRequest("a list of all entries", K.DESCRIBE_ACLS, _filter(None), _many_entries),
    LongRequest("many listeners of a controller", K.CONTROLLER_REGISTRATION, _controller(2 * ITEMS), _small),
]
