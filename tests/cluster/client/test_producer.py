"""How `Producer` sends records of which the topic refuses some batches as too large."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftwerk.cluster.client.client_errors import RefusedError
from raftwerk.cluster.client.cluster_client import ClusterClient, ClusterView, PartitionView, TopicView, WaitsFor
from raftwerk.cluster.client.producer import Producer, murmur2
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.codec import Struct
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.records import iter_headers, iter_records

LIMIT_BYTES = 200


class _SmallBatches(ClusterClient):
    """A topic of two partitions that takes batches of up to `LIMIT_BYTES`, with consecutive sequence numbers."""

    def __init__(self) -> None:
        super().__init__("localhost:9092")
        self.taken: dict[int, list[bytes | None]] = {0: [], 1: []}
        self.producer_id = 5

    async def metadata(self, topics: Iterable[str] | None = None, **_: Any) -> ClusterView:
        partitions = tuple(PartitionView(number, 1, 0, (1,), (1,)) for number in range(2))
        return ClusterView("c", 1, (), (TopicView("t", None, False, partitions),))

    async def request(
        self, api: ApiKey, version: int, fields: Mapping[str, Any], on_no_answer: object = None, **_: Any
    ) -> Struct:
        return Struct({"error_code": 0, "producer_id": self.producer_id, "producer_epoch": 0})

    async def request_node(
        self, node_id: int, api: ApiKey, version: int, fields: Mapping[str, Any], waits_for: WaitsFor | None = None
    ) -> Struct:
        await asyncio.sleep(0)
        ((index, data),) = ((one["index"], one["records"]) for one in fields["topic_data"][0]["partition_data"])
        taken = self.taken[index]
        code = ErrorCode.MESSAGE_TOO_LARGE if len(data) > LIMIT_BYTES else ErrorCode.NONE
        base_offset = len(taken)
        if not code:
            ((_, header),) = iter_headers(data)
            assert header.base_sequence == base_offset
            taken += [record.value for record in iter_records(data)]
        row = {"error_code": code, "base_offset": base_offset, "error_message": None}
        return Struct({"responses": [Struct({"partition_responses": [Struct(row)]})]})


def send(*values: bytes) -> tuple[dict[int, list[bytes | None]], Producer, RefusedError | None]:
    """Send the values, each with its first byte as the key."""
    cluster = _SmallBatches()
    producer = Producer(cluster, "t")

    async def run() -> RefusedError | None:
        await producer.start()
        try:
            await producer.send([(value[:1], value) for value in values])
        except RefusedError as error:
            return error
        return None

    error = asyncio.run(run())
    return cluster.taken, producer, error


@given(st.lists(st.binary(min_size=1, max_size=110), max_size=60))
def test_batches_are_cut_until_they_are_small_enough(values: list[bytes]) -> None:
    taken, producer, error = send(*values)
    assert error is None
    expected: dict[int, list[bytes]] = {0: [], 1: []}
    for value in values:
        expected[producer.partition_for(value[:1])].append(value)
    assert taken == expected
    assert sum(producer.acked.values()) == len(values)


def test_producers_that_send_once_begin_at_different_partitions() -> None:
    async def first_partition(producer_id: int) -> int:
        cluster = _SmallBatches()
        cluster.producer_id = producer_id
        producer = Producer(cluster, "t")
        await producer.start()
        await producer.send([(None, b"v")])
        return next(partition for partition, values in cluster.taken.items() if values)

    assert {asyncio.run(first_partition(producer_id)) for producer_id in (1000, 1001)} == {0, 1}


class _NoListener(_SmallBatches):
    async def request_node(
        self, node_id: int, api: ApiKey, version: int, fields: Mapping[str, Any], waits_for: WaitsFor | None = None
    ) -> Struct:
        raise ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 9092)")


def test_what_is_not_acked_is_said_without_numbers_of_the_operating_system() -> None:
    async def run() -> None:
        producer = Producer(_NoListener(), "t", timeout_s=0.01)
        await producer.start()
        await producer.send([(b"k", b"hello")])

    with pytest.raises(RefusedError) as refused:
        asyncio.run(run())
    assert re.fullmatch(
        r"t-\d, record 'hello' not acked after 0\.01 s: broker 1 refuses the connection \(NETWORK_EXCEPTION\); .*",
        str(refused.value),
    ), str(refused.value)


class _Silent(_NoListener):
    """The metadata is known once, and nobody answers after that."""

    was_asked = False

    async def metadata(self, topics: Iterable[str] | None = None, **_: Any) -> ClusterView:
        if self.was_asked:
            await asyncio.get_running_loop().create_future()
        self.was_asked = True
        return await super().metadata(topics)


def test_the_time_limit_holds_while_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raftwerk.cluster.client.producer._EXPLAINED_IN_S", 0.1)

    async def run() -> None:
        producer = Producer(_Silent(), "t", timeout_s=0.2)
        await producer.start()
        await producer.send([(b"k", b"hello")])

    with pytest.raises(RefusedError, match=r"not acked after 0\.2 s: broker 1 refuses the connection"):
        asyncio.run(asyncio.wait_for(run(), 30))


def test_a_record_that_is_too_large_is_named() -> None:
    ours, others = (
        next(bytes([byte]) for byte in range(32, 127) if (murmur2(bytes([byte])) & 0x7FFFFFFF) % 2 == partition)
        for partition in (0, 1)
    )
    taken, producer, error = send(ours + b"1", ours + b"x" * 300, ours + b"2", others + b"1", others + b"2")
    assert error is not None and "t-0, record '" in str(error) and "xxx...'" in str(error)
    assert taken == {0: [ours + b"1"], 1: [others + b"1", others + b"2"]}
    assert producer.acked == {0: 1, 1: 2}


def test_what_no_request_can_hold_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raftwerk.cluster.client.producer._REQUEST_BYTES", 150)
    taken, _, error = send(b"a" * 100)
    assert error is not None and "socket.request.max.bytes" in str(error)
    assert taken == {0: [], 1: []}


def test_what_a_send_waits_for_is_said_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("raftwerk.cluster.client.producer.NOTICE_AFTER_S", 0.01)

    async def run() -> None:
        producer = Producer(_NoListener(), "t", timeout_s=0.3)
        await producer.start()
        await producer.send([(bytes([number]), b"hello") for number in range(20)])

    with pytest.raises(RefusedError):
        asyncio.run(run())
    (said,) = caplog.messages
    assert re.fullmatch(r"t-\d: broker 1 refuses the connection; trying for up to 0\.3 s", said), said


class _CreatedAnew(_SmallBatches):
    """The topic is deleted and created again with one partition, before the second one takes a batch."""

    is_known = False

    async def metadata(self, topics: Iterable[str] | None = None, **_: Any) -> ClusterView:
        view, was_known = await super().metadata(topics), self.is_known
        self.is_known = True
        (topic,) = view.topics
        return view if not was_known else replace(view, topics=(replace(topic, partitions=topic.partitions[:1]),))

    async def request_node(
        self, node_id: int, api: ApiKey, version: int, fields: Mapping[str, Any], waits_for: WaitsFor | None = None
    ) -> Struct:
        await asyncio.sleep(0)
        row = {"error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "base_offset": -1, "error_message": None}
        return Struct({"responses": [Struct({"partition_responses": [Struct(row)]})]})


def test_a_partition_that_its_topic_no_longer_has_is_without_a_leader() -> None:
    async def run() -> None:
        producer = Producer(_CreatedAnew(), "t", timeout_s=0.2)
        await producer.start()
        await producer.send([(None, b"v")], partition=1)

    with pytest.raises(RefusedError, match=r"t-1, record 'v' not acked after 0\.2 s.*LEADER_NOT_AVAILABLE"):
        asyncio.run(asyncio.wait_for(run(), 10))
