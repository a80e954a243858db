"""Every value that the controller accepts is applied by the brokers without an error, whatever its text looks like."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.controller.controller_harness import decided, decoded

from raftwerk.broker.groups.group_config import GroupConfig, with_own_values
from raftwerk.broker.network.connection_quota import ConnectionQuota
from raftwerk.broker.quotas.client_quota_manager import ClientQuotaManager
from raftwerk.broker.quotas.sampled_rate import DEFAULT_WINDOW
from raftwerk.broker.quotas.token_bucket import TokenBucket
from raftwerk.cluster.settings.node_config import NodeConfig
from raftwerk.cluster.settings.settings_per_package import (
    log_maintenance_change,
    unused_min_isr,
    verifies_transactions,
)
from raftwerk.controller.configs.alter_configs import incremental_alter_configs
from raftwerk.controller.configs.broker_configs import DYNAMIC_BROKER_CONFIGS
from raftwerk.controller.configs.client_metrics import CLIENT_METRICS_CONFIGS
from raftwerk.controller.configs.effective_configs import dynamic_overrides, resolve
from raftwerk.controller.configs.group_configs import GROUP_CONFIGS
from raftwerk.controller.metadata.features import SUPPORTED_FEATURES
from raftwerk.controller.metadata.metadata_image import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    ELR_FEATURE,
    GROUP_RESOURCE,
    RECORD_VERSION_FEATURE,
    TOPIC_RESOURCE,
    MetadataDelta,
    MetadataImage,
)
from raftwerk.controller.metadata.metadata_records import (
    Endpoint,
    FeatureLevelRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from raftwerk.controller.security.client_quotas import (
    CLIENT_QUOTAS,
    CONNECTION_CREATION_RATE,
    CONTROLLER_MUTATION_RATE,
    IP_QUOTAS,
    alter_client_quotas,
)
from raftwerk.isr.ports import ReplicaManagerConfig
from raftwerk.isr.throttling.throttles import Throttles
from raftwerk.log.config import LogConfig
from raftwerk.log.topic_configs import TOPIC_CONFIGS
from raftwerk.wire.api_keys import ApiKey

NODE = NodeConfig.from_properties(
    {
        "process.roles": "broker",
        "node.id": "1",
        "controller.quorum.voters": "2@localhost:9093",
        "listeners": "PLAINTEXT://localhost:9092",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": "/data/a",
    }
)
RESOURCES = (
    [(TOPIC_RESOURCE, "t", name) for name in TOPIC_CONFIGS]
    + [(BROKER_RESOURCE, broker, name) for broker in ("1", "") for name in DYNAMIC_BROKER_CONFIGS]
    + [(GROUP_RESOURCE, "g", name) for name in GROUP_CONFIGS]
    + [(CLIENT_METRICS_RESOURCE, "s", name) for name in CLIENT_METRICS_CONFIGS]
)
DIGITS = st.sampled_from(["0", "1", "7", "50000", "\u00b2", "\u2460", "\u0661", "9" * 11, "9" * 5000, "1_0", "1e400"])
SIGNS = st.sampled_from(["", "", "", "-", "+", " ", "\u2003"])
NUMBERS = st.builds("{}{}{}".format, SIGNS, DIGITS, st.sampled_from(["", "", " ", ".", ".5", "e9"]))
PAIRS = st.lists(st.builds("{}:{}".format, DIGITS, DIGITS), min_size=1, max_size=3).map(",".join)
ADDRESSES = st.builds("{}:{}".format, st.sampled_from(["127.0.0.1", "::1", "[::1]", "h"]), NUMBERS)
WORDS = st.sampled_from(
    ["", " ", "*", " * ", "true", "FALSE", "compact,delete", "zstd", "NaN", "Infinity", "-Infinity", "\u0130", "\x00"]
)
PATTERNS = st.sampled_from(["a{%s}" % ("9" * 20), "(" * 5000, "[", "a.*"]).map("client_id={}".format)
TEXTS = NUMBERS | PAIRS | ADDRESSES | WORDS | PATTERNS


def new_image() -> MetadataImage:
    image = MetadataImage("c")
    registration = RegisterBrokerRecord(1, UUID(int=5), (Endpoint("PLAINTEXT", "h", 1),), fenced=False)
    level = FeatureLevelRecord(RECORD_VERSION_FEATURE, SUPPORTED_FEATURES[RECORD_VERSION_FEATURE][1])
    replay(image, [level, registration, TopicRecord("t", UUID(int=1))])
    return image


def replay(image: MetadataImage, records: Any) -> MetadataDelta:
    delta = MetadataDelta()
    for record in records:
        image.replay(record, image.offset + 1, delta)
    return delta


def apply(image: MetadataImage, delta: MetadataDelta) -> None:
    """Do with the configurations of the metadata what a broker does."""
    config = ReplicaManagerConfig(1)
    Throttles(config).apply(image, delta)
    LogConfig().with_overrides(dynamic_overrides(image, "t", 1))
    int(resolve(image, "t", "min.insync.replicas", {}, broker_id=1)[0])
    log_maintenance_change(NODE, image)
    verifies_transactions(NODE, image)
    quota = ConnectionQuota(image, 1, NODE.properties)
    if quota.refusal("127.0.0.1", 0.0, is_protected=False) is None:
        quota.opened("127.0.0.1")
        quota.delay_s(1.0)
    with_own_values(GroupConfig(), image.configs.get((GROUP_RESOURCE, "g"), {}))


@given(TEXTS)
@example("\u00b2:1")
@example("1:\u2460")
@example("1" * 5000 + ":1")
def test_every_configuration_that_the_controller_accepts(text: str) -> None:
    image = new_image()
    records = []
    for kind, name, key in RESOURCES:
        rows = [{"name": key, "config_operation": 0, "value": text}]
        changes = [{"resource_type": kind, "resource_name": name, "configs": rows}]
        request = decoded(ApiKey.INCREMENTAL_ALTER_CONFIGS, resources=changes)
        records += decided(incremental_alter_configs(image, request)).records
    apply(image, replay(image, records))


AMOUNTS = st.floats(allow_nan=True, allow_infinity=True) | st.sampled_from([5e-324, 1e-9, 1.0, 1e308, 2.0**63])


@pytest.mark.parametrize("key", [*CLIENT_QUOTAS, *IP_QUOTAS])
@given(value=AMOUNTS)
def test_every_quota_that_the_controller_accepts(key: str, value: float) -> None:
    image = new_image()
    kind = "ip" if key in IP_QUOTAS else "user"
    entity = [{"entity_type": kind, "entity_name": None}]
    entries = [{"entity": entity, "ops": [{"key": key, "value": value, "remove": False}]}]
    request = decoded(ApiKey.ALTER_CLIENT_QUOTAS, entries=entries)
    replay(image, decided(alter_client_quotas(image, request)).records)
    if key == CONNECTION_CREATION_RATE:
        quota = ConnectionQuota(image, 1, NODE.properties)
        assert 0 <= quota.closes_after_s("127.0.0.1", 1.0) < 2**31
        return
    manager = ClientQuotaManager(key, DEFAULT_WINDOW)
    manager.on_change(image.client_quotas)
    limit = manager.limit("u", "c")
    assert 0 <= manager.record("u", "c", 1000.0, 1) < 2**31, "the throttle time of an answer is an int32"
    if key == CONTROLLER_MUTATION_RATE and limit is not None:
        bucket = TokenBucket(DEFAULT_WINDOW)
        bucket.take(1000, limit[0], 1)
        assert 0 <= bucket.throttle_ms(limit[0], 1) < 2**31


@pytest.mark.parametrize(
    ("own", "of_cluster", "elr", "is_told"),
    [("2", "3", 1, True), ("3", "3", 1, False), (None, "3", 1, False), ("2", "3", 0, False), ("2", None, 1, False)],
)
def test_a_node_says_that_min_insync_replicas_of_its_file_is_not_that_of_the_cluster(
    own: str | None, of_cluster: str | None, elr: int, is_told: bool
) -> None:
    image = new_image()
    image.features = {**image.features, ELR_FEATURE: elr}
    if of_cluster is not None:
        image.configs[BROKER_RESOURCE, ""] = {"min.insync.replicas": of_cluster}
    more = {} if own is None else {"min.insync.replicas": own}
    warning = unused_min_isr(NodeConfig.from_properties({**NODE.properties, **more}), image)
    told = (
        "min.insync.replicas=2 of server.properties has no effect: the cluster has 3; "
        "use raftwerk configs set --all-brokers min.insync.replicas=2"
    )
    assert warning == (told if is_told else None)
