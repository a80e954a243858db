"""When committed offsets expire (KIP-211): by their commits, by when their group became empty, and by the check."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.broker.broker_harness import TOPIC, settle
from support.broker.classic_transcript import Stage
from support.broker.group_harness import PARTITIONS, GroupHarness, played, stable_group

from raftwerk.broker.coordinators.partition_for import partition_for
from raftwerk.broker.groups.classic.classic_group import ClassicGroup
from raftwerk.broker.groups.group_coordinator_shard import GroupOffsets, expired_offsets
from raftwerk.broker.groups.records.offset_and_classic_records import OffsetAndMetadata
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.types import TopicPartition

FLIGHTS, HOTELS = TopicPartition("flights", 0), TopicPartition("hotels", 0)
RETENTION_MS = 1_000
WEEK_S = 7 * 24 * 3_600


def committed(at_ms: int, expires_ms: int = -1) -> GroupOffsets:
    return {FLIGHTS: OffsetAndMetadata(7, -1, "", at_ms, expires_ms)}


def emptied(at_ms: int) -> ClassicGroup:
    """A group that its last member has left at that time."""
    stage = Stage()
    stage.play(["config", "initial_rebalance_delay_ms=0"])
    for line in ("join A old", "sync A gen=1 A=all", f"at {at_ms}", "leave A"):
        stage.play(line.split())
    assert stage.group.is_empty
    return stage.group


@pytest.mark.parametrize(("now_ms", "is_expired"), [(1_499, False), (1_500, True)])
def test_offsets_without_members_expire_after_their_commit(now_ms: int, is_expired: bool) -> None:
    """Also where the group had never any members, as those of tools and of consumers that assign themselves."""
    expected = [FLIGHTS] if is_expired else []
    for group in (None, Stage().group):
        assert expired_offsets(group, committed(500), now_ms, RETENTION_MS) == expected


@pytest.mark.parametrize(("committed_ms", "now_ms", "is_expired"), [
    (500, 3_999, False), (500, 4_000, True),
    (3_200, 4_199, False), (3_200, 4_200, True),
])  # fmt: skip
def test_offsets_of_a_group_that_became_empty_expire_after_that(
    committed_ms: int, now_ms: int, is_expired: bool
) -> None:
    """Its last members may have read nothing new for long. A later commit counts all the same."""
    found = expired_offsets(emptied(3_000), committed(committed_ms), now_ms, RETENTION_MS)
    assert found == ([FLIGHTS] if is_expired else [])


@pytest.mark.parametrize(("expires_ms", "now_ms", "is_expired"), [
    (0, 0, True), (0, 1, True), (2_000, 1_999, False), (2_000, 2_000, True),
])  # fmt: skip
def test_an_offset_with_a_time_of_its_own_expires_then(expires_ms: int, now_ms: int, is_expired: bool) -> None:
    """Old clients set it with their commits (OffsetCommit before version 5), whatever the retention is."""
    found = expired_offsets(None, committed(1_900, expires_ms), now_ms, RETENTION_MS)
    assert found == ([FLIGHTS] if is_expired else [])


@played
async def test_a_group_with_members_loses_only_offsets_of_topics_that_it_does_not_read(harness: GroupHarness) -> None:
    await stable_group(harness)
    group = harness.groups.shard_of("g").groups["g"]
    offsets = {FLIGHTS: OffsetAndMetadata(7, -1, "", 0), HOTELS: OffsetAndMetadata(8, -1, "", 0)}
    assert expired_offsets(group, offsets, 10 * RETENTION_MS, RETENTION_MS) == [HOTELS]


@played
async def test_the_time_at_which_a_group_became_empty_is_known_to_the_next_coordinator(harness: GroupHarness) -> None:
    """Otherwise the offsets of a group that has just stopped would expire at once when its coordinator moves."""
    joined = await stable_group(harness)
    fields = {"generation_id_or_member_epoch": joined.generation_id, "member_id": joined.member_id}
    assert await harness.commit("g", **fields) == 0
    committed_ms = harness.groups.wall_ms()
    harness.wall_ms += WEEK_S * 1000 // 2
    leave = {"group_id": "g", "members": [{"member_id": joined.member_id}]}
    assert (await harness.call(ApiKey.LEAVE_GROUP, 3, leave)).error_code == 0
    emptied_ms = harness.groups.wall_ms()
    successor = GroupHarness(harness.logs)
    await settle(30)
    for now_ms, offset in ((committed_ms + WEEK_S * 1000, 42), (emptied_ms + WEEK_S * 1000, -1)):
        successor.wall_ms = now_ms
        successor.groups.expire(successor.groups.shard_of("g"))
        assert await successor.committed("g") == offset


@pytest.mark.parametrize("is_moved", [False, True])
def test_expired_offsets_are_looked_for_by_themselves(is_moved: bool) -> None:
    """As long as there are groups: also by a coordinator that has loaded them, and again after a check found none."""

    @played
    async def test(first: GroupHarness) -> None:
        others = {partition_for(name, PARTITIONS): name for name in map(str, range(20))}
        assert len(others) == PARTITIONS
        for group in ("g", *others.values()):
            assert await first.commit(group) == 0
        harness = GroupHarness(first.logs) if is_moved else first
        interval_s = harness.groups.config.offsets.retention_check_interval_ms / 1000
        await asyncio.sleep(interval_s + 1)
        assert await harness.committed("g") == 42
        harness.wall_ms += WEEK_S * 1000
        await asyncio.sleep(interval_s)
        assert await harness.committed("g") == -1
        shard: Any = harness.groups.shard_of("g")
        assert shard.groups == {}
        assert await harness.commit("g") == 0, "the check begins anew with the next group"
        harness.wall_ms += WEEK_S * 1000
        await asyncio.sleep(interval_s + 1)
        assert await harness.committed("g") == -1

    test()


@played
async def test_offsets_of_topics_that_no_group_reads_go_with_their_topic(harness: GroupHarness) -> None:
    assert await harness.commit("g") == 0
    harness.remove_topic(harness.image.topics_by_name[TOPIC].topic_id)
    assert harness.groups.shard_of("g").offsets_of("g") == {}
