"""IncrementalAlterConfigs and AlterConfigs: stored values, refusals, and the values that hold for logs."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from support.controller.controller_harness import decided, decoded

from raftwerk.controller.configs.alter_configs import ConfigRules, alter_configs, incremental_alter_configs
from raftwerk.controller.configs.effective_configs import dynamic_overrides, resolve
from raftwerk.controller.configs.group_configs import GroupLimits
from raftwerk.controller.metadata.metadata_image import ELR_FEATURE, MetadataDelta, MetadataImage
from raftwerk.controller.metadata.metadata_records import (
    NO_LEADER,
    ConfigRecord,
    Endpoint,
    FeatureLevelRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.config_def import ConfigSource
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.types import STRING_BYTES_MAX

TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


def new_image() -> MetadataImage:
    image = MetadataImage("c")
    topic_id = UUID(int=1)
    endpoint = (Endpoint("PLAINTEXT", "h", 1),)
    apply(
        image,
        RegisterBrokerRecord(1, UUID(int=5), endpoint, fenced=False),
        TopicRecord("t", topic_id),
        PartitionRecord(topic_id, 0, (1, 2), (1,), 1, elr=(2,)),
    )
    return image


def apply(image: MetadataImage, *records: Any) -> None:
    for record in records:
        image.replay(record, image.offset + 1, MetadataDelta())


def change(image: MetadataImage, kind: int, name: str, *changes: tuple[str, int, str | None], **more: Any) -> int:
    rows = [{"name": key, "config_operation": operation, "value": value} for key, operation, value in changes]
    resource = {"resource_type": kind, "resource_name": name, "configs": rows}
    request = decoded(ApiKey.INCREMENTAL_ALTER_CONFIGS, resources=[resource], **more)
    result = decided(incremental_alter_configs(image, request))
    apply(image, *result.records)
    return int(result.response["responses"][0]["error_code"])


def replace(image: MetadataImage, kind: int, name: str, **values: str | None) -> int:
    rows = [{"name": key.replace("_", "."), "value": value} for key, value in values.items()]
    resource = {"resource_type": kind, "resource_name": name, "configs": rows}
    result = decided(alter_configs(image, decoded(ApiKey.ALTER_CONFIGS, resources=[resource])))
    apply(image, *result.records)
    return int(result.response["responses"][0]["error_code"])


def test_operations() -> None:
    image = new_image()
    assert change(image, TOPIC, "t", ("retention.ms", SET, "5"), ("cleanup.policy", APPEND, "compact")) == 0
    assert image.configs[TOPIC, "t"] == {"retention.ms": "5", "cleanup.policy": "delete,compact"}
    assert change(image, TOPIC, "t", ("retention.ms", DELETE, None), ("cleanup.policy", SUBTRACT, "delete")) == 0
    assert image.configs[TOPIC, "t"] == {"cleanup.policy": "compact"}
    assert change(image, TOPIC, "t", ("retention.ms", SET, "6"), validate_only=True) == 0
    assert "retention.ms" not in image.configs[TOPIC, "t"]


def test_alter_configs_replaces_everything() -> None:
    image = new_image()
    change(image, TOPIC, "t", ("retention.ms", SET, "5"), ("segment.ms", SET, "9"))
    assert replace(image, TOPIC, "t", segment_ms="9", flush_ms="1") == 0
    assert image.configs[TOPIC, "t"] == {"segment.ms": "9", "flush.ms": "1"}
    assert replace(image, TOPIC, "t") == 0
    assert (TOPIC, "t") not in image.configs
    assert replace(image, TOPIC, "t", retention_ms=None) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("kind", "name", "key", "value", "code"),
    [
        (TOPIC, "t", "bogus", "1", ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", "retention.ms", "soon", ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", "segment.bytes", "1", ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", "remote.storage.enable", "true", ErrorCode.INVALID_CONFIG),
        (TOPIC, "nowhere", "retention.ms", "1", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (BROKER, "1", "node.id", "7", ErrorCode.INVALID_REQUEST),
        (BROKER, "one", "log.retention.ms", "7", ErrorCode.INVALID_REQUEST),
        (BROKER, "", "log.segment.bytes", "x", ErrorCode.INVALID_CONFIG),
        (BROKER, "", "background.threads", "0", ErrorCode.INVALID_CONFIG),
        (BROKER, "1", "sasl.login.refresh.buffer.seconds", "40000", ErrorCode.INVALID_CONFIG),
        (BROKER, "", "sasl.kerberos.min.time.before.relogin", "1", ErrorCode.INVALID_REQUEST),
        (BROKER, "1", "ssl.client.auth", "required", ErrorCode.INVALID_REQUEST),
        (TOPIC, "t", "retention.ms", "1_000", ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", "retention.ms", "\u0661\u0662", ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", "min.cleanable.dirty.ratio", "0.2_5", ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", "compression.gzip.level", "0", ErrorCode.INVALID_CONFIG),
        (BROKER, "", "replica.alter.log.dirs.io.max.bytes.per.second", "nan", ErrorCode.INVALID_CONFIG),
        (99, "t", "retention.ms", "1", ErrorCode.INVALID_REQUEST),
        (BROKER, "9", "log.retention.ms", "7", ErrorCode.BROKER_ID_NOT_REGISTERED),
        (BROKER, "9", "log.retention.ms", "soon", ErrorCode.INVALID_CONFIG),
        (TOPIC, "nowhere", "retention.ms", "soon", ErrorCode.INVALID_CONFIG),
        (BROKER, "-1", "log.retention.ms", "7", ErrorCode.INVALID_REQUEST),
        (BROKER, "\u00b2", "log.retention.ms", "7", ErrorCode.INVALID_REQUEST),
        (BROKER, "2147483648", "log.retention.ms", "7", ErrorCode.INVALID_REQUEST),
        (BROKER, "1" * 5_000, "log.retention.ms", "7", ErrorCode.INVALID_REQUEST),
    ],
)
def test_refusals(kind: int, name: str, key: str, value: str, code: ErrorCode) -> None:
    image = new_image()
    assert change(image, kind, name, (key, SET, value)) == code
    assert not image.configs


def test_only_registered_nodes_have_configurations() -> None:
    """As in Apache Kafka, a controller counts too, and values of a node that is gone cannot even be deleted."""
    image = new_image()
    assert change(image, BROKER, "1", ("log.retention.ms", SET, "7")) == 0
    assert replace(image, BROKER, "9", log_retention_ms="7") == ErrorCode.BROKER_ID_NOT_REGISTERED
    apply(image, RegisterControllerRecord(9, UUID(int=9), (Endpoint("CONTROLLER", "h", 2),)))
    assert change(image, BROKER, "9", ("log.retention.ms", SET, "7")) == 0
    apply(image, UnregisterBrokerRecord(1, image.brokers[1].epoch))
    assert change(image, BROKER, "1", ("log.retention.ms", DELETE, None)) == ErrorCode.BROKER_ID_NOT_REGISTERED


def test_a_value_for_one_broker_counts_before_the_value_for_all() -> None:
    image = new_image()
    change(image, BROKER, "", ("log.retention.ms", SET, "70"), ("log.roll.ms", SET, "71"))
    change(image, BROKER, "1", ("log.retention.ms", SET, "60"))
    change(image, TOPIC, "t", ("segment.ms", SET, "50"))
    assert dynamic_overrides(image, "t", 1) == {"retention.ms": "60", "segment.ms": "50"}
    assert dynamic_overrides(image, "t", 2) == {"retention.ms": "70", "segment.ms": "50"}
    found = [resolve(image, "t", name, {}, broker_id=1) for name in ("retention.ms", "segment.ms", "flush.ms")]
    assert found == [
        ("60", ConfigSource.DYNAMIC_BROKER),
        ("50", ConfigSource.TOPIC),
        (str(2**63 - 1), ConfigSource.DEFAULT),
    ]


def test_a_change_of_min_insync_replicas_empties_the_elr() -> None:
    image = new_image()
    assert change(image, BROKER, "", ("min.insync.replicas", SET, "2")) == 0
    assert image.topics_by_name["t"].partitions[0].elr == ()


def test_a_partition_without_a_leader_keeps_its_elr() -> None:
    """Only the members of its ELR may lead it, and without a leader they miss no records."""
    image = new_image()
    topic_id = UUID(int=1)
    apply(
        image,
        PartitionRecord(topic_id, 1, (1, 2), (), NO_LEADER, elr=(2,), last_known_elr=(2,)),
        PartitionRecord(topic_id, 2, (1, 2), (1,), 1, elr=(2,)),
    )
    assert change(image, TOPIC, "t", ("min.insync.replicas", SET, "1")) == 0
    waiting, led = image.partition(topic_id, 1), image.partition(topic_id, 2)
    assert waiting is not None and (waiting.elr, waiting.last_known_elr) == ((2,), (2,))
    assert led is not None and led.elr == ()


def test_throttles_can_be_set_and_removed() -> None:
    image = new_image()
    assert change(image, BROKER, "1", ("leader.replication.throttled.rate", SET, "1000")) == 0
    assert change(image, BROKER, "1", ("leader.replication.throttled.rate", DELETE, None)) == 0
    assert change(image, TOPIC, "t", ("leader.replication.throttled.replicas", SET, "0:1,0:2")) == 0
    assert image.configs == {(TOPIC, "t"): {"leader.replication.throttled.replicas": "0:1,0:2"}}


@pytest.mark.parametrize(
    "text", ["\u00b2:1", "1:\u2460", "9" * 5000 + ":1", "1", "1:2:3", "0:-1", "*,0:1"], ids=lambda text: text[:12]
)
@pytest.mark.parametrize("side", ["leader", "follower"])
def test_throttled_replicas_that_no_broker_could_read_are_refused(side: str, text: str) -> None:
    image = new_image()
    assert change(image, TOPIC, "t", (f"{side}.replication.throttled.replicas", SET, text)) == ErrorCode.INVALID_CONFIG
    assert image.configs == {}


GROUP, CLIENT_METRICS = 32, 16
SESSION, INTERVAL = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


@pytest.mark.parametrize(
    ("kind", "name", "change_of", "code"),
    [
        (GROUP, "g", (SESSION, SET, "50000"), ErrorCode.NONE),
        (GROUP, "g", (INTERVAL, SET, "6000"), ErrorCode.NONE),
        (GROUP, "g", (SESSION, SET, "500"), ErrorCode.INVALID_CONFIG),
        (GROUP, "g", (SESSION, SET, "60001"), ErrorCode.INVALID_CONFIG),
        (GROUP, "g", (SESSION, SET, "soon"), ErrorCode.INVALID_CONFIG),
        (GROUP, "g", (INTERVAL, SET, "4999"), ErrorCode.INVALID_CONFIG),
        (GROUP, "g", (INTERVAL, SET, "15001"), ErrorCode.INVALID_CONFIG),
        (GROUP, "g", ("share.session.timeout.ms", SET, "50000"), ErrorCode.INVALID_CONFIG),
        (GROUP, "g", (SESSION, APPEND, "50000"), ErrorCode.INVALID_CONFIG),
        (GROUP, "", (SESSION, SET, "50000"), ErrorCode.INVALID_REQUEST),
        (CLIENT_METRICS, "s", ("interval.ms", SET, "5000"), ErrorCode.NONE),
        (CLIENT_METRICS, "s", ("interval.ms", SET, "5"), ErrorCode.INVALID_REQUEST),
        (CLIENT_METRICS, "s", ("interval.ms", SET, "x"), ErrorCode.INVALID_CONFIG),
        (CLIENT_METRICS, "s", ("match", SET, "client_id=a.*,client_software_name=b"), ErrorCode.NONE),
        (CLIENT_METRICS, "s", ("match", SET, "zzz=1"), ErrorCode.INVALID_CONFIG),
        (CLIENT_METRICS, "s", ("match", SET, "client_id=a{99999999999999999999}"), ErrorCode.INVALID_CONFIG),
        (CLIENT_METRICS, "s", ("match", SET, "client_id=" + 5000 * "("), ErrorCode.INVALID_CONFIG),
        (CLIENT_METRICS, "s", ("match", SET, "client_id=[a"), ErrorCode.INVALID_CONFIG),
        (CLIENT_METRICS, "s", ("match", SET, "client_id"), ErrorCode.INVALID_CONFIG),
        (CLIENT_METRICS, "s", ("metrics", APPEND, "org.apache.kafka."), ErrorCode.NONE),
        (CLIENT_METRICS, "s", ("nope", SET, "1"), ErrorCode.INVALID_REQUEST),
        (CLIENT_METRICS, "", ("interval.ms", SET, "5000"), ErrorCode.INVALID_REQUEST),
        (64, "x", ("a", SET, "b"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_groups_and_client_metrics_are_checked_as_by_kafka(
    kind: int, name: str, change_of: tuple[str, int, str], code: ErrorCode
) -> None:
    image = new_image()
    assert change(image, kind, name, change_of) == code
    assert image.configs.get((kind, name), {}) == ({} if code else {change_of[0]: change_of[2]})


def test_a_session_must_be_longer_than_a_heartbeat() -> None:
    image = new_image()
    limits = ConfigRules(GroupLimits(session_ms=(1, 60_000), interval_ms=(1, 60_000)))
    rows = [{"name": SESSION, "config_operation": SET, "value": "4000"}]
    request = decoded(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, resources=[{"resource_type": GROUP, "resource_name": "g", "configs": rows}]
    )
    answer = decided(incremental_alter_configs(image, request, limits)).response["responses"][0]
    assert (answer["error_code"], "must be greater" in answer["error_message"]) == (ErrorCode.INVALID_CONFIG, True)


@pytest.mark.parametrize(
    ("name", "value", "is_taken"),
    [
        ("log.cleaner.backoff.ms", "100", True),
        ("log.cleaner.backoff.ms", "0", False),
        ("log.cleaner.dedupe.buffer.size", "1048576", True),
        ("log.cleaner.io.max.bytes.per.second", "1e6", True),
        ("log.cleaner.io.max.bytes.per.second", "NaN", False),
        ("log.cleaner.io.max.bytes.per.second", "0", False),
        ("producer.id.expiration.ms", "5000", True),
        ("producer.id.expiration.ms", "0", False),
        ("max.connection.creation.rate", "0", True),
        ("max.connection.creation.rate", "-1", False),
        ("max.connections.per.ip.overrides", "127.0.0.1:5,::1:6", True),
        ("max.connections.per.ip.overrides", "", True),
        ("max.connections.per.ip.overrides", "127.0.0.1", False),
        ("max.connections.per.ip.overrides", "127.0.0.1:-1", False),
        ("max.connections.per.ip.overrides", "some.host:5", False),
    ],
)
def test_dynamic_broker_configurations(name: str, value: str, is_taken: bool) -> None:
    expected = ErrorCode.NONE if is_taken else ErrorCode.INVALID_CONFIG
    assert change(new_image(), BROKER, "", (name, SET, value)) == expected


@pytest.mark.parametrize(
    ("broker", "name", "value"),
    [
        ("", "background.threads", "8"),
        ("1", "num.io.threads", "2"),
        ("1", "sasl.kerberos.min.time.before.relogin", "58000"),
    ],
)
def test_configurations_without_effect_are_kept(broker: str, name: str, value: str) -> None:
    image = new_image()
    assert change(image, BROKER, broker, (name, SET, value)) == ErrorCode.NONE
    assert image.configs[BROKER, broker] == {name: value}


def test_values_that_no_client_could_read_are_refused() -> None:
    """The length of a string has 15 bits. APPEND makes a longer value of values that fit; it counts in bytes."""
    image, name = new_image(), "follower.replication.throttled.replicas"
    parts = [",".join(f"{partition}:1001" for partition in range(start, start + 1500)) for start in (1000, 3000, 5000)]
    codes = [change(image, TOPIC, "t", (name, APPEND, part)) for part in parts]
    assert codes == [0, 0, ErrorCode.INVALID_CONFIG]
    assert image.configs[TOPIC, "t"][name] == ",".join(parts[:2])
    reporters = "metric.reporters"
    assert change(image, BROKER, "", (reporters, SET, "é" * (STRING_BYTES_MAX // 2 - 1))) == 0
    assert change(image, BROKER, "", (reporters, APPEND, "abc")) == ErrorCode.INVALID_CONFIG
    assert change(image, BROKER, "", (reporters, APPEND, "ab")) == 0


@pytest.mark.parametrize(
    ("kind", "name", "known", "value"),
    [
        (TOPIC, "t", "retention.ms", "5"),
        (BROKER, "1", "log.cleaner.threads", "2"),
        (BROKER, "", "log.cleaner.threads", "2"),
        (GROUP, "g", "consumer.session.timeout.ms", "50000"),
        (CLIENT_METRICS, "m", "interval.ms", "1000"),
    ],
)
def test_a_resource_with_a_setting_of_another_build_can_be_altered(
    kind: int, name: str, known: str, value: str
) -> None:
    """After a downgrade, a topic would keep its retention until the next upgrade."""
    image, other = new_image(), "of.a.newer.build"
    apply(image, ConfigRecord(kind, name, other, "1"))
    assert change(image, kind, name, (known, SET, value)) == 0
    assert image.configs[kind, name] == {other: "1", known: value}
    assert change(image, kind, name, (other, SET, "2")) in (ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST)
    assert change(image, kind, name, (other, DELETE, None)) == 0
    assert image.configs[kind, name] == {known: value}
    assert change(image, kind, name, (other, DELETE, None)) == 0, "there is nothing to remove, as in Apache Kafka"
    apply(image, ConfigRecord(kind, name, other, "1"))
    assert replace(image, kind, name, **{known: value}) == 0
    assert image.configs[kind, name] == {known: value}


def test_one_broker_has_its_own_min_insync_replicas_without_elr_only() -> None:
    image, name = new_image(), "min.insync.replicas"
    assert change(image, BROKER, "1", (name, SET, "2")) == 0
    assert change(image, BROKER, "", (name, SET, "2")) == 0
    apply(image, FeatureLevelRecord(ELR_FEATURE, 1))
    assert change(image, BROKER, "1", (name, SET, "1")) == ErrorCode.INVALID_CONFIG
    assert change(image, BROKER, "1", (name, DELETE, None)) == ErrorCode.INVALID_CONFIG
    assert change(image, BROKER, "", (name, DELETE, None)) == ErrorCode.INVALID_CONFIG
    assert replace(image, BROKER, "") == ErrorCode.INVALID_CONFIG
    assert change(image, BROKER, "", (name, SET, "1")) == 0
