"""TxnOffsetCommit: verification, fencing by member and generation, pending offsets, and markers that end them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.broker.broker_harness import TOPIC, TOPIC_ID, settle
from support.broker.group_harness import (
    GroupHarness,
    consumer_heartbeat,
    join_consumer_group,
    play,
    played,
    stable_group,
)

from raftwerk.broker.coordinators.partition_for import partition_for
from raftwerk.broker.groups.group_config import OFFSETS_TOPIC
from raftwerk.controller.metadata.metadata_records import PartitionRecord, RemoveTopicRecord, TopicRecord
from raftwerk.isr.leader.transaction_markers import TransactionMarker
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.codec import Struct
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.records import read_header
from raftwerk.wire.types import TopicPartition

PRODUCER = 77
PARTITION = partition_for("g", 3)
KEY = TopicPartition(OFFSETS_TOPIC, PARTITION)
VERSIONS = range(6)


def confirm(code: ErrorCode = ErrorCode.NONE) -> Any:
    """A coordinator that answers with `code` for each partition."""

    def answer(question: Struct) -> dict[str, Any]:
        results = []
        for row in question.transactions:
            topics = [
                {
                    "name": topic.name,
                    "results_by_partition": [
                        {"partition_index": index, "partition_error_code": int(code)} for index in topic.partitions
                    ],
                }
                for topic in row.topics
            ]
            results.append({"transactional_id": row.transactional_id, "topic_results": topics})
        return {"error_code": 0, "results_by_transaction": results}

    return answer


def request(offset: int = 42, **fields: Any) -> dict[str, Any]:
    """Commit `offset` of flights-0 in a transaction."""
    partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": "m"}
    return {
        "transactional_id": "t",
        "group_id": "g",
        "producer_id": PRODUCER,
        "producer_epoch": 3,
        "topics": [{"name": TOPIC, "partitions": [partition]}],
        **fields,
    }


async def commit(harness: GroupHarness, version: int = 5, **fields: Any) -> list[int]:
    """The codes of all partitions."""
    answer = await harness.call(ApiKey.TXN_OFFSET_COMMIT, version, request(**fields))
    return [one.error_code for topic in answer.topics for one in topic.partitions]


async def fetched(harness: GroupHarness, *, stable: bool = True) -> tuple[int, int]:
    topics = [{"name": TOPIC, "partition_indexes": [0]}]
    group = {"group_id": "g", "member_id": None, "member_epoch": -1, "topics": topics}
    answer = await harness.call(ApiKey.OFFSET_FETCH, 9, {"groups": [group], "require_stable": stable})
    row = answer.groups[0].topics[0].partitions[0]
    return row.committed_offset, row.error_code


UNSTABLE = (-1, int(ErrorCode.UNSTABLE_OFFSET_COMMIT))


def end(harness: GroupHarness, *, commits: bool) -> list[ErrorCode]:
    """Write the marker; the list gets the code."""
    found: list[ErrorCode] = []
    harness.groups.write_marker(PARTITION, TransactionMarker(PRODUCER, 4, 0, commits, 2), 1_000, found.append)
    return found


async def loaded_again(harness: GroupHarness) -> GroupHarness:
    other = GroupHarness(harness.logs)
    await settle(30)
    return other


@played
async def test_an_offset_does_not_hold_for_a_topic_that_is_created_again_while_nobody_coordinates(
    harness: GroupHarness,
) -> None:
    harness.coordinator_answers = confirm()
    assert await commit(harness, offset=5000) == [0]
    assert end(harness, commits=True) == [0]
    assert await fetched(harness) == (5000, 0)
    other = GroupHarness(harness.logs)
    again = UUID(int=0xBEEF)
    other.tell(RemoveTopicRecord(TOPIC_ID))
    other.tell(TopicRecord(TOPIC, again))
    other.tell(PartitionRecord(again, 0, (1, 2, 3), (1, 2, 3), 1))
    await settle(30)
    assert await fetched(other) == (-1, 0)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_offset_takes_effect_with_the_marker(version: int) -> None:
    async def test(harness: GroupHarness) -> None:
        harness.coordinator_answers = confirm()
        assert await commit(harness, version) == [0]
        (question,) = harness.verifications
        (row,) = question.transactions
        assert (row.transactional_id, row.producer_id, row.producer_epoch) == ("t", PRODUCER, 3)
        assert row.verify_only == (version < 5)
        assert [(topic.name, topic.partitions) for topic in row.topics] == [(OFFSETS_TOPIC, [PARTITION])]
        assert await fetched(harness) == UNSTABLE
        assert await fetched(harness, stable=False) == (-1, 0)
        assert await fetched(await loaded_again(harness)) == UNSTABLE
        assert end(harness, commits=True) == [ErrorCode.NONE]
        assert await fetched(harness) == (42, 0)
        assert await fetched(await loaded_again(harness)) == (42, 0)

    play(test)


@played
async def test_an_aborted_offset_leaves_the_former_one(harness: GroupHarness) -> None:
    harness.coordinator_answers = confirm()
    assert await harness.commit("g", offset=5) == 0
    assert await commit(harness) == [0]
    assert await commit(harness, offset=43) == [0]
    assert len(harness.verifications) == 1
    assert end(harness, commits=False) == [ErrorCode.NONE]
    assert await fetched(harness) == (5, 0)
    assert await fetched(await loaded_again(harness)) == (5, 0)


@played
async def test_expiry_keeps_an_offset_whose_commit_in_a_transaction_is_under_way(harness: GroupHarness) -> None:
    harness.coordinator_answers = confirm()
    assert await harness.commit("g", offset=5) == 0
    long_after_ms = harness.groups.wall_ms() + 7 * 24 * 3_600_000
    harness.groups.wall_ms = lambda: long_after_ms  # type: ignore[method-assign]
    harness.hold = True
    answer = harness.parked(ApiKey.TXN_OFFSET_COMMIT, 5, request())
    await settle(20)
    harness.groups.expire(harness.groups.shard_of("g"))
    harness.release()
    await settle()
    committed: Any = answer()
    assert committed.topics[0].partitions[0].error_code == 0
    assert end(harness, commits=True) == [ErrorCode.NONE]
    assert await fetched(harness) == (42, 0)


@played
async def test_the_records_are_a_transactional_batch_without_sequence_numbers(harness: GroupHarness) -> None:
    harness.coordinator_answers = confirm()
    assert await commit(harness) == [0]
    _, batch = harness.logs[KEY].batches[-1]
    header = read_header(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (PRODUCER, 3, -1)
    assert header.is_transactional
    assert not header.is_control


@played
async def test_a_marker_takes_effect_when_it_is_committed(harness: GroupHarness) -> None:
    harness.coordinator_answers = confirm()
    assert await commit(harness) == [0]
    harness.hold = True
    written = end(harness, commits=True)
    assert not written
    assert await fetched(harness) == UNSTABLE
    harness.release()
    assert written == [ErrorCode.NONE]
    assert await fetched(harness) == (42, 0)


@played
async def test_a_marker_that_was_not_written_is_written_again(harness: GroupHarness) -> None:
    harness.coordinator_answers = confirm()
    assert await commit(harness) == [0]
    harness.append_error = int(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert end(harness, commits=True) == [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert await fetched(harness) == UNSTABLE
    harness.append_error = 0
    assert end(harness, commits=True) == [ErrorCode.NONE]
    assert await fetched(harness) == (42, 0)


@played
async def test_the_marker_of_a_partition_that_is_not_loaded_is_to_be_sent_again(harness: GroupHarness) -> None:
    harness.coordinator_answers = confirm()
    assert await commit(harness) == [0]
    harness.lead(2)
    assert end(harness, commits=True) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    harness.lead(1)
    assert end(harness, commits=True) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]  # the load has begun
    await settle(30)
    assert end(harness, commits=True) == [ErrorCode.NONE]
    assert await fetched(harness) == (42, 0)


@pytest.mark.parametrize("code", [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND])
def test_offsets_in_the_log_are_pending_though_their_commit_timed_out(code: ErrorCode) -> None:
    async def test(harness: GroupHarness) -> None:
        harness.coordinator_answers = confirm()
        harness.append_error = int(code)
        assert await commit(harness) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
        harness.append_error = 0
        assert harness.groups.shard_of("g").unsettled_partitions("g")
        harness.release_commits()
        assert await fetched(harness) == UNSTABLE
        assert end(harness, commits=True) == [ErrorCode.NONE]
        assert await fetched(harness) == (42, 0)
        assert await fetched(await loaded_again(harness)) == (42, 0)

    play(test)


@played
async def test_a_marker_does_not_end_a_transaction_whose_commit_follows_it_in_the_log(harness: GroupHarness) -> None:
    """A coordinator whose connection broke sends its marker again; the next commit times out behind it."""
    harness.coordinator_answers = confirm()
    assert await commit(harness, offset=10) == [0]
    assert end(harness, commits=True) == [ErrorCode.NONE]
    harness.hold = True
    end(harness, commits=True)
    markers, harness.held_appends, harness.hold = harness.held_appends, [], False
    harness.append_error = int(ErrorCode.REQUEST_TIMED_OUT)
    assert await commit(harness, offset=42, producer_epoch=4) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    harness.append_error = 0
    for answer in markers:
        answer()
    harness.release_commits()
    assert await fetched(harness) == UNSTABLE
    assert await fetched(await loaded_again(harness)) == UNSTABLE


@pytest.mark.parametrize("code", [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND])
def test_a_marker_in_the_log_takes_effect_though_its_write_timed_out(code: ErrorCode) -> None:
    async def test(harness: GroupHarness) -> None:
        harness.coordinator_answers = confirm()
        assert await commit(harness) == [0]
        harness.append_error = int(code)
        assert end(harness, commits=True) == [code]
        assert await fetched(harness) == (UNSTABLE if code == ErrorCode.REQUEST_TIMED_OUT else (42, 0))
        harness.append_error = 0
        harness.release_commits()
        assert await fetched(harness) == (42, 0)
        assert await fetched(await loaded_again(harness)) == (42, 0)

    play(test)


@played
async def test_offsets_that_are_not_in_the_log_are_not_pending(harness: GroupHarness) -> None:
    harness.coordinator_answers = confirm()
    harness.append_error = int(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert await commit(harness) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert await fetched(harness) == (-1, 0)


REFUSED = [
    (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
    (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
    (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
    (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR),
]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("code", "expected"), REFUSED)
def test_a_transaction_that_is_not_confirmed_commits_nothing(
    version: int, code: ErrorCode, expected: ErrorCode
) -> None:
    async def test(harness: GroupHarness) -> None:
        harness.coordinator_answers = confirm(code)
        assert await commit(harness, version) == [expected]
        assert await fetched(harness) == (-1, 0)
        assert not harness.records()

    play(test)


@pytest.mark.parametrize("version", VERSIONS)
def test_errors_that_old_clients_do_not_know_are_said_in_others(version: int) -> None:
    async def test(harness: GroupHarness) -> None:
        harness.coordinator_answers = confirm(ErrorCode.TRANSACTION_ABORTABLE)
        abortable = ErrorCode.TRANSACTION_ABORTABLE if version >= 4 else ErrorCode.INVALID_TXN_STATE
        assert await commit(harness, version) == [abortable]
        harness.coordinator_answers = None
        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if version >= 2 else ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await commit(harness, version) == [loading]  # the transaction coordinator is not reached
        harness.lead(2)
        assert await commit(harness, version) == [ErrorCode.NOT_COORDINATOR]
        assert await commit(harness, version, group_id="") == [ErrorCode.INVALID_GROUP_ID]

    play(test)


@played
async def test_a_load_is_said_in_the_codes_of_the_version(harness: GroupHarness) -> None:
    harness.coordinator_answers = confirm()
    assert await commit(harness) == [0]
    harness.groups.shard_of("g").is_loading = True
    assert await commit(harness, 1) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert await commit(harness, 2) == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]


@played
async def test_a_classic_group_is_fenced_by_member_and_generation(harness: GroupHarness) -> None:
    harness.coordinator_answers = confirm()
    assert await commit(harness, generation_id=1, member_id="m") == [ErrorCode.ILLEGAL_GENERATION]  # no such group
    joined = await stable_group(harness)
    me = {"member_id": joined.member_id, "generation_id": joined.generation_id}
    assert await commit(harness, **me) == [0]
    assert await commit(harness) == [0]  # without the group's metadata, as before KIP-447
    assert await commit(harness, 2) == [0]
    assert await commit(harness, **{**me, "generation_id": 0}) == [ErrorCode.ILLEGAL_GENERATION]
    assert await commit(harness, **{**me, "generation_id": -1}) == [ErrorCode.ILLEGAL_GENERATION]
    assert await commit(harness, **{**me, "member_id": "zombie"}) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert await commit(harness, **me, group_instance_id="i") == [ErrorCode.UNKNOWN_MEMBER_ID]


@played
async def test_a_static_member_that_was_replaced_is_fenced(harness: GroupHarness) -> None:
    harness.coordinator_answers = confirm()
    joined = await stable_group(harness, group_instance_id="i")
    me = {"member_id": joined.member_id, "generation_id": joined.generation_id, "group_instance_id": "i"}
    assert await commit(harness, **me) == [0]
    assert await commit(harness, **{**me, "member_id": "former"}) == [ErrorCode.FENCED_INSTANCE_ID]


@played
async def test_a_consumer_group_is_fenced_by_member_and_epoch(harness: GroupHarness) -> None:
    harness.coordinator_answers = confirm()
    joined = await join_consumer_group(harness)
    me = {"member_id": joined.member_id, "generation_id": joined.member_epoch}
    assert await commit(harness, **me) == [0]
    assert await commit(harness) == [0]
    assert await commit(harness, **{**me, "generation_id": joined.member_epoch - 1}) == [ErrorCode.ILLEGAL_GENERATION]
    assert await commit(harness, **{**me, "member_id": "zombie"}) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert await commit(harness, generation_id=-2) == [ErrorCode.UNKNOWN_MEMBER_ID]
    await consumer_heartbeat(harness, member_id=joined.member_id, member_epoch=-1)
    assert await commit(harness, generation_id=-2) == [0]  # there is no member any more


@played
async def test_a_member_that_is_fenced_meanwhile_commits_nothing(harness: GroupHarness) -> None:
    """The group is looked at when the transaction is verified, not when the request comes."""
    joined = await stable_group(harness)

    def answer(question: Struct) -> dict[str, Any]:
        shard = harness.groups.shard_of("g")
        group: Any = shard.groups["g"]
        group.generation += 1
        found: dict[str, Any] = confirm()(question)
        return found

    harness.coordinator_answers = answer
    me = {"member_id": joined.member_id, "generation_id": joined.generation_id}
    assert await commit(harness, **me) == [ErrorCode.ILLEGAL_GENERATION]
    assert await fetched(harness) == (-1, 0)


@played
async def test_unknown_partitions_and_long_metadata_are_refused_one_by_one(harness: GroupHarness) -> None:
    harness.coordinator_answers = confirm()
    rows = [
        {"partition_index": 0, "committed_offset": 1, "committed_metadata": "m"},
        {"partition_index": 1, "committed_offset": 1, "committed_metadata": "m" * 5000},
        {"partition_index": 9, "committed_offset": 1, "committed_metadata": None},
    ]
    topics = [{"name": TOPIC, "partitions": rows}, {"name": "nowhere", "partitions": rows[:1]}]
    codes = [0, ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert await commit(harness, topics=topics) == [*codes, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert await commit(harness, topics=topics[1:]) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert await commit(harness, topics=[]) == []


@played
async def test_without_verification_an_impossible_producer_is_refused_all_the_same(harness: GroupHarness) -> None:
    harness.replicas.verifies_transactions = False
    assert await commit(harness, 3, producer_id=-1) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    assert await commit(harness, 3, producer_epoch=-1) == [ErrorCode.INVALID_PRODUCER_EPOCH]


@played
async def test_write_txn_markers_reaches_the_group_coordinator(harness: GroupHarness) -> None:
    harness.coordinator_answers = confirm()
    assert await commit(harness) == [0]
    topic = {"name": OFFSETS_TOPIC, "partition_indexes": [PARTITION]}
    marker = {"producer_id": PRODUCER, "producer_epoch": 4, "transaction_result": True, "topics": [topic]}
    answer = await harness.call(
        ApiKey.WRITE_TXN_MARKERS, 2, {"markers": [{**marker, "coordinator_epoch": 0, "transaction_version": 2}]}
    )
    assert answer.markers[0].topics[0].partitions[0].error_code == 0
    assert await fetched(harness) == (42, 0)


KINDS = st.sampled_from(["plain", "transactional", "timed_out", "commit", "abort", "delete_offset", "delete_group"])


def view(harness: GroupHarness) -> dict[str, Any]:
    """What OffsetFetch can tell of all groups."""
    shard = harness.groups.shard_of("g")
    return {
        "offsets": {group: {key: one.offset for key, one in them.items()} for group, them in shard.offsets.items()},
        "unstable": {group: sorted(shard.pending.partitions_of(group)) for group in shard.pending.groups},
    }


@settings(deadline=None)
@given(st.lists(st.tuples(KINDS, st.integers(1, 2), st.booleans()), max_size=12))
def test_another_coordinator_loads_what_this_one_knows(events: list[tuple[str, int, bool]]) -> None:
    """Also when answers are late, and come after later requests were written."""

    async def test(harness: GroupHarness) -> None:
        harness.coordinator_answers = confirm()
        for number, (kind, producer, holds) in enumerate(events):
            if not kind.startswith("delete"):
                harness.hold = harness.hold or holds
            else:
                harness.release()
            if kind == "plain":
                row = {"partition_index": 0, "committed_offset": number, "committed_metadata": "m"}
                topics = [{"name": TOPIC, "partitions": [row]}]
                asked = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "", "topics": topics}
                harness.parked(ApiKey.OFFSET_COMMIT, 9, asked)
            elif kind in ("transactional", "timed_out"):
                harness.append_error = int(ErrorCode.REQUEST_TIMED_OUT) if kind == "timed_out" else 0
                harness.parked(ApiKey.TXN_OFFSET_COMMIT, 5, request(number, producer_id=producer))
                await settle()
                harness.append_error = 0
                harness.release_commits()
            elif kind in ("commit", "abort"):
                marker = TransactionMarker(producer, 4, 0, kind == "commit", 2)
                harness.groups.write_marker(PARTITION, marker, 1_000, lambda code: None)
            elif kind == "delete_offset":
                asked = {"group_id": "g", "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0}]}]}
                await harness.call(ApiKey.OFFSET_DELETE, 0, asked)
            else:
                await harness.call(ApiKey.DELETE_GROUPS, 2, {"groups_names": ["g"]})
            await settle()
        harness.release()
        await settle()
        assert view(await loaded_again(harness)) == view(harness)

    play(test)
