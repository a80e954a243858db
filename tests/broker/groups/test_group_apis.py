"""Every group API in every version, against a coordinator whose log is a list."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest
from support.broker.broker_harness import TOPIC, TOPIC_ID, settle
from support.broker.group_harness import GroupHarness, join_consumer_group, play, played, stable_group, subscription

from raftwerk.broker.coordinators.partition_for import partition_for
from raftwerk.broker.groups.group_config import OFFSETS_TOPIC
from raftwerk.broker.groups.records.offset_and_classic_records import OffsetKey, decode_key
from raftwerk.controller.metadata.metadata_records import PartitionRecord, TopicRecord
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.types import TopicPartition


@pytest.mark.parametrize("version", range(7))
def test_find_coordinator(version: int) -> None:
    async def test(harness: GroupHarness) -> None:
        answer = await harness.call(
            ApiKey.FIND_COORDINATOR, version, {"key": "g", "key_type": 0, "coordinator_keys": ["g"]}
        )
        row = answer.coordinators[0] if version >= 4 else answer
        assert (row.error_code, row.node_id, row.host, row.port) == (0, 1, "host1", 9091)

    play(test)


@played
async def test_find_coordinator_creates_the_topic(harness: GroupHarness) -> None:
    harness.remove_topic(harness.image.topics_by_name[OFFSETS_TOPIC].topic_id)
    answer = harness.parked(ApiKey.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["g"]})
    await settle()
    assert harness.controller.created == [OFFSETS_TOPIC]
    assert answer() is None
    topic_id = UUID(int=77)
    harness.replay(TopicRecord(OFFSETS_TOPIC, topic_id))
    harness.tell(PartitionRecord(topic_id, 0, (2,), (2,), 2))
    await settle()
    found = answer()
    assert found is not None
    assert found.coordinators[0].node_id == 2


@pytest.mark.parametrize("version", range(10))
def test_join(version: int) -> None:
    async def test(harness: GroupHarness) -> None:
        answer = await harness.join("g", version)
        assert (answer.error_code, answer.generation_id, answer.protocol_name) == (0, 1, "range")
        assert answer.leader == answer.member_id
        assert answer.member_id.startswith("test-")
        assert [one.metadata for one in answer.members] == [subscription("flights")]

    play(test)


@pytest.mark.parametrize("version", range(6))
def test_sync_and_heartbeat_and_leave(version: int) -> None:
    async def test(harness: GroupHarness) -> None:
        joined = await harness.join("g")
        assert (await harness.sync("g", joined, version)).assignment == b"all"
        member = {"group_id": "g", "generation_id": 1, "member_id": joined.member_id}
        beat = await harness.call(ApiKey.HEARTBEAT, min(version, 4), member)
        assert beat.error_code == 0
        leaver = {"group_id": "g", "member_id": joined.member_id, "members": [{"member_id": joined.member_id}]}
        for expected in (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID):
            left = await harness.call(ApiKey.LEAVE_GROUP, version, leaver)
            assert (left.members[0] if version >= 3 else left).error_code == expected

    play(test)


@pytest.mark.parametrize("version", range(2, 11))
def test_offsets_are_committed_and_fetched(version: int) -> None:
    async def test(harness: GroupHarness) -> None:
        assert await harness.commit("simple", version) == 0
        for fetch_version in range(1, 11):
            assert await harness.committed("simple", fetch_version) == 42
            assert await harness.committed("nobody", fetch_version) == -1

    play(test)


@pytest.mark.parametrize("version", range(2, 11))
def test_all_offsets_of_a_group(version: int) -> None:
    async def test(harness: GroupHarness) -> None:
        await harness.commit("g")
        fields = {"group_id": "g", "topics": None}
        answer = await harness.call(ApiKey.OFFSET_FETCH, version, {**fields, "groups": [fields]})
        (topic,) = (answer.groups[0] if version >= 8 else answer).topics
        assert (topic.name if version < 10 else topic.topic_id) == (TOPIC if version < 10 else TOPIC_ID)
        assert (topic.partitions[0].committed_offset, topic.partitions[0].metadata) == (42, "m")

    play(test)


@played
async def test_refused_commits(harness: GroupHarness) -> None:
    joined = await stable_group(harness)
    mine = {"member_id": joined.member_id, "generation_id_or_member_epoch": 1}
    assert await harness.commit("g", **mine) == 0
    assert await harness.commit("g", **{**mine, "generation_id_or_member_epoch": 0}) == ErrorCode.ILLEGAL_GENERATION
    assert await harness.commit("g", **{**mine, "member_id": "x"}) == ErrorCode.UNKNOWN_MEMBER_ID
    assert await harness.commit("g") == ErrorCode.UNKNOWN_MEMBER_ID
    assert await harness.commit("new", **mine) == ErrorCode.ILLEGAL_GENERATION
    assert await harness.commit("") == ErrorCode.INVALID_GROUP_ID
    long = {"partition_index": 0, "committed_offset": 1, "committed_metadata": "m" * 4097}
    nowhere = {"partition_index": 9, "committed_offset": 1, "committed_metadata": ""}
    fields = {"group_id": "g", **mine, "topics": [{"name": TOPIC, "partitions": [long, nowhere]}]}
    answer = await harness.call(ApiKey.OFFSET_COMMIT, 9, fields)
    codes = [row.error_code for row in answer.topics[0].partitions]
    assert codes == [ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


@played
async def test_a_retention_time_of_ages_is_kept(harness: GroupHarness) -> None:
    row = {"partition_index": 0, "committed_offset": 7, "committed_metadata": None}
    fields = {
        "group_id": "g",
        "generation_id_or_member_epoch": -1,
        "retention_time": 2**63 - 1,
        "topics": [{"name": TOPIC, "partitions": [row]}],
    }
    answer = await harness.call(ApiKey.OFFSET_COMMIT, 3, fields)
    assert answer.topics[0].partitions[0].error_code == 0
    assert await harness.committed("g") == 7


@played
async def test_a_commit_is_answered_and_visible_when_the_replicas_have_it(harness: GroupHarness) -> None:
    await harness.commit("g", offset=1)
    harness.hold = True
    row = {"partition_index": 0, "committed_offset": 2, "committed_metadata": None}
    fields = {"group_id": "g", "generation_id_or_member_epoch": -1, "topics": [{"name": TOPIC, "partitions": [row]}]}
    answer = harness.parked(ApiKey.OFFSET_COMMIT, 8, fields)
    await settle()
    assert answer() is None
    assert await harness.committed("g") == 1
    harness.release()
    await settle()
    found = answer()
    assert found is not None
    assert found.topics[0].partitions[0].error_code == 0
    assert await harness.committed("g") == 2


@pytest.mark.parametrize(
    ("append_error", "told"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
    ],
)
def test_a_commit_that_the_log_refuses_is_not_stored(append_error: int, told: int) -> None:
    async def test(harness: GroupHarness) -> None:
        harness.append_error = append_error
        assert await harness.commit("g") == told
        assert await harness.committed("g") == -1

    play(test)


@played
async def test_a_commit_that_timed_out_is_visible_once_the_replicas_have_it(harness: GroupHarness) -> None:
    """As in Apache Kafka, whatever the client was told."""
    await harness.commit("g", offset=1)
    harness.append_error = int(ErrorCode.REQUEST_TIMED_OUT)
    assert await harness.commit("g", offset=2) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await harness.committed("g") == 1
    harness.release_commits()
    assert await harness.committed("g") == 2


@played
async def test_a_commit_of_too_few_replicas_is_visible_though_the_client_was_told_otherwise(
    harness: GroupHarness,
) -> None:
    harness.append_error = int(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    assert await harness.commit("g", offset=2) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await harness.committed("g") == 2


@played
async def test_a_commit_that_timed_out_is_not_applied_by_a_former_coordinator(harness: GroupHarness) -> None:
    harness.append_error = int(ErrorCode.REQUEST_TIMED_OUT)
    assert await harness.commit("g", offset=2) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    former = harness.groups.shard_of("g")
    harness.lead(2)
    harness.release_commits()
    assert not former.offsets_of("g")


@played
async def test_a_deletion_that_timed_out_takes_effect_once_the_replicas_have_it(harness: GroupHarness) -> None:
    await harness.commit("g", offset=1)
    await harness.commit("h", offset=1)
    harness.append_error = int(ErrorCode.REQUEST_TIMED_OUT)
    topics = [{"name": TOPIC, "partitions": [{"partition_index": 0}]}]
    answer = await harness.call(ApiKey.OFFSET_DELETE, 0, {"group_id": "g", "topics": topics})
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    answer = await harness.call(ApiKey.DELETE_GROUPS, 2, {"groups_names": ["h"]})
    assert answer.results[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert [await harness.committed(group) for group in ("g", "h")] == [1, 1]
    harness.release_commits()
    assert [await harness.committed(group) for group in ("g", "h")] == [-1, -1]
    assert "h" not in harness.groups.shard_of("h").groups


@pytest.mark.parametrize("version", range(7))
def test_describe_groups(version: int) -> None:
    async def test(harness: GroupHarness) -> None:
        joined = await stable_group(harness)
        fields = {"groups": ["g", "nobody"], "include_authorized_operations": True}
        row, nobody = (await harness.call(ApiKey.DESCRIBE_GROUPS, version, fields)).groups
        assert (row.group_state, row.protocol_type, row.protocol_data) == ("Stable", "consumer", "range")
        (member,) = row.members
        assert (member.member_id, member.client_id, member.client_host) == (joined.member_id, "test", "/192.0.2.1")
        assert member.member_assignment == b"all"
        assert nobody.group_state == "Dead"
        assert nobody.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0)
        if version >= 3:
            assert row.authorized_operations > 0
            assert (nobody.authorized_operations > 0) == (version < 6)
        if version >= 6:
            assert nobody.error_message == "Group nobody not found."
            await join_consumer_group(harness, group_id="modern")
            (modern,) = (await harness.call(ApiKey.DESCRIBE_GROUPS, version, {"groups": ["modern"]})).groups
            assert modern.error_message == "Group modern is not a classic group."

    play(test)


@pytest.mark.parametrize("version", range(6))
def test_list_groups(version: int) -> None:
    async def test(harness: GroupHarness) -> None:
        await stable_group(harness)
        await harness.commit("simple")
        answer = await harness.call(ApiKey.LIST_GROUPS, version, {"states_filter": [], "types_filter": []})
        assert sorted((row.group_id, row.protocol_type) for row in answer.groups) == [("g", "consumer"), ("simple", "")]
        if version >= 4:
            answer = await harness.call(ApiKey.LIST_GROUPS, version, {"states_filter": ["sTable"], "types_filter": []})
            assert [(row.group_id, row.group_state) for row in answer.groups] == [("g", "Stable")]
        if version >= 5:
            answer = await harness.call(
                ApiKey.LIST_GROUPS, version, {"states_filter": [], "types_filter": ["consumer"]}
            )
            assert answer.groups == []

    play(test)


@pytest.mark.parametrize("version", range(3))
def test_delete_groups(version: int) -> None:
    async def test(harness: GroupHarness) -> None:
        await stable_group(harness)
        await harness.commit("simple")
        answer = await harness.call(ApiKey.DELETE_GROUPS, version, {"groups_names": ["g", "simple", "nobody"]})
        assert [row.error_code for row in answer.results] == [
            ErrorCode.NON_EMPTY_GROUP,
            ErrorCode.NONE,
            ErrorCode.GROUP_ID_NOT_FOUND,
        ]
        assert await harness.committed("simple") == -1
        reborn = GroupHarness(harness.logs)
        await settle()
        assert await reborn.committed("simple") == -1

    play(test)


@played
async def test_offset_delete(harness: GroupHarness) -> None:
    joined = await stable_group(harness)
    await harness.commit("g", member_id=joined.member_id, generation_id_or_member_epoch=1)
    await harness.commit("simple")
    topics = [{"name": TOPIC, "partitions": [{"partition_index": 0}]}]
    answer = await harness.call(ApiKey.OFFSET_DELETE, 0, {"group_id": "g", "topics": topics})
    assert answer.topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    answer = await harness.call(ApiKey.OFFSET_DELETE, 0, {"group_id": "simple", "topics": topics})
    assert (answer.error_code, answer.topics[0].partitions[0].error_code) == (0, 0)
    assert await harness.committed("simple") == -1
    answer = await harness.call(ApiKey.OFFSET_DELETE, 0, {"group_id": "nobody", "topics": topics})
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND


@played
async def test_a_coordinator_that_loses_its_partition_answers_all_waiting_requests(harness: GroupHarness) -> None:
    joined = await stable_group(harness)
    await stable_group(harness, "h")
    fields = {
        "group_id": "g",
        "session_timeout": 10_000,
        "rebalance_timeout": 60_000,
        "member_id": "",
        "group_instance_id": "i",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    waiting = harness.parked(ApiKey.JOIN_GROUP, 9, fields)
    await settle()
    harness.lead(2)
    await settle()
    found = waiting()
    assert found is not None
    assert found.error_code == ErrorCode.NOT_COORDINATOR
    beat = {"group_id": "g", "generation_id": 1, "member_id": joined.member_id}
    assert (await harness.call(ApiKey.HEARTBEAT, 4, beat)).error_code == ErrorCode.NOT_COORDINATOR
    harness.lead(1)
    assert (await harness.call(ApiKey.HEARTBEAT, 4, beat)).error_code in (0, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    await settle()
    assert (await harness.call(ApiKey.HEARTBEAT, 4, beat)).error_code == 0


@pytest.mark.parametrize("version", range(5))
def test_a_heartbeat_at_a_coordinator_that_is_loading_is_answered_without_an_error(version: int) -> None:
    async def test(harness: GroupHarness) -> None:
        joined = await stable_group(harness)
        reborn = GroupHarness(harness.logs)
        beat = {"group_id": "g", "generation_id": 1, "member_id": joined.member_id}
        assert (await reborn.call(ApiKey.HEARTBEAT, version, beat)).error_code == ErrorCode.NONE

    play(test)


@pytest.mark.parametrize("version", range(6))
def test_a_member_joins_again_when_the_coordinator_is_loading_at_its_sync(version: int) -> None:
    async def test(harness: GroupHarness) -> None:
        joined = await stable_group(harness)
        reborn = GroupHarness(harness.logs)
        sync = {"group_id": "g", "generation_id": 1, "member_id": joined.member_id, "assignments": []}
        named = {"protocol_type": "consumer", "protocol_name": "range"}
        answer = await reborn.call(ApiKey.SYNC_GROUP, version, sync | named)
        assert answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS

    play(test)


@played
async def test_an_append_of_an_earlier_leader_epoch_changes_nothing(harness: GroupHarness) -> None:
    harness.hold = True
    row = {"partition_index": 0, "committed_offset": 2, "committed_metadata": None}
    fields = {"group_id": "g", "generation_id_or_member_epoch": -1, "topics": [{"name": TOPIC, "partitions": [row]}]}
    answer = harness.parked(ApiKey.OFFSET_COMMIT, 8, fields)
    await settle()
    harness.lead(2)
    harness.release()
    await settle()
    found = answer()
    assert found is not None
    assert found.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR


@played
async def test_the_next_coordinator_loads_everything(harness: GroupHarness) -> None:
    joined = await stable_group(harness)
    mine = {"member_id": joined.member_id, "generation_id_or_member_epoch": 1}
    for offset in range(1, 40):
        assert await harness.commit("g", offset=offset, **mine) == 0
    reborn = GroupHarness(harness.logs)
    found = await reborn.call(ApiKey.LIST_GROUPS, 4, {"states_filter": []})
    assert found.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await settle(30)
    assert await reborn.committed("g") == 39
    beat = {"group_id": "g", "generation_id": 1, "member_id": joined.member_id}
    assert (await reborn.call(ApiKey.HEARTBEAT, 4, beat)).error_code == 0
    assert await reborn.commit("g", offset=40, **mine) == 0


@played
async def test_corrupt_and_unknown_records_do_not_stop_loading(harness: GroupHarness) -> None:
    from raftwerk.wire.records import encode_batch

    await harness.commit("g")
    log = harness.logs[TopicPartition(OFFSETS_TOPIC, partition_for("g", 3))]
    rotten = [(b"\x00\x63x", b"y"), (b"\x00\x01", b"y"), (None, b"y"), (b"\x00\x02\x00\x01g", b"\x00\x09")]
    log.append(memoryview(encode_batch([(key, value, (), 1) for key, value in rotten])))
    reborn = GroupHarness(harness.logs)
    await settle(30)
    assert await reborn.committed("g") == 42


@played
async def test_a_failed_load_is_retried(harness: GroupHarness) -> None:
    await harness.commit("g")
    log = harness.logs[TopicPartition(OFFSETS_TOPIC, partition_for("g", 3))]
    log.refusal = OSError("the disk is slow to wake")
    reborn = GroupHarness(harness.logs)
    await settle()
    fields = {"group_id": "g", "topics": None}
    answer = await reborn.call(ApiKey.OFFSET_FETCH, 8, {"groups": [fields], "require_stable": False})
    assert answer.groups[0].error_code == ErrorCode.NOT_COORDINATOR
    await asyncio.sleep(1.1)
    assert await reborn.committed("g") == 42


@played
async def test_offsets_of_a_deleted_topic_are_removed(harness: GroupHarness) -> None:
    await harness.commit("g")
    harness.remove_topic(TOPIC_ID)
    (value, tombstone) = harness.records()
    assert (value.key, tombstone.value) == (tombstone.key, None)


@played
async def test_unused_offsets_expire(harness: GroupHarness) -> None:
    await harness.commit("g")
    (record,) = harness.records()
    assert decode_key(record.key or b"") == OffsetKey("g", TopicPartition(TOPIC, 0))
    shard = harness.groups.shard_of("g")
    harness.groups.expire(shard)
    assert len(harness.records()) == 1
    harness.groups.wall_ms = lambda: 1_000_000 + 7 * 24 * 3_600_000  # type: ignore[method-assign]
    harness.groups.expire(shard)
    assert harness.records()[-1].value is None
    assert shard.groups == {}
    assert await harness.committed("g") == -1


@played
async def test_a_member_that_joins_while_the_group_expires_finds_no_offsets(harness: GroupHarness) -> None:
    """Otherwise the offsets would be visible until another broker loads the group, and then be gone."""
    await harness.commit("g")
    harness.groups.wall_ms = lambda: 1_000_000 + 7 * 24 * 3_600_000  # type: ignore[method-assign]
    harness.hold = True
    harness.groups.expire(harness.groups.shard_of("g"))
    joined = await harness.join("g")
    harness.release()
    await harness.sync("g", joined)
    told = await harness.committed("g")
    successor = GroupHarness(harness.logs)
    await asyncio.sleep(0.1)
    assert told == await successor.committed("g") == -1


@played
async def test_requests_that_are_refused_before_the_group_lookup(harness: GroupHarness) -> None:
    short = await harness.join("g", session_timeout=5_999)
    assert short.error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    assert (await harness.join("g", session_timeout=1_800_001)).error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    assert (await harness.join("")).error_code == ErrorCode.INVALID_GROUP_ID
    assert (await harness.join("g", member_id="x")).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    beat = {"group_id": "g", "generation_id": 1, "member_id": "m"}
    assert (await harness.call(ApiKey.HEARTBEAT, 4, beat)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    joined = await stable_group(harness)
    nameless = {"group_id": "g", "generation_id": 1, "member_id": joined.member_id, "assignments": []}
    assert (await harness.call(ApiKey.SYNC_GROUP, 5, nameless)).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_groups_are_spread_over_the_partitions() -> None:
    found = {partition_for(f"group-{number}", 50) for number in range(1000)}
    assert found == set(range(50))
