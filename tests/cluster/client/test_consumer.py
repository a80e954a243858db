"""Which records of a Fetch answer `Consumer` returns, where it goes on, and how `raftwerk perf` counts them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from support.cluster.one_partition import OnePartition, batch

from raftwerk.cluster.client.client_errors import ClientError, NoLeaderAnswersError
from raftwerk.cluster.client.cluster_client import ClusterView, PartitionView, TopicView, WaitsFor
from raftwerk.cluster.client.consumer import LATEST, READ_COMMITTED, READ_UNCOMMITTED, Consumer, partition_range
from raftwerk.cluster.client.perf import PerfResult, consume_perf
from raftwerk.log.cleaner.batch_filter import emptied
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.codec import Struct
from raftwerk.wire.compression import Compression
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.records import ControlRecordType, encode_batch, encode_control_record, read_header


def marker(offset: int, producer: int, kind: ControlRecordType) -> bytes:
    record = encode_control_record(kind, bytes(6), 0)
    return bytes(
        encode_batch([record], base_offset=offset, producer_id=producer, is_transactional=True, is_control=True)
    )


def without_records(data: bytes) -> bytes:
    """The batch as compaction leaves it."""
    return emptied(read_header(data))[1]


def consumed(cluster: OnePartition, isolation_level: int, offset: int = 0) -> tuple[list[bytes | None], int]:
    """The values that one poll returns, and the position after it."""

    async def run() -> tuple[list[bytes | None], int]:
        consumer = Consumer(cluster, "t", isolation_level=isolation_level)
        await consumer.start(at=offset)
        return [one.record.value for one in await consumer.poll()], consumer.positions[0]

    return asyncio.run(run())


LOG = [
    batch(0, b"outside"),
    batch(1, b"aborted 1", b"aborted 2", producer=7, codec=Compression.ZSTD),
    batch(3, b"committed", producer=8),
    marker(4, 7, ControlRecordType.ABORT),
    batch(5, b"next of the same producer", producer=7, codec=Compression.LZ4),
    marker(6, 8, ControlRecordType.COMMIT),
    marker(7, 7, ControlRecordType.COMMIT),
]
ABORTED = [(7, 1)]


def test_read_committed_leaves_out_aborted_transactions_and_markers() -> None:
    committed = [b"outside", b"committed", b"next of the same producer"]
    assert consumed(OnePartition(LOG, ABORTED), READ_COMMITTED) == (committed, 8)
    everything = [b"outside", b"aborted 1", b"aborted 2", *committed[1:]]
    assert consumed(OnePartition(LOG, ABORTED), READ_UNCOMMITTED) == (everything, 8)


@pytest.mark.parametrize("isolation_level", [READ_COMMITTED, READ_UNCOMMITTED])
def test_every_request_has_the_isolation_level(isolation_level: int) -> None:
    cluster = OnePartition(LOG)

    async def run() -> None:
        consumer = Consumer(cluster, "t", isolation_level=isolation_level)
        await consumer.start_at_time(5)
        await consumer.poll()

    asyncio.run(run())
    assert cluster.asked_isolation == [isolation_level] * 3


@pytest.mark.parametrize("partitions", [(), (0,)])
@pytest.mark.parametrize("offset", [2, 9])
def test_an_offset_that_is_not_there_is_told_with_those_that_are(offset: int, partitions: tuple[int, ...]) -> None:
    cluster = OnePartition([batch(3, b"a", b"b", b"c")], first=3)
    with pytest.raises(ClientError, match=f"there is no offset {offset}: t-0 has the offsets 3 to 5"):
        asyncio.run(Consumer(cluster, "t").start_at_offset(offset, partitions))


def test_a_damaged_batch_is_told_after_the_records_before_it() -> None:
    damaged = bytearray(batch(1, b"value"))
    damaged[-3] ^= 1
    cluster = OnePartition([batch(0, b"sound"), bytes(damaged)])
    assert consumed(cluster, READ_UNCOMMITTED) == ([b"sound"], 1)
    with pytest.raises(
        ClientError, match=r"t-0: the batch at offset 1 is damaged in the log of node .: its CRC does not"
    ):
        consumed(cluster, READ_UNCOMMITTED, offset=1)


def test_a_batch_that_is_longer_than_its_bytes_is_damaged() -> None:
    """A client that waited for the rest of it would wait for ever."""
    longer = bytearray(batch(1, b"value"))
    longer[9] ^= 1
    cluster = OnePartition([batch(0, b"sound"), bytes(longer)])
    assert consumed(cluster, READ_UNCOMMITTED) == ([b"sound"], 1)
    with pytest.raises(ClientError, match=r"t-0: the batch at offset 1 is damaged in the log of node .: it is longer"):
        consumed(cluster, READ_UNCOMMITTED, offset=1)


@pytest.mark.parametrize("offset", [0, 1 << 40], ids=["before", "behind the end"])
def test_a_batch_that_is_out_of_its_place_is_damaged(offset: int) -> None:
    """The CRC does not cover the base offset: its records would be left out, or all that follow."""
    displaced = offset.to_bytes(8, "big") + batch(2, b"value")[8:]
    cluster = OnePartition([batch(0, b"a", b"b") + displaced, batch(3, b"c")])

    async def run() -> None:
        consumer = Consumer(cluster, "t")
        await consumer.start(at=1)
        assert [one.record.value for one in await consumer.poll()] == [b"b"]
        await consumer.poll()

    with pytest.raises(ClientError, match=r"t-0: the batch at offset 2 is damaged in the log of node .: by its header"):
        asyncio.run(run())


def test_an_offset_up_to_the_end_is_there() -> None:
    consumer = Consumer(OnePartition([batch(3, b"a", b"b", b"c")], first=3), "t")
    for offset in (3, 5, 6):
        assert asyncio.run(consumer.start_at_offset(offset)) == {}
        assert consumer.positions == {0: offset}
    assert partition_range("t", 1, 4, 4) == "t-1 is empty and ends at 4"


def test_records_before_the_position_are_left_out_in_a_batch() -> None:
    assert consumed(OnePartition([batch(0, b"a", b"b", b"c")]), READ_COMMITTED, offset=1) == ([b"b", b"c"], 3)


def test_the_position_moves_past_batches_that_compaction_has_emptied() -> None:
    log = [batch(0, b"a"), without_records(batch(1, b"b", b"c"))]
    assert consumed(OnePartition(log), READ_UNCOMMITTED) == ([b"a"], 3)
    log = [batch(0, b"a", producer=7), without_records(marker(1, 7, ControlRecordType.ABORT))]
    assert consumed(OnePartition(log, [(7, 0)]), READ_COMMITTED) == ([], 2)


def test_batches_are_decompressed_when_they_are_asked_for() -> None:
    async def run() -> None:
        consumer = Consumer(OnePartition([batch(0, b"a", b"b", codec=Compression.ZSTD), batch(2, b"c")]), "t")
        await consumer.start(at=0)
        batches = await consumer.poll_batches()
        assert consumer.positions == {0: 0}
        assert [one.record.value for one in next(batches)] == [b"a", b"b"] and consumer.positions == {0: 2}
        assert [one.record.value for one in await consumer.poll()] == [b"c"], "what was not asked for is read again"

    asyncio.run(run())


@pytest.mark.parametrize("end", range(8))
def test_records_end_at_the_end_offsets(end: int) -> None:
    """Compaction has removed 2 to 4, so the end may be in a batch, between batches, and behind the last one."""
    cluster = OnePartition([batch(0, b"0", b"1"), batch(5, b"5", b"6")])

    async def run() -> list[int]:
        consumer = Consumer(cluster, "t")
        await consumer.start(at=0)
        async with asyncio.timeout(30):
            return [one.record.offset async for one in consumer.records(end_offsets={0: end})]

    assert asyncio.run(run()) == [one for one in (0, 1, 5, 6) if one < end]


def counted(cluster: OnePartition, max_records: int) -> tuple[int, int]:
    result = PerfResult()
    asyncio.run(consume_perf(cluster, "t", result, max_records))
    return result.records, result.size_bytes


def test_perf_counts_as_many_records_as_were_asked_for() -> None:
    data = [batch(0, b"a", b"b", b"c"), batch(3, b"d", b"e"), batch(5, b"f")]
    sizes = [len(one) for one in data]
    assert counted(OnePartition(data), 0) == (6, sum(sizes))
    assert counted(OnePartition(data), 4) == (4, sizes[0] + sizes[1] // 2)
    assert counted(OnePartition(data), 3) == (3, sizes[0])
    assert counted(OnePartition(data), 100) == (6, sum(sizes))


def test_perf_counts_records_and_not_offsets() -> None:
    data = [batch(0, b"a"), without_records(batch(1, b"b", b"c")), batch(3, b"d")]
    assert counted(OnePartition(data), 0)[0] == 2


def test_an_answer_may_end_with_a_part_of_a_batch() -> None:
    data = [batch(0, b"a")]
    assert counted(OnePartition(data, tail=batch(1, b"b")[:65]), 0)[0] == 1
    assert consumed(OnePartition(data, tail=batch(1, b"b")[:65]), READ_COMMITTED) == ([b"a"], 1)


class Refusing(OnePartition):
    """Its Fetch answers have this error."""

    code = ErrorCode.NONE

    async def request_node(
        self, node_id: int, api: ApiKey, version: int, fields: Mapping[str, Any], waits_for: WaitsFor | None = None
    ) -> Struct:
        await asyncio.sleep(0)
        if api is ApiKey.LIST_OFFSETS:
            return await super().request_node(node_id, api, version, fields, waits_for)
        row = Struct({"partition_index": 0, "error_code": self.code, "records": b"", "aborted_transactions": None})
        return Struct({"responses": [Struct({"partitions": [row]})]})


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "TOPIC_AUTHORIZATION_FAILED"),
        (ErrorCode.OFFSET_OUT_OF_RANGE, "offset 0 is not in the log"),
        (ErrorCode.CORRUPT_MESSAGE, "the batch at offset 0 is damaged in the log of node 1: the node cannot read it"),
    ],
)
def test_perf_ends_when_its_reads_are_refused(code: ErrorCode, told: str) -> None:
    cluster = Refusing([batch(0, b"a")])
    cluster.code = code
    with pytest.raises(ClientError, match=told):
        asyncio.run(asyncio.wait_for(consume_perf(cluster, "t", PerfResult()), 10))


def test_perf_ends_at_a_batch_that_is_longer_than_its_bytes() -> None:
    longer = bytearray(batch(1, b"value"))
    longer[9] ^= 1
    cluster = OnePartition([batch(0, b"sound"), bytes(longer)])
    with pytest.raises(ClientError, match="the batch at offset 1 is damaged"):
        asyncio.run(asyncio.wait_for(consume_perf(cluster, "t", PerfResult()), 10))


class CreatedAnew(OnePartition):
    """A topic of two partitions, which is deleted and created again with one."""

    partitions = 2

    async def metadata(self, topics: Iterable[str] | None = None, **_: Any) -> ClusterView:
        partitions = tuple(PartitionView(number, 1, 0, (1,), (1,)) for number in range(self.partitions))
        return ClusterView("c", 1, (), (TopicView("t", None, False, partitions),))


def test_a_partition_that_its_topic_no_longer_has_is_without_a_leader() -> None:
    cluster = CreatedAnew([batch(0, b"a")])
    cluster.timeout_s = 0.2

    async def run() -> None:
        consumer = Consumer(cluster, "t")
        await consumer.start(at=0)
        assert consumer.positions == {0: 0, 1: 0}
        cluster.partitions = 1
        with pytest.raises(NoLeaderAnswersError, match="t-1"):
            await consumer.offsets(LATEST, [0, 1])
        assert [one.record.value for one in await consumer.poll()] == [b"a"]

    asyncio.run(asyncio.wait_for(run(), 10))
