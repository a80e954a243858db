"""ConsumerGroupHeartbeat and ConsumerGroupDescribe through a broker, and groups that change their protocol."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from support.broker.broker_harness import TOPIC, TOPIC_ID, settle
from support.broker.group_harness import (
    FakeLog,
    GroupHarness,
    consumer_heartbeat,
    join_consumer_group,
    play,
    played,
    stable_group,
    subscription,
)

from raftwerk.broker.coordinators.record_fields import BadRecord
from raftwerk.broker.groups.classic.consumer_protocol import write_assignment
from raftwerk.broker.groups.consumer.consumer_group import ConsumerGroup
from raftwerk.broker.groups.records.consumer_group_records import MemberMetadataValue, member_metadata_record
from raftwerk.controller.metadata.metadata_records import PartitionRecord, TopicRecord
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.records import NewRecord, encode_batch


@pytest.mark.parametrize("version", range(2))
def test_join_describe_commit_and_leave(version: int) -> None:
    async def test(harness: GroupHarness) -> None:
        joined = await join_consumer_group(harness, version, member_id="" if version == 0 else "m")
        assert (joined.error_code, joined.member_epoch, joined.heartbeat_interval) == (0, 1, 5_000)
        (row,) = joined.assignment.topic_partitions
        assert (row.topic_id, row.partitions) == (TOPIC_ID, [0, 1])
        member = joined.member_id
        described = await harness.call(ApiKey.CONSUMER_GROUP_DESCRIBE, version, {"group_ids": ["g", "nobody"]})
        group, nobody = described.groups
        assert (group.group_state, group.group_epoch, group.assignor_name) == ("Stable", 1, "uniform")
        assert group.members[0].assignment == group.members[0].target_assignment
        assert group.members[0].assignment.topic_partitions[0].topic_name == TOPIC
        assert nobody.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        mine = {"member_id": member, "generation_id_or_member_epoch": 1}
        assert await harness.commit("g", **mine) == 0
        assert await harness.commit("g", **{**mine, "generation_id_or_member_epoch": 2}) == ErrorCode.STALE_MEMBER_EPOCH
        assert await harness.commit("g") == ErrorCode.UNKNOWN_MEMBER_ID
        assert await harness.committed("g") == 42
        listed = await harness.call(ApiKey.LIST_GROUPS, 5, {"states_filter": [], "types_filter": ["Consumer"]})
        assert [(one.group_id, one.group_type, one.group_state) for one in listed.groups] == [
            ("g", "consumer", "Stable")
        ]
        left = await consumer_heartbeat(harness, version, member_id=member, member_epoch=-1)
        assert (left.error_code, left.member_epoch) == (0, -1)
        assert await harness.commit("g") == 0

    play(test)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout": -1}, ErrorCode.INVALID_REQUEST),
        ({"topic_partitions": None}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"server_assignor": "sticky"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"subscribed_topic_regex": "a("}, ErrorCode.INVALID_REGULAR_EXPRESSION),
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"member_epoch": 1}, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_invalid_heartbeats_are_refused(fields: dict[str, Any], code: int) -> None:
    async def test(harness: GroupHarness) -> None:
        assert (await join_consumer_group(harness, **fields)).error_code == code

    play(test)


@played
async def test_a_regular_expression_matches_no_internal_topics(harness: GroupHarness) -> None:
    joined = await join_consumer_group(harness, subscribed_topic_names=None, subscribed_topic_regex=".*")
    assert [row.topic_id for row in joined.assignment.topic_partitions] == [TOPIC_ID]


@played
async def test_an_empty_classic_group_becomes_a_consumer_group_and_back(harness: GroupHarness) -> None:
    joined = await stable_group(harness)
    assert await harness.commit("g", member_id=joined.member_id, generation_id_or_member_epoch=1) == 0
    assert (await consumer_heartbeat(harness, member_epoch=1)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    await harness.call(ApiKey.LEAVE_GROUP, 3, {"group_id": "g", "members": [{"member_id": joined.member_id}]})
    assert (await join_consumer_group(harness)).error_code == 0
    assert await harness.committed("g") == 42
    reborn = GroupHarness(harness.logs)
    await settle(30)
    assert (await consumer_heartbeat(reborn, member_epoch=1)).error_code == 0
    await consumer_heartbeat(reborn, member_epoch=-1)
    assert (await reborn.join("g")).error_code == 0
    again = GroupHarness(harness.logs)
    await settle(30)
    assert await again.committed("g") == 42
    assert again.groups.shard_of("g").groups["g"].kind == "classic"


@played
async def test_a_classic_member_that_has_only_got_its_id_keeps_no_consumer_group_away(harness: GroupHarness) -> None:
    asked = {
        "group_id": "g",
        "session_timeout": 10_000,
        "rebalance_timeout": 60_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": subscription(TOPIC)}],
    }
    classic = await harness.call(ApiKey.JOIN_GROUP, 9, asked)
    assert classic.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert (await join_consumer_group(harness)).error_code == 0
    assert (await harness.join("g")).error_code == 0


@played
async def test_members_that_wait_in_a_classic_group_are_told_when_it_becomes_a_consumer_group(
    harness: GroupHarness,
) -> None:
    """They join again at once, and are served by the consumer group."""
    joined = await harness.join("g")
    named = {"group_id": "g", "generation_id": joined.generation_id, "member_id": joined.member_id}
    given = [{"member_id": joined.member_id, "assignment": write_assignment(1, [(TOPIC, 0)])}]
    assert (await harness.call(ApiKey.SYNC_GROUP, 3, {**named, "assignments": given})).error_code == 0
    fields = {"group_id": "g", "session_timeout": 10_000, "rebalance_timeout": 60_000, "protocol_type": "consumer"}
    protocols = [{"name": "range", "metadata": subscription(TOPIC)}]
    waits = harness.parked(ApiKey.JOIN_GROUP, 3, {**fields, "member_id": "", "protocols": protocols})
    await settle()
    assert waits() is None
    assert (await join_consumer_group(harness)).error_code == 0
    answer = waits()
    assert answer is not None and answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS


@played
async def test_a_static_member_upgrades_a_group_of_the_maximum_size(harness: GroupHarness) -> None:
    """It takes its own place, so it does not make the group larger."""
    config = harness.groups.config
    harness.groups.config = replace(config, consumer=replace(config.consumer, max_size=1))
    joined = await harness.join("g", group_instance_id="i")
    given = {"member_id": joined.member_id, "assignment": b""}
    fields = {"group_id": "g", "generation_id": joined.generation_id, "member_id": joined.member_id}
    named = {"protocol_type": "consumer", "protocol_name": joined.protocol_name, "group_instance_id": "i"}
    assert (await harness.call(ApiKey.SYNC_GROUP, 5, {**fields, **named, "assignments": [given]})).error_code == 0
    refused = await join_consumer_group(harness, member_id="n")
    assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    upgraded = await join_consumer_group(harness, member_id="m", instance_id="i")
    assert (upgraded.error_code, upgraded.member_id) == (0, "m")
    group = harness.groups.shard_of("g").groups["g"]
    assert isinstance(group, ConsumerGroup) and list(group.members) == ["m"]


@pytest.mark.parametrize("instance", [None, "i"])
def test_an_administrator_removes_a_member(instance: str | None) -> None:
    """LeaveGroup removes members of the consumer protocol, too (KAFKA-18188)."""

    async def test(harness: GroupHarness) -> None:
        joined = await join_consumer_group(harness, instance_id=instance)
        member = {"member_id": "" if instance else "m", "group_instance_id": instance, "reason": "admin"}
        stranger = {"member_id": "n", "group_instance_id": None}
        answer = await harness.call(ApiKey.LEAVE_GROUP, 5, {"group_id": "g", "members": [member, stranger]})
        assert [one.error_code for one in answer.members] == [0, ErrorCode.UNKNOWN_MEMBER_ID]
        again = await consumer_heartbeat(harness, member_epoch=joined.member_epoch, instance_id=instance)
        assert again.error_code == ErrorCode.UNKNOWN_MEMBER_ID

    play(test)


@played
async def test_a_removal_that_is_not_written_is_not_confirmed(harness: GroupHarness) -> None:
    joined = await join_consumer_group(harness)
    harness.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    member = {"member_id": "m", "group_instance_id": None, "reason": "admin"}
    answer = await harness.call(ApiKey.LEAVE_GROUP, 5, {"group_id": "g", "members": [member]})
    assert (answer.error_code, answer.members) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, [])
    harness.append_error = 0
    await settle(30)
    assert (await consumer_heartbeat(harness, member_epoch=joined.member_epoch)).error_code == 0


@played
async def test_a_deleted_consumer_group_leaves_no_records(harness: GroupHarness) -> None:
    await join_consumer_group(harness)
    refused = await harness.call(ApiKey.DELETE_GROUPS, 2, {"groups_names": ["g"]})
    assert refused.results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    await consumer_heartbeat(harness, member_epoch=-1)
    deleted = await harness.call(ApiKey.DELETE_GROUPS, 2, {"groups_names": ["g"]})
    assert deleted.results[0].error_code == 0
    last = {record.key: record.value for record in harness.records()}
    assert set(last.values()) == {None}


@played
async def test_after_a_refused_write_the_group_is_what_it_was(harness: GroupHarness) -> None:
    await join_consumer_group(harness)
    harness.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert (await join_consumer_group(harness, member_id="n")).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    harness.append_error = 0
    await settle(30)
    assert (await consumer_heartbeat(harness, member_epoch=1)).error_code == 0
    group = harness.groups.shard_of("g").groups["g"]
    assert isinstance(group, ConsumerGroup) and list(group.members) == ["m"]


@played
async def test_a_join_that_is_sent_again_is_answered_when_the_first_one_is_committed(harness: GroupHarness) -> None:
    full = {"member_id": "m", "member_epoch": 0, "rebalance_timeout": 60_000, "subscribed_topic_names": [TOPIC]}
    asked = {"group_id": "g", **full, "topic_partitions": []}
    harness.hold = True
    answers = [harness.parked(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, asked) for _ in range(2)]
    await settle()
    assert [answer() for answer in answers] == [None, None]
    harness.release()
    await settle()
    told: list[Any] = [answer() for answer in answers]
    assert [(one.error_code, one.member_epoch) for one in told] == [(0, 1), (0, 1)]
    assert (await consumer_heartbeat(harness, member_epoch=1)).error_code == 0


@played
async def test_a_join_that_is_sent_again_fails_with_the_write_of_the_first_one(harness: GroupHarness) -> None:
    harness.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    full = {"member_id": "m", "member_epoch": 0, "rebalance_timeout": 60_000, "subscribed_topic_names": [TOPIC]}
    asked = {"group_id": "g", **full, "topic_partitions": []}
    harness.hold = True
    answers = [harness.parked(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, asked) for _ in range(2)]
    await settle()
    harness.release()
    await settle()
    told: list[Any] = [answer() for answer in answers]
    assert [one.error_code for one in told] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2


@played
async def test_compaction_may_leave_the_assignment_of_a_member_before_its_metadata(harness: GroupHarness) -> None:
    await join_consumer_group(harness)
    only_metadata = await consumer_heartbeat(harness, member_epoch=1, rebalance_timeout=70_000)
    assert only_metadata.error_code == 0
    for log in harness.logs.values():
        compact(log)
    successor = GroupHarness(harness.logs)
    await settle(30)
    group = successor.groups.shard_of("g").groups["g"]
    assert isinstance(group, ConsumerGroup) and group.members["m"].epoch == 1
    assert (await consumer_heartbeat(successor, member_epoch=1)).error_code == 0


@played
async def test_a_member_that_joins_again_starts_anew_after_compaction(harness: GroupHarness) -> None:
    """Its former assignment has a tombstone, and it has no other."""
    await join_consumer_group(harness)
    await consumer_heartbeat(harness, member_epoch=-1)
    (log,) = [log for log in harness.logs.values() if log.batches]
    metadata = MemberMetadataValue(None, None, "c", "/h", (TOPIC,), None, 60_000, None)
    log.append(memoryview(encode_batch([NewRecord(*member_metadata_record("g", "m", metadata), (), 1)])))
    successor = GroupHarness(harness.logs)
    await settle(30)
    group = successor.groups.shard_of("g").groups["g"]
    assert isinstance(group, ConsumerGroup) and group.members["m"].epoch == 0


def compact(log: FakeLog) -> None:
    """Keep the last record of each key, in its place."""
    last = {record.key: at for at, record in enumerate(log.records())}
    kept = [record for at, record in enumerate(log.records()) if last[record.key] == at]
    log.batches = []
    log.log_end_offset = 0
    for record in kept:
        log.append(memoryview(encode_batch([NewRecord(record.key, record.value, (), 1)])))


@played
async def test_an_expired_session_frees_the_partitions(harness: GroupHarness) -> None:
    import asyncio

    await join_consumer_group(harness)
    second = await join_consumer_group(harness, member_id="n")
    assert second.assignment.topic_partitions == []
    for _ in range(6):
        await asyncio.sleep(10)
        answer = await consumer_heartbeat(harness, member_id="n", member_epoch=2)
    assert answer.error_code in (0, ErrorCode.FENCED_MEMBER_EPOCH)
    described = await harness.call(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, {"group_ids": ["g"]})
    (member,) = described.groups[0].members
    assert (member.member_id, member.assignment.topic_partitions[0].partitions) == ("n", [0, 1])


def test_records_of_another_version_are_refused() -> None:
    from raftwerk.broker.groups.records.consumer_group_records import decode_current, decode_epoch

    for decode in (decode_current, decode_epoch):
        with pytest.raises(BadRecord):
            decode(b"\x00\x01\x00\x00\x00\x01")


@played
async def test_a_commit_needs_the_epoch_of_the_member(harness: GroupHarness) -> None:
    joined = await join_consumer_group(harness)
    who = {"member_id": joined.member_id, "generation_id_or_member_epoch": joined.member_epoch}
    assert await harness.commit("g", 8, **who) == ErrorCode.UNSUPPORTED_VERSION
    assert await harness.commit("g", 9, **who) == 0


@played
async def test_members_read_the_partitions_that_a_topic_gains_and_the_topics_that_are_created(
    harness: GroupHarness,
) -> None:
    """Their next heartbeat begins a new epoch, since the metadata has changed."""
    epoch = (await join_consumer_group(harness, subscribed_topic_names=[TOPIC, "later"])).member_epoch

    async def assigned() -> list[tuple[UUID, int]]:
        answer = await consumer_heartbeat(harness, member_epoch=epoch, topic_partitions=[])
        rows = answer.assignment.topic_partitions if answer.assignment is not None else []
        return [(row.topic_id, len(row.partitions)) for row in rows]

    count = len(harness.image.topics_by_name[TOPIC].partitions)
    assert await assigned() == []
    harness.tell(PartitionRecord(TOPIC_ID, count, (1, 2, 3), (1, 2, 3), 1))
    harness.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert (await consumer_heartbeat(harness, member_epoch=epoch)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    harness.append_error = 0
    assert await assigned() == [(TOPIC_ID, count + 1)]
    epoch += 1
    later = UUID(int=0x1A7E)
    harness.tell(TopicRecord("later", later))
    harness.tell(PartitionRecord(later, 0, (1, 2, 3), (1, 2, 3), 1))
    assert (later, 1) in await assigned()


@played
async def test_the_next_coordinator_looks_at_the_topics_before_it_answers(harness: GroupHarness) -> None:
    """They may have changed while nobody coordinated the group."""
    epoch = (await join_consumer_group(harness)).member_epoch
    successor = GroupHarness(harness.logs)
    await settle(30)
    count = len(successor.image.topics_by_name[TOPIC].partitions)
    successor.replay(PartitionRecord(TOPIC_ID, count, (1, 2, 3), (1, 2, 3), 1))
    answer = await consumer_heartbeat(successor, member_epoch=epoch, topic_partitions=[])
    assert answer.member_epoch == epoch + 1
    assert [len(row.partitions) for row in answer.assignment.topic_partitions] == [count + 1]


@played
async def test_members_of_a_broker_that_stops_are_told_to_find_the_next_coordinator(harness: GroupHarness) -> None:
    fields = {"group_id": "g", "session_timeout": 10_000, "rebalance_timeout": 60_000, "protocol_type": "consumer"}
    protocols = [{"name": "range", "metadata": subscription(TOPIC)}]
    waits = harness.parked(ApiKey.JOIN_GROUP, 3, {**fields, "member_id": "", "protocols": protocols})
    await settle()
    assert waits() is None
    harness.groups.stop()
    await settle()
    answer = waits()
    assert answer is not None and answer.error_code == ErrorCode.NOT_COORDINATOR
