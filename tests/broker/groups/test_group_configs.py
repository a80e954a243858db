"""Configurations of single groups, applied while members are in them."""

from __future__ import annotations

import asyncio
from typing import Any

from support.broker.broker_harness import settle
from support.broker.group_harness import GroupHarness, consumer_heartbeat, join_consumer_group, played

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
