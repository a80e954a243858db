"""Expiry and DeleteGroups beside commits, joins and deletions that are appended and not committed yet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from support.broker.broker_harness import TOPIC, settle
from support.broker.group_harness import (
    GroupHarness,
    consumer_heartbeat,
    join_consumer_group,
    played,
    stable_group,
    subscription,
)

from raftwerk.controller.metadata.metadata_records import RemoveTopicRecord
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.codec import Struct

WEEK_MS = 7 * 24 * 3_600_000
Answer = Callable[[], Struct | None]


async def commit_under_way(harness: GroupHarness, offset: int) -> Answer:
    """Commit for `g`; the append waits for `release`."""
    harness.hold = True
    row = {"partition_index": 0, "committed_offset": offset, "committed_metadata": None}
    topics = [{"name": TOPIC, "partitions": [row]}]
    fields = {"group_id": "g", "generation_id_or_member_epoch": -1, "topics": topics}
    answer = harness.parked(ApiKey.OFFSET_COMMIT, 8, fields)
    await settle()
    return answer


async def deletion_under_way(harness: GroupHarness) -> Answer:
    """Delete `g`; the append waits for `release`."""
    harness.hold = True
    answer = harness.parked(ApiKey.DELETE_GROUPS, 2, {"groups_names": ["g"]})
    await settle()
    return answer


async def release(harness: GroupHarness, *, commit: Answer | None = None, deletion: Answer | None = None) -> None:
    """Let all appends be committed, and check the answers."""
    harness.release()
    await settle()
    if commit is not None:
        answer: Any = commit()
        assert answer.topics[0].partitions[0].error_code == 0
    if deletion is not None:
        answer = deletion()
        assert answer.results[0].error_code == 0


def pass_a_week(harness: GroupHarness) -> None:
    """Make what was committed until now old enough to expire."""
    now_ms = harness.groups.wall_ms() + WEEK_MS
    harness.groups.wall_ms = lambda: now_ms  # type: ignore[method-assign]


def expire(harness: GroupHarness) -> None:
    """Run the check for expired offsets in the shard of `g`."""
    harness.groups.expire(harness.groups.shard_of("g"))


async def listed(harness: GroupHarness) -> list[str]:
    answer = await harness.call(ApiKey.LIST_GROUPS, 5, {"states_filter": [], "types_filter": []})
    return [one.group_id for one in answer.groups]


async def assert_log_agrees(harness: GroupHarness) -> None:
    """The next coordinator, which loads the log, knows the same groups and offsets."""
    told = await harness.committed("g"), await listed(harness)
    successor = GroupHarness(harness.logs)
    await asyncio.sleep(0.1)
    assert (await successor.committed("g"), await listed(successor)) == told


@played
async def test_expiry_keeps_an_offset_whose_next_commit_is_under_way(harness: GroupHarness) -> None:
    await harness.commit("g", offset=1)
    pass_a_week(harness)
    commit = await commit_under_way(harness, 2)
    expire(harness)
    await release(harness, commit=commit)
    assert await harness.committed("g") == 2
    await assert_log_agrees(harness)


@played
async def test_expiry_keeps_the_group_of_a_first_commit_that_is_under_way(harness: GroupHarness) -> None:
    commit = await commit_under_way(harness, 2)
    expire(harness)
    await release(harness, commit=commit)
    assert await harness.committed("g") == 2
    assert await listed(harness) == ["g"]


@played
async def test_an_offset_expires_after_its_commit_failed(harness: GroupHarness) -> None:
    await harness.commit("g", offset=1)
    pass_a_week(harness)
    harness.append_error = 19  # NOT_ENOUGH_REPLICAS
    await commit_under_way(harness, 2)
    harness.release()
    harness.append_error = 0
    expire(harness)
    assert await harness.committed("g") == -1


@played
async def test_an_offset_expires_when_a_commit_that_timed_out_is_committed_and_old(harness: GroupHarness) -> None:
    await harness.commit("g", offset=1)
    pass_a_week(harness)
    harness.append_error = 7  # REQUEST_TIMED_OUT
    await commit_under_way(harness, 2)
    harness.release()
    harness.append_error = 0
    expire(harness)
    assert await harness.committed("g") == 1
    harness.release_commits()
    assert await harness.committed("g") == 2
    pass_a_week(harness)
    expire(harness)
    assert await harness.committed("g") == -1


@played
async def test_a_group_is_deleted_behind_its_first_commit(harness: GroupHarness) -> None:
    commit = await commit_under_way(harness, 2)
    deletion = await deletion_under_way(harness)
    await release(harness, commit=commit, deletion=deletion)
    assert await harness.committed("g") == -1
    await assert_log_agrees(harness)


@played
async def test_a_commit_behind_a_deletion_makes_a_new_group(harness: GroupHarness) -> None:
    joined = await stable_group(harness)
    members = [{"member_id": joined.member_id}]
    await harness.call(ApiKey.LEAVE_GROUP, 3, {"group_id": "g", "members": members})
    await harness.commit("g", offset=1)
    deletion = await deletion_under_way(harness)
    commit = await commit_under_way(harness, 2)
    await release(harness, commit=commit, deletion=deletion)
    assert await harness.committed("g") == 2
    assert await listed(harness) == ["g"]
    await assert_log_agrees(harness)


@played
async def test_a_member_joins_while_its_group_is_deleted(harness: GroupHarness) -> None:
    await harness.commit("g", offset=1)
    deletion = await deletion_under_way(harness)
    joined = await harness.join("g")
    await release(harness, deletion=deletion)
    assert (await harness.sync("g", joined)).error_code == 0
    assert await harness.committed("g") == -1
    await assert_log_agrees(harness)


@played
async def test_a_classic_group_takes_the_place_of_a_consumer_group_that_is_deleted(harness: GroupHarness) -> None:
    await join_consumer_group(harness)
    await consumer_heartbeat(harness, member_epoch=-1)
    deletion = await deletion_under_way(harness)
    joined = await harness.join("g")
    await release(harness, deletion=deletion)
    assert (await harness.sync("g", joined)).error_code == 0
    await assert_log_agrees(harness)


@played
async def test_a_join_waits_while_the_consumer_group_before_it_expires(harness: GroupHarness) -> None:
    """The classic group stays, and so does its timer: a group made in its place would have taken it over."""
    await join_consumer_group(harness)
    await consumer_heartbeat(harness, member_epoch=-1)
    harness.hold = True
    expire(harness)
    asked = {
        "group_id": "g",
        "session_timeout": 10_000,
        "rebalance_timeout": 60_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": subscription(TOPIC)}],
    }
    first = harness.parked(ApiKey.JOIN_GROUP, 9, {**asked, "group_instance_id": "i"})
    await settle()
    await release(harness)
    second = harness.parked(ApiKey.JOIN_GROUP, 9, {**asked, "group_instance_id": "j"})
    await asyncio.sleep(30)
    generations = [answer.generation_id for answer in (first(), second()) if answer is not None]
    assert generations == [1, 1]


@played
async def test_the_offset_of_a_topic_that_is_deleted_goes_though_its_commit_is_under_way(harness: GroupHarness) -> None:
    commit = await commit_under_way(harness, 2)
    harness.tell(RemoveTopicRecord(harness.image.topics_by_name[TOPIC].topic_id))
    await release(harness, commit=commit)
    shard = harness.groups.shard_of("g")
    assert shard.offsets_of("g") == {}
