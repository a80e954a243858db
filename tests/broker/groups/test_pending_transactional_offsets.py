"""Commits within transactions, stable reads of them, and commits for deleted topics."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.broker.broker_harness import TOPIC, settle
from support.broker.group_harness import GroupHarness, played

from raftwerk.broker.coordinators.partition_for import partition_for
from raftwerk.broker.groups.group_config import OFFSETS_TOPIC
from raftwerk.broker.groups.pending_transactional_offsets import PendingTransactionalOffsets
from raftwerk.broker.groups.records.offset_and_classic_records import OffsetAndMetadata, OffsetKey, offset_record
from raftwerk.controller.metadata.metadata_records import PartitionRecord, TopicRecord
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.codec import Struct
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.records import ControlRecordType, NewRecord, encode_batch, encode_control_record
from raftwerk.wire.types import TopicPartition

PRODUCER = 77
KEY = TopicPartition(OFFSETS_TOPIC, partition_for("g", 3))


def write(harness: GroupHarness, offset: int, *, producer: int = -1) -> None:
    key, value = offset_record("g", TopicPartition(TOPIC, 0), OffsetAndMetadata(offset, -1, "", 1_000))
    records = [NewRecord(key, value, (), 1_000)]
    inside = producer >= 0
    batch = encode_batch(records, producer_id=producer, producer_epoch=0, base_sequence=0, is_transactional=inside)
    harness.logs[KEY].append(memoryview(batch))


def mark(harness: GroupHarness, kind: ControlRecordType) -> None:
    record = encode_control_record(kind, bytes(6))
    batch = encode_batch([record], producer_id=PRODUCER, producer_epoch=0, is_control=True, is_transactional=True)
    harness.logs[KEY].append(memoryview(batch))


def delete(harness: GroupHarness) -> None:
    key, value = offset_record("g", TopicPartition(TOPIC, 0), None)
    harness.logs[KEY].append(memoryview(encode_batch([NewRecord(key, value, (), 1_000)])))


async def loaded(harness: GroupHarness) -> GroupHarness:
    other = GroupHarness(harness.logs)
    await settle(30)
    return other


async def fetched(harness: GroupHarness, *, stable: bool) -> tuple[int, int]:
    topics = [{"name": TOPIC, "partition_indexes": [0]}]
    group = {"group_id": "g", "member_id": None, "member_epoch": -1, "topics": topics}
    answer = await harness.call(ApiKey.OFFSET_FETCH, 9, {"groups": [group], "require_stable": stable})
    row = answer.groups[0].topics[0].partitions[0]
    return row.committed_offset, row.error_code


@played
async def test_a_commit_takes_effect_with_its_transaction(harness: GroupHarness) -> None:
    write(harness, 5)
    write(harness, 9, producer=PRODUCER)
    mark(harness, ControlRecordType.COMMIT)
    assert await fetched(await loaded(harness), stable=True) == (9, 0)


@played
async def test_a_commit_of_an_aborted_transaction_is_dropped(harness: GroupHarness) -> None:
    write(harness, 5)
    write(harness, 9, producer=PRODUCER)
    mark(harness, ControlRecordType.ABORT)
    assert await fetched(await loaded(harness), stable=True) == (5, 0)


@played
async def test_an_offset_is_unstable_while_its_transaction_is_open(harness: GroupHarness) -> None:
    write(harness, 5)
    write(harness, 9, producer=PRODUCER)
    other = await loaded(harness)
    assert await fetched(other, stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert await fetched(other, stable=False) == (5, 0)


async def read_groups(harness: GroupHarness, *groups: str, version: int = 9, stable: bool = True) -> Struct:
    topics = [{"name": TOPIC, "partition_indexes": [0]}]
    rows = [{"group_id": one, "member_id": None, "member_epoch": -1, "topics": topics} for one in groups]
    return await harness.call(ApiKey.OFFSET_FETCH, version, {**rows[0], "groups": rows, "require_stable": stable})


@played
async def test_stable_offsets_wait_until_the_leadership_is_confirmed(harness: GroupHarness) -> None:
    await harness.commit("g")
    harness.holds_reads = True
    assert (await read_groups(harness, "g", stable=False)).groups[0].error_code == 0
    reading = asyncio.ensure_future(read_groups(harness, "g"))
    await settle()
    assert not reading.done()
    assert await harness.commit("g", offset=43) == 0
    (done,) = harness.held_reads.pop(KEY)
    done(True)
    assert (await reading).groups[0].topics[0].partitions[0].committed_offset == 43


@played
async def test_a_coordinator_that_is_not_confirmed_says_so(harness: GroupHarness) -> None:
    await harness.commit("g")
    harness.holds_reads = True
    for version in (7, 8, 9):
        reading = asyncio.ensure_future(read_groups(harness, "g", version=version))
        await settle()
        harness.held_reads.pop(KEY)[0](False)
        answer = await reading
        found = answer if version < 8 else answer.groups[0]
        assert found.error_code == ErrorCode.NOT_COORDINATOR
        assert not found.topics


@played
async def test_each_group_is_answered_by_the_confirmation_of_its_own_partition(harness: GroupHarness) -> None:
    other = next(name for name in "hijklm" if partition_for(name, 3) != KEY.partition)
    same = next(name for name in "hijklmnop" if partition_for(name, 3) == KEY.partition)
    await harness.commit(other)
    harness.holds_reads = True
    reading = asyncio.ensure_future(read_groups(harness, "g", other, same, ""))
    await settle()
    assert [len(waiting) for waiting in harness.held_reads.values()] == [1, 1]
    harness.held_reads.pop(KEY)[0](False)
    await settle()
    assert not reading.done()
    harness.held_reads.popitem()[1][0](True)
    found = [(one.group_id, one.error_code) for one in (await reading).groups]
    refused = int(ErrorCode.NOT_COORDINATOR)
    assert found == [("g", refused), (other, 0), (same, refused), ("", int(ErrorCode.INVALID_GROUP_ID))]


@played
async def test_a_coordinator_that_is_replaced_while_it_waits_answers_nothing(harness: GroupHarness) -> None:
    await harness.commit("g")
    harness.holds_reads = True
    reading = asyncio.ensure_future(read_groups(harness, "g"))
    await settle()
    harness.lead(2)
    harness.held_reads.pop(KEY)[0](True)
    assert (await reading).groups[0].error_code == ErrorCode.NOT_COORDINATOR


@played
async def test_a_later_commit_outside_the_transaction_wins(harness: GroupHarness) -> None:
    write(harness, 9, producer=PRODUCER)
    write(harness, 12)
    mark(harness, ControlRecordType.COMMIT)
    assert await fetched(await loaded(harness), stable=True) == (12, 0)


@played
async def test_a_recreated_topic_has_no_offsets_of_the_former_one(harness: GroupHarness) -> None:
    assert await harness.commit("g") == 0
    assert await fetched(harness, stable=True) == (42, 0)
    other = await loaded(harness)
    other.image.topics_by_name.pop(TOPIC)
    other.replay(TopicRecord(TOPIC, UUID(int=0xBEEF)))
    other.replay(PartitionRecord(UUID(int=0xBEEF), 0, (1,), (1,), 1))
    assert await fetched(other, stable=True) == (-1, 0)


@played
async def test_a_commit_is_dropped_when_the_offset_is_deleted_before_its_transaction_ends(
    harness: GroupHarness,
) -> None:
    write(harness, 9, producer=PRODUCER)
    delete(harness)
    assert await fetched(await loaded(harness), stable=True) == (-1, 0)
    mark(harness, ControlRecordType.COMMIT)
    assert await fetched(await loaded(harness), stable=True) == (-1, 0)


@played
async def test_a_group_with_unstable_offsets_only_is_there_and_does_not_expire(harness: GroupHarness) -> None:
    write(harness, 9, producer=PRODUCER)
    other = await loaded(harness)
    shard = other.groups.shard_of("g")
    other.groups.expire(shard)
    assert list(shard.groups) == ["g"]
    assert await fetched(other, stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    shard.end_transaction(PRODUCER, is_committed=False)
    other.groups.expire(shard)
    assert not shard.groups


@played
async def test_a_deleted_group_stays_deleted_when_a_transaction_with_its_offsets_ends(harness: GroupHarness) -> None:
    write(harness, 9, producer=PRODUCER)
    other = await loaded(harness)
    answer = await other.call(ApiKey.DELETE_GROUPS, 2, {"groups_names": ["g"]})
    assert answer.results[0].error_code == 0
    mark(other, ControlRecordType.COMMIT)
    assert await fetched(await loaded(other), stable=True) == (-1, 0)


@played
async def test_a_deleted_offset_stays_deleted_when_its_transaction_ends(harness: GroupHarness) -> None:
    write(harness, 9, producer=PRODUCER)
    other = await loaded(harness)
    asked = {"group_id": "g", "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0}]}]}
    answer = await other.call(ApiKey.OFFSET_DELETE, 0, asked)
    assert answer.topics[0].partitions[0].error_code == 0
    mark(other, ControlRecordType.COMMIT)
    assert await fetched(await loaded(other), stable=True) == (-1, 0)


@played
async def test_a_deleted_topic_takes_its_unstable_offsets_along(harness: GroupHarness) -> None:
    write(harness, 9, producer=PRODUCER)
    other = await loaded(harness)
    other.remove_topic(other.image.topics_by_name[TOPIC].topic_id)
    mark(other, ControlRecordType.COMMIT)
    assert await fetched(await loaded(other), stable=True) == (-1, 0)


def pending_of_two_producers(*producers: int) -> PendingTransactionalOffsets:
    """Each of the producers commits its own id as the offset, in this order."""
    pending = PendingTransactionalOffsets()
    for producer in producers:
        pending.add(producer, KEYS[0], OffsetAndMetadata(producer))
    return pending


@pytest.mark.parametrize("producers", [(1, 2), (2, 1, 2)])
def test_the_later_of_two_open_commits_wins_though_its_transaction_ends_first(producers: tuple[int, ...]) -> None:
    """Compaction keeps the later record. So the next coordinator, which loads the log, would find that one."""
    pending = pending_of_two_producers(*producers)
    assert pending.end(2, is_committed=True) == [(KEYS[0], OffsetAndMetadata(2))]
    assert pending.end(1, is_committed=True) == []
    assert not pending


@pytest.mark.parametrize("producers", [(2, 1), (1, 2, 1)])
def test_two_open_commits_that_end_in_the_order_of_the_log_both_take_effect(producers: tuple[int, ...]) -> None:
    pending = pending_of_two_producers(*producers)
    assert pending.end(2, is_committed=True) == [(KEYS[0], OffsetAndMetadata(2))]
    assert pending.end(1, is_committed=True) == [(KEYS[0], OffsetAndMetadata(1))]


def test_an_aborted_commit_replaces_none() -> None:
    pending = pending_of_two_producers(1, 2)
    assert pending.end(2, is_committed=False) == []
    assert pending.end(1, is_committed=True) == [(KEYS[0], OffsetAndMetadata(1))]


class NaiveOffsets:
    """One partition's offset as Apache Kafka keeps it: each commit with its place in the log."""

    def __init__(self) -> None:
        self.committed: dict[OffsetKey, tuple[int, int]] = {}
        self.pending: dict[int, dict[OffsetKey, tuple[int, int]]] = {}

    def end(self, producer: int, *, is_committed: bool) -> None:
        for key, commit in self.pending.pop(producer, {}).items():
            if is_committed and commit[0] > self.committed.get(key, (-1, 0))[0]:
                self.committed[key] = commit

    def delete(self, key: OffsetKey) -> None:
        self.committed.pop(key, None)
        for commits in self.pending.values():
            commits.pop(key, None)


KEYS = [OffsetKey(group, TopicPartition(TOPIC, index)) for group in "gh" for index in range(2)]
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("pending"), st.sampled_from(KEYS), st.integers(1, 3)),
        st.tuples(st.just("plain"), st.sampled_from(KEYS), st.just(0)),
        st.tuples(st.just("delete"), st.sampled_from(KEYS), st.just(0)),
        st.tuples(st.sampled_from(["commit", "abort"]), st.just(KEYS[0]), st.integers(1, 3)),
    ),
    max_size=40,
)


@given(EVENTS)
def test_the_last_commit_in_the_log_wins(events: list[tuple[str, OffsetKey, int]]) -> None:
    naive, pending, stored = NaiveOffsets(), PendingTransactionalOffsets(), {}
    for at, (kind, key, producer) in enumerate(events):
        value = OffsetAndMetadata(at)
        if kind == "pending":
            naive.pending.setdefault(producer, {})[key] = (at, at)
            pending.add(producer, key, value)
        elif kind == "plain":
            naive.committed[key] = (at, at)
            stored[key] = value
            pending.replace(key)
        elif kind == "delete":
            naive.delete(key)
            stored.pop(key, None)
            pending.forget(key)
        else:
            naive.end(producer, is_committed=kind == "commit")
            stored.update(pending.end(producer, is_committed=kind == "commit"))
        assert {one: value.offset for one, value in stored.items()} == {
            one: offset for one, (_, offset) in naive.committed.items()
        }
        for one in KEYS:
            unstable = any(one in commits for commits in naive.pending.values())
            assert pending.is_unstable(one) == unstable
            assert (one.topic_partition in pending.partitions_of(one.group_id)) == unstable
    assert bool(pending) == any(naive.pending.values())
