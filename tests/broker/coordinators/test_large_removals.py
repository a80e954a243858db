"""Tombstones that have more bytes than one batch of their topic may have are written in several."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.broker import transaction_harness
from support.broker.group_harness import GroupHarness, played
from support.broker.transaction_harness import TransactionHarness

from raftwerk.broker.coordinators.coordinator_partition_writer import batches_of
from raftwerk.broker.coordinators.record_fields import CoordinatorRecord
from raftwerk.log.config import LogConfig
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.records import NewRecord, encode_batch

GROUP = "g" * 300
"""Of its tombstones, only one fits into a batch of `MAX_BYTES`."""
MAX_BYTES = 500
WEEK_MS = 7 * 24 * 3_600_000


@given(st.lists(st.integers(0, 300), min_size=1, max_size=50), st.integers(400, 2_000))
def test_batches_have_all_tombstones_in_order_and_are_not_too_large(sizes: list[int], bytes_max: int) -> None:
    records = [CoordinatorRecord(bytes(size), None) for size in sizes]
    batches = batches_of(records, bytes_max)
    assert [record for batch in batches for record in batch] == records
    for batch in batches:
        encoded = encode_batch([NewRecord(key, value, (), 1_700_000_000_000) for key, value in batch])
        assert len(encoded) <= bytes_max


@pytest.mark.parametrize("size", [1, 10_000])
def test_a_tombstone_that_is_too_large_stands_alone_and_values_stay_together(size: int) -> None:
    small, large = CoordinatorRecord(b"k", None), CoordinatorRecord(bytes(size), None)
    assert [len(batch) for batch in batches_of([small, large, small], 1_000)] == ([3] if size == 1 else [1, 1, 1])
    assert len(batches_of([large, large, CoordinatorRecord(b"k", b"v")], 1_000)) == 1


@transaction_harness.played
async def test_long_transactional_ids_expire(harness: TransactionHarness) -> None:
    for number in range(500):
        assert (await harness.init(transactional_id=f"{number:05d}" + "x" * 7_000))[0] == 0
    harness.wall_ms += WEEK_MS + 1
    await asyncio.sleep(2 * 3_600)
    assert not any(shard.entries for shard in harness.transactions.loaded_shards())


async def commit_many(harness: GroupHarness) -> None:
    for log in harness.logs.values():
        log.config = LogConfig(max_message_bytes=MAX_BYTES)
    for partition in range(2):
        row = {"partition_index": partition, "committed_offset": 5, "committed_metadata": ""}
        topic = {"name": "flights", "topic_id": UUID(int=0xF117), "partitions": [row]}
        assert await harness.commit(GROUP, topics=[topic]) == 0
    assert len(harness.groups.shard_of(GROUP).offsets[GROUP]) == 2


@played
async def test_a_group_with_very_many_offsets_is_deleted(harness: GroupHarness) -> None:
    await commit_many(harness)
    answer = await harness.call(ApiKey.DELETE_GROUPS, 2, {"groups_names": [GROUP]})
    assert answer.results[0].error_code == 0
    shard = harness.groups.shard_of(GROUP)
    assert not shard.groups and not shard.offsets
    later = GroupHarness(harness.logs)
    await asyncio.sleep(1)
    assert not later.groups.shard_of(GROUP).offsets


@played
async def test_the_offsets_are_looked_up_in_the_log_when_only_some_tombstones_are_there(harness: GroupHarness) -> None:
    """The disk is full after the first batch: what is gone is what the next coordinator would not find either."""
    await commit_many(harness)
    append = harness.replicas.append
    batches = 0

    def fill_up(*args: Any, **options: Any) -> None:
        nonlocal batches
        batches += 1
        harness.append_error = 0 if batches == 1 else ErrorCode.KAFKA_STORAGE_ERROR
        append(*args, **options)

    harness.replicas.append = fill_up  # type: ignore[method-assign]
    answer = await harness.call(ApiKey.DELETE_GROUPS, 2, {"groups_names": [GROUP]})
    assert answer.results[0].error_code == ErrorCode.NOT_COORDINATOR
    assert batches == 2
    await asyncio.sleep(1)
    left = harness.groups.shard_of(GROUP).offsets[GROUP]
    assert len(left) == 1
    later = GroupHarness(harness.logs)
    await asyncio.sleep(1)
    assert later.groups.shard_of(GROUP).offsets[GROUP] == left
