"""Configurations of single groups, applied while members are in them."""

from __future__ import annotations

import asyncio
from typing import Any

from support.broker.broker_harness import settle
from support.broker.group_harness import GroupHarness, consumer_heartbeat, join_consumer_group, played

from raftwerk.broker.groups.group_config import GroupConfig, MigrationPolicy
from raftwerk.controller.configs.broker_configs import BROKER_CONFIGS
from raftwerk.controller.metadata.metadata_records import ConfigRecord
from raftwerk.wire.api_keys import ApiKey

GROUP = 32
SESSION, INTERVAL = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


def own(harness: GroupHarness, name: str, value: str | None) -> None:
    harness.tell(ConfigRecord(GROUP, "g", name, value))


async def described(harness: GroupHarness, kind: int, name: str) -> dict[str, tuple[str, int]]:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": None}
    fields = {"resources": [resource], "include_synonyms": False, "include_documentation": False}
    answer = await harness.call(ApiKey.DESCRIBE_CONFIGS, 4, fields)
    assert answer.results[0].error_code == 0, answer
    return {row.name: (row.value, row.config_source) for row in answer.results[0].configs}


async def passes(harness: GroupHarness, seconds: float) -> None:
    await asyncio.sleep(seconds)
    await settle()


def members(harness: GroupHarness) -> list[str]:
    group: Any = harness.groups.shard_of("g").groups["g"]
    return list(group.members)


@played
async def test_members_get_the_groups_heartbeat_interval(harness: GroupHarness) -> None:
    joined = await join_consumer_group(harness)
    assert joined.heartbeat_interval == 5_000
    own(harness, INTERVAL, "7000")
    again = await consumer_heartbeat(harness, member_id=joined.member_id, member_epoch=joined.member_epoch)
    assert again.heartbeat_interval == 7_000
    own(harness, INTERVAL, None)
    again = await consumer_heartbeat(harness, member_id=joined.member_id, member_epoch=joined.member_epoch)
    assert again.heartbeat_interval == 5_000


@played
async def test_a_longer_session_time_out_holds_from_the_next_heartbeat(harness: GroupHarness) -> None:
    joined = await join_consumer_group(harness)
    own(harness, SESSION, "60000")
    await consumer_heartbeat(harness, member_id=joined.member_id, member_epoch=joined.member_epoch)
    await passes(harness, 59.0)
    assert members(harness) == [joined.member_id]
    await passes(harness, 2.0)
    assert members(harness) == []


@played
async def test_a_shorter_session_time_out_holds_from_the_next_heartbeat(harness: GroupHarness) -> None:
    own(harness, SESSION, "60000")
    joined = await join_consumer_group(harness)
    own(harness, SESSION, None)
    await consumer_heartbeat(harness, member_id=joined.member_id, member_epoch=joined.member_epoch)
    await passes(harness, 46.0)
    assert members(harness) == []


@played
async def test_a_value_beyond_this_brokers_limits_is_moved_to_the_limit(harness: GroupHarness) -> None:
    own(harness, INTERVAL, "1")
    assert (await join_consumer_group(harness)).heartbeat_interval == 5_000


@played
async def test_group_configs_are_described_and_listed(harness: GroupHarness) -> None:
    assert await described(harness, GROUP, "g") == {INTERVAL: ("5000", 5), SESSION: ("45000", 5)}
    own(harness, SESSION, "50000")
    assert await described(harness, GROUP, "g") == {INTERVAL: ("5000", 5), SESSION: ("50000", 8)}
    harness.tell(ConfigRecord(16, "mine", "interval.ms", "5000"))
    assert (await described(harness, 16, "mine"))["interval.ms"] == ("5000", 7)
    listed = await harness.call(ApiKey.LIST_CONFIG_RESOURCES, 1, {"resource_types": [16, 32]})
    assert [(row.resource_type, row.resource_name) for row in listed.config_resources] == [(16, "mine"), (32, "g")]


def test_a_coordinator_that_is_made_by_hand_has_the_defaults_of_a_broker() -> None:
    made = GroupConfig()
    topic, classic, consumer, offsets = made.topic, made.classic, made.consumer, made.offsets
    defaults = {
        "offsets.topic.num.partitions": topic.partitions,
        "offsets.topic.replication.factor": topic.replication_factor,
        "offsets.topic.segment.bytes": topic.segment_bytes,
        "group.min.session.timeout.ms": classic.min_session_timeout_ms,
        "group.max.session.timeout.ms": classic.max_session_timeout_ms,
        "group.initial.rebalance.delay.ms": classic.initial_rebalance_delay_ms,
        "group.max.size": classic.max_size,
        "group.consumer.session.timeout.ms": consumer.session_timeout_ms,
        "group.consumer.min.session.timeout.ms": consumer.min_session_timeout_ms,
        "group.consumer.max.session.timeout.ms": consumer.max_session_timeout_ms,
        "group.consumer.heartbeat.interval.ms": consumer.heartbeat_interval_ms,
        "group.consumer.min.heartbeat.interval.ms": consumer.min_heartbeat_interval_ms,
        "group.consumer.max.heartbeat.interval.ms": consumer.max_heartbeat_interval_ms,
        "group.consumer.max.size": consumer.max_size,
        "group.consumer.assignors": consumer.assignors,
        "offset.metadata.max.bytes": offsets.metadata_max_bytes,
        "offsets.commit.timeout.ms": offsets.commit_timeout_ms,
        "offsets.retention.minutes": offsets.retention_ms / 60_000,
        "offsets.retention.check.interval.ms": offsets.retention_check_interval_ms,
    }
    assert defaults == {name: BROKER_CONFIGS[name].default_value for name in defaults}
    assert classic.new_member_join_timeout_ms == 300_000, "no setting: Apache Kafka has the same constant"
    policy = str(BROKER_CONFIGS["group.consumer.migration.policy"].default_value)
    assert consumer.migration_policy.value == policy.lower()


def test_the_migration_policy_says_in_which_direction_groups_may_change_their_protocol() -> None:
    assert [policy for policy in MigrationPolicy if policy.upgrades] == ["upgrade", "bidirectional"]
    assert [policy for policy in MigrationPolicy if policy.downgrades] == ["downgrade", "bidirectional"]


def test_the_topic_of_offsets_has_the_settings_of_apache_kafka() -> None:
    assert GroupConfig().topic.topic_configs() == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    }
