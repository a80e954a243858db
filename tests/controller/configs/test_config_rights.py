"""Who may alter which configurations, and which names of resources there are."""

from __future__ import annotations

from uuid import UUID

import pytest
from support.controller.controller_harness import decided, decoded

from raftwerk.controller.configs.alter_configs import alter_configs, incremental_alter_configs
from raftwerk.controller.metadata.metadata_image import MetadataDelta, MetadataImage
from raftwerk.controller.metadata.metadata_records import Endpoint, RegisterBrokerRecord, TopicRecord
from raftwerk.security.authorizer.acl_binding import AclOperation, ResourceType
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.errors import ErrorCode

TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32


def image_of() -> MetadataImage:
    image = MetadataImage("c")
    for record in (
        RegisterBrokerRecord(1, UUID(int=5), (Endpoint("PLAINTEXT", "h", 1),), fenced=False),
        TopicRecord("t", UUID(int=1)),
    ):
        image.replay(record, image.offset + 1, MetadataDelta())
    return image


class Rights:
    """`IsAllowed` that allows one thing, and remembers what was asked for."""

    def __init__(self, *allowed: tuple[ResourceType, str]) -> None:
        self.allowed = allowed
        self.asked: list[tuple[AclOperation, ResourceType, str]] = []

    def __call__(
        self, operation: AclOperation, resource_type: ResourceType, name: str, *, logs_denial: bool = True
    ) -> bool:
        self.asked.append((operation, resource_type, name))
        return (resource_type, name) in self.allowed


@pytest.mark.parametrize(
    ("kind", "name", "config", "value", "needed", "error"),
    [
        (TOPIC, "t", "retention.ms", "5", (ResourceType.TOPIC, "t"), ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (
            BROKER,
            "1",
            "log.retention.ms",
            "5",
            (ResourceType.CLUSTER, "kafka-cluster"),
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ),
        (
            GROUP,
            "g",
            "consumer.session.timeout.ms",
            "45000",
            (ResourceType.GROUP, "g"),
            ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ),
        (
            CLIENT_METRICS,
            "m",
            "interval.ms",
            "5000",
            (ResourceType.CLUSTER, "kafka-cluster"),
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ),
    ],
)
def test_each_resource_needs_its_right(
    kind: int, name: str, config: str, value: str, needed: tuple[ResourceType, str], error: ErrorCode
) -> None:
    whole = {"resource_type": kind, "resource_name": name, "configs": [{"name": config, "value": value}]}
    change = {**whole, "configs": [{"name": config, "value": value, "config_operation": 0}]}
    for allowed, expected in ((Rights(), error), (Rights(needed), ErrorCode.NONE)):
        changed = decided(
            incremental_alter_configs(
                image_of(), decoded(ApiKey.INCREMENTAL_ALTER_CONFIGS, resources=[change]), is_allowed=allowed
            )
        )
        replaced = decided(
            alter_configs(image_of(), decoded(ApiKey.ALTER_CONFIGS, resources=[whole]), is_allowed=allowed)
        )
        for result in (changed, replaced):
            assert result.response["responses"][0]["error_code"] == expected
            assert bool(result.records) is (expected is ErrorCode.NONE), "who may not, changes nothing"
        assert set(allowed.asked) == {(AclOperation.ALTER_CONFIGS, *needed)}


@pytest.mark.parametrize(
    ("kind", "name", "config", "error", "message"),
    [
        (GROUP, "", "consumer.session.timeout.ms", ErrorCode.INVALID_REQUEST, "Default group resources"),
        (CLIENT_METRICS, "", "interval.ms", ErrorCode.INVALID_REQUEST, "Subscription name can't be empty"),
        (CLIENT_METRICS, "m", "bogus", ErrorCode.INVALID_REQUEST, "Unknown client metrics configuration: bogus"),
        (GROUP, "g", "bogus", ErrorCode.INVALID_CONFIG, "Unknown group config name: bogus"),
    ],
)
def test_names_that_there_are_not(kind: int, name: str, config: str, error: ErrorCode, message: str) -> None:
    change = {
        "resource_type": kind,
        "resource_name": name,
        "configs": [{"name": config, "value": "45000", "config_operation": 0}],
    }
    request = decoded(ApiKey.INCREMENTAL_ALTER_CONFIGS, resources=[change])
    (row,) = decided(incremental_alter_configs(image_of(), request)).response["responses"]
    assert row["error_code"] == error
    assert message in row["error_message"]
