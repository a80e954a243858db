"""Administrators are told of a group what is committed, as by Apache Kafka, also where its type changes."""

from __future__ import annotations

from typing import Any

from support.broker.broker_harness import TOPIC
from support.broker.group_harness import GroupHarness, consumer_heartbeat, join_consumer_group, played, subscription

from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.errors import ErrorCode

NOT_FOUND = ErrorCode.GROUP_ID_NOT_FOUND


async def listed(harness: GroupHarness) -> list[tuple[str, str]]:
    """The type and the state of the group, if it is listed."""
    answer = await harness.call(ApiKey.LIST_GROUPS, 5, {"states_filter": [], "types_filter": []})
    return [(one.group_type, one.group_state) for one in answer.groups]


async def described(harness: GroupHarness) -> Any:
    return (await harness.call(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, {"group_ids": ["g"]})).groups[0]


async def described_as_classic(harness: GroupHarness) -> Any:
    return (await harness.call(ApiKey.DESCRIBE_GROUPS, 6, {"groups": ["g"]})).groups[0]


def begin(harness: GroupHarness, **fields: Any) -> None:
    """Send a heartbeat of the consumer protocol, whose records are not committed until `release`."""
    harness.hold = True
    whole = {
        "group_id": "g",
        "member_epoch": 0,
        "rebalance_timeout": 10_000,
        "subscribed_topic_names": [TOPIC],
        "topic_partitions": [],
    }
    assert harness.parked(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, {**whole, **fields})() is None


@played
async def test_a_group_is_there_when_its_first_records_are_committed(harness: GroupHarness) -> None:
    begin(harness, member_id="m")
    assert await listed(harness) == []
    assert (await described(harness)).error_code == NOT_FOUND
    harness.release()
    assert await listed(harness) == [("consumer", "Stable")]
    assert [one.member_id for one in (await described(harness)).members] == ["m"]


@played
async def test_changes_that_are_not_committed_are_not_told(harness: GroupHarness) -> None:
    await join_consumer_group(harness, member_id="m")
    before = await described(harness)
    begin(harness, member_id="other")
    begin(harness, member_id="third")
    begin(harness, member_id="m", member_epoch=-1)
    assert await described(harness) == before
    assert await listed(harness) == [("consumer", "Stable")]
    first, *others = harness.held_appends
    first()
    row = await described(harness)
    assert (row.group_epoch, row.group_state) == (before.group_epoch + 1, "Reconciling")
    assert sorted(one.member_id for one in row.members) == ["m", "other"]
    harness.held_appends = others
    harness.release()
    row = await described(harness)
    assert sorted(one.member_id for one in row.members) == ["other", "third"]


@played
async def test_a_group_is_classic_until_its_upgrade_is_committed(harness: GroupHarness) -> None:
    joined = await harness.join("g")
    begin(harness, member_id="m")
    assert await listed(harness) == [("classic", "CompletingRebalance")]
    assert (await described(harness)).error_code == NOT_FOUND
    row = await described_as_classic(harness)
    assert (row.group_state, [one.member_id for one in row.members]) == ("CompletingRebalance", [joined.member_id])
    harness.release()
    assert [kind for kind, _ in await listed(harness)] == ["consumer"]
    assert (await described_as_classic(harness)).error_code == NOT_FOUND
    assert sorted(one.member_id for one in (await described(harness)).members) == sorted(["m", joined.member_id])


@played
async def test_a_group_is_a_consumer_group_until_its_downgrade_is_committed(harness: GroupHarness) -> None:
    await join_consumer_group(harness, member_id="m")
    fields = {"group_id": "g", "session_timeout": 10_000, "rebalance_timeout": 60_000, "member_id": ""}
    protocols = [{"name": "range", "metadata": subscription(TOPIC)}]
    joining = {**fields, "protocol_type": "consumer", "protocols": protocols}
    classic = (await harness.call(ApiKey.JOIN_GROUP, 3, joining)).member_id
    harness.hold = True
    begin(harness, member_id="m", member_epoch=-1)
    assert [kind for kind, _ in await listed(harness)] == ["consumer"]
    assert sorted(one.member_id for one in (await described(harness)).members) == sorted(["m", classic])
    assert (await described_as_classic(harness)).error_code == NOT_FOUND
    harness.release()
    assert await listed(harness) == [("classic", "PreparingRebalance")]
    assert (await described(harness)).error_code == NOT_FOUND
    assert [one.member_id for one in (await described_as_classic(harness)).members] == [classic]
    assert (await consumer_heartbeat(harness, member_id="m", member_epoch=1)).error_code == NOT_FOUND
