"""Records of `__transaction_state` that cannot be read are passed over, and none ends its partition."""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from support.broker.group_harness import PARTITIONS, FakeLog, on_virtual_time, settle
from support.broker.transaction_harness import TransactionHarness

from raftwerk.broker.coordinators.partition_for import partition_for
from raftwerk.broker.transactions.transaction_config import TRANSACTION_TOPIC
from raftwerk.broker.transactions.transaction_metadata import TransactionMetadata, TransactionState
from raftwerk.broker.transactions.transaction_records import transaction_record
from raftwerk.wire.records import NewRecord, encode_batch
from raftwerk.wire.types import TopicPartition

KEY = TopicPartition(TRANSACTION_TOPIC, partition_for("t", PARTITIONS))


def load(
    rows: Sequence[tuple[bytes | None, bytes | None]], check: Callable[[TransactionHarness], Awaitable[None]]
) -> None:
    """Load the records by a new coordinator, then run `check`. Nothing may raise out of a callback of the loop."""
    failures: list[dict[str, Any]] = []
    logs = {TopicPartition(TRANSACTION_TOPIC, index): FakeLog() for index in range(PARTITIONS)}
    for key, value in rows:
        logs[KEY].append(memoryview(encode_batch([NewRecord(key, value)])))

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
        harness = TransactionHarness(transaction_logs=logs)
        for _ in range(20):
            await settle()
        await check(harness)
        harness.groups.stop()
        harness.transactions.stop()

    on_virtual_time(main)
    assert failures == []


async def is_served(harness: TransactionHarness) -> None:
    assert len(harness.transactions.loaded_shards()) == PARTITIONS
    await asyncio.sleep(200)
    code, producer_id, _ = await harness.init()
    assert code == 0 and producer_id >= 0


ROTTEN = [
    (b"\x00\x63x", b"y"),
    (b"\x00", b"y"),
    (None, b"y"),
    (b"\x00\x00\x7f\xff", b"y"),
    (b"\x00\x00\x00\x01t", b"\x00\x09"),
]


def test_records_that_cannot_be_read_are_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    async def check(harness: TransactionHarness) -> None:
        await is_served(harness)
        assert harness.transactions.partitions.passed_over == 4

    with caplog.at_level(logging.WARNING, "raftwerk.transactions"):
        load(ROTTEN, check)
    first, more = caplog.messages
    assert "is passed over" in first and "3 more are passed over" in more


INT64S = st.one_of(st.sampled_from([-(2**63), -1, 0, 1, 2**31, 2**63 - 1]), st.integers(-(2**63), 2**63 - 1))
INT32S = st.one_of(st.sampled_from([-(2**31), -1, 0, 1, 2**31 - 1]), st.integers(-(2**31), 2**31 - 1))
PARTITION_SETS = st.frozensets(
    st.builds(TopicPartition, st.sampled_from(["flights", "no such topic", ""]), INT32S), max_size=3
)
HOSTILE = st.builds(
    TransactionMetadata,
    producer_id=INT64S,
    producer_epoch=st.sampled_from([-32768, -1, 0, 1, 32766, 32767]),
    timeout_ms=INT32S,
    state=st.sampled_from(
        [
            TransactionState.EMPTY,
            TransactionState.ONGOING,
            TransactionState.PREPARE_COMMIT,
            TransactionState.PREPARE_ABORT,
            TransactionState.COMPLETE_COMMIT,
            TransactionState.COMPLETE_ABORT,
        ]
    ),
    partitions=PARTITION_SETS,
    start_ms=INT64S,
    last_update_ms=INT64S,
    previous_producer_id=INT64S,
    next_producer_id=INT64S,
    client_version=st.integers(-(2**15), 2**15 - 1),
    next_producer_epoch=st.sampled_from([-32768, -1, 0, 1, 32766, 32767]),
)


@settings(max_examples=150, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(st.lists(st.tuples(st.sampled_from(["t", "u", ""]), HOSTILE, st.integers(0, 2)), min_size=1, max_size=5))
def test_no_record_ends_a_partition(values: list[tuple[str, TransactionMetadata, int]]) -> None:
    rows = []
    for name, value, version in values:
        record = transaction_record(name, value, version)
        rows.append((record[0], record[1]))

    async def check(harness: TransactionHarness) -> None:
        assert len(harness.transactions.loaded_shards()) == PARTITIONS
        await asyncio.sleep(200)
        await asyncio.wait_for(harness.init(), 30)
        await asyncio.wait_for(harness.init(transactional_id="another"), 30)

    load(rows, check)


@pytest.mark.parametrize(("version", "is_good"), [(-129, False), (-128, True), (127, True), (128, False)])
def test_a_version_that_markers_cannot_have_is_passed_over(version: int, is_good: bool) -> None:
    flights = frozenset([TopicPartition("flights", 0)])
    value = TransactionMetadata(0, 0, 60_000, TransactionState.PREPARE_COMMIT, flights, 0, 0, client_version=version)
    record = transaction_record("t", value, 1)

    async def check(harness: TransactionHarness) -> None:
        await is_served(harness)
        assert harness.transactions.partitions.passed_over == (0 if is_good else 1)

    load([(record[0], record[1])], check)


@settings(max_examples=100, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(
    st.builds(lambda version, rest: struct.pack(">h", version) + rest, st.integers(0, 2), st.binary(max_size=60)),
)
def test_no_bytes_raise_out_of_the_loader(value: bytes) -> None:
    load([(b"\x00\x00\x00\x01t", value)], is_served)
