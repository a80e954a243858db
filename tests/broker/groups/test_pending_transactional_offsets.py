"""Commits within transactions that Apache Kafka wrote, and commits for deleted topics."""

from __future__ import annotations

from uuid import UUID

from support.broker.broker_harness import TOPIC, settle
from support.broker.group_harness import GroupHarness, played

from raftwerk.broker.groups.group_config import OFFSETS_TOPIC
from raftwerk.broker.groups.group_partition import partition_for
from raftwerk.broker.groups.records.offset_and_classic_records import OffsetAndMetadata, offset_record
from raftwerk.controller.metadata.metadata_records import PartitionRecord, TopicRecord
from raftwerk.wire.api_keys import ApiKey
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
