"""Produce and Fetch beyond a quota: answered at once, and the connection is not read for the throttle time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.broker.broker_harness import (
    TOPIC,
    FakeTransport,
    Harness,
    connection_of,
    decode_answer,
    run,
    settle,
    until,
)

from raftwerk.controller.metadata.metadata_image import MetadataDelta
from raftwerk.controller.metadata.metadata_records import ClientQuotaRecord
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.codec import Struct
from raftwerk.wire.records import encode_batch

BATCH = bytes(encode_batch([(None, b"v" * 1000, [], 1)]))
TWICE = [0, pytest.approx(10_000, abs=2_000)]
"""Throttle times of two requests, of which each uses what ten seconds give. It is less by the time in between."""
BY_TEST = (("client-id", "test"),)


def set_quota(harness: Harness, key: str, value: float | None, entity: Any = BY_TEST) -> None:
    delta = MetadataDelta()
    harness.image.replay(ClientQuotaRecord(entity, key, value), harness.image.offset + 1, delta)
    harness.quotas.on_metadata(harness.image, delta)


def produce(acks: int = 1) -> dict[str, Any]:
    rows = [{"index": 0, "records": BATCH}]
    return {"acks": acks, "timeout": 1000, "topic_data": [{"name": TOPIC, "partition_data": rows}]}


def fetch(**more: Any) -> dict[str, Any]:
    rows = [{"partition": 0, "current_leader_epoch": -1, "fetch_offset": 0, "partition_max_bytes": 1 << 20}]
    base = {"replica_id": -1, "max_wait": 5, "min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": 0}
    return base | {"session_id": 0, "session_epoch": -1, "topics": [{"topic": TOPIC, "partitions": rows}]} | more


def answers(key: ApiKey, version: int, transport: FakeTransport) -> list[Struct]:
    return [decode_answer(key, version, frame) for frame in transport.frames()]


def test_produce_beyond_the_quota() -> None:
    async def main() -> None:
        harness = Harness()
        transport = harness.connect()
        one = harness.frame(ApiKey.PRODUCE, 9, produce())
        set_quota(harness, "producer_byte_rate", (len(one) - 4) / 10)
        began = asyncio.get_running_loop().time()
        transport.deliver(one * 3)
        await settle()
        assert [answer.throttle_time for answer in answers(ApiKey.PRODUCE, 9, transport)] == TWICE
        assert len(harness.replicas.appended) == 2
        set_quota(harness, "producer_byte_rate", None)
        other = harness.connect()
        other.deliver(one)
        await settle()
        assert len(other.frames()) == 1
        assert len(transport.frames()) == 2, "no longer limited, but its connection still waits"
        assert asyncio.get_running_loop().time() - began < 9

    run(main())


@pytest.mark.parametrize("acks", [0, 1])
def test_the_connection_is_read_again_after_the_throttle_time(acks: int) -> None:
    async def main() -> None:
        harness = Harness()
        transport = harness.connect()
        one = harness.frame(ApiKey.PRODUCE, 9, produce(acks))
        set_quota(harness, "producer_byte_rate", (len(one) - 4) / 10.05)
        began = asyncio.get_running_loop().time()
        transport.deliver(one * 2)
        await settle()
        assert len(harness.replicas.appended) == 1
        await until(lambda: len(harness.replicas.appended) == 2)
        assert asyncio.get_running_loop().time() - began >= 0.045
        assert not transport.is_closing()

    run(main())


def test_fetch_beyond_the_quota() -> None:
    async def main() -> None:
        harness = Harness()
        harness.replicas.records[f"{TOPIC}-0"] = BATCH
        transport = harness.connect()
        one = harness.frame(ApiKey.FETCH, 12, fetch())
        set_quota(harness, "consumer_byte_rate", len(BATCH) / 10)
        transport.deliver(one * 3)
        await settle()
        found = answers(ApiKey.FETCH, 12, transport)
        assert [answer.throttle_time for answer in found] == TWICE
        assert [bytes(answer.responses[0].partitions[0].records) for answer in found] == [BATCH] * 2

    run(main())


def test_followers_and_other_clients_are_not_throttled() -> None:
    async def main() -> None:
        harness = Harness()
        harness.replicas.records[f"{TOPIC}-0"] = BATCH
        set_quota(harness, "consumer_byte_rate", 1)
        transport = harness.connect()
        transport.deliver(harness.frame(ApiKey.FETCH, 12, fetch(replica_id=2)) * 2)
        transport.deliver(harness.frame(ApiKey.FETCH, 12, fetch(), "another") * 2)
        await settle()
        assert [answer.throttle_time for answer in answers(ApiKey.FETCH, 12, transport)] == [0] * 4

    run(main())


def test_one_answer_is_not_larger_than_the_quota_of_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        harness = Harness()
        asked: list[int] = []
        read = harness.replicas.fetch

        def note(params: Any, *rest: Any) -> Any:
            asked.append(params.max_bytes)
            return read(params, *rest)

        monkeypatch.setattr(harness.replicas, "fetch", note)
        for value in (5000, 0.001, 10**9):
            set_quota(harness, "consumer_byte_rate", value)
            transport = harness.connect()
            transport.deliver(harness.frame(ApiKey.FETCH, 12, fetch()))
            await settle()
        assert asked == [50_000, 1, 1 << 20]

    run(main())


def test_the_longest_delay_of_a_connection_counts() -> None:
    async def main() -> None:
        harness = Harness()
        transport = harness.connect()
        for seconds in (0.02, 0.06, 0.001):
            transport.protocol.delay(seconds)
        began = asyncio.get_running_loop().time()
        transport.deliver(harness.frame(ApiKey.PRODUCE, 9, produce()))
        await until(transport.frames)
        assert asyncio.get_running_loop().time() - began >= 0.05
        transport.protocol.delay(60)
        transport.close()
        await settle()
        transport.protocol.delay(60)

    run(main())


def limited(batch: bytes) -> dict[str, Any]:
    return produce() | {"topic_data": [{"name": TOPIC, "partition_data": [{"index": 0, "records": batch}]}]}


def test_a_throttled_connection_is_not_read_and_its_requests_take_no_memory() -> None:
    """Clients without a quota have the memory for large requests, however many others are throttled."""

    async def main() -> None:
        harness = Harness()
        memory = harness.server.memory
        large = bytes(encode_batch([(None, b"v" * 90_000, [], 1)]))
        one = harness.frame(ApiKey.PRODUCE, 9, limited(large))
        set_quota(harness, "producer_byte_rate", (len(BATCH) - 4) / 10.05)
        transport = harness.connect()
        transport.deliver(harness.frame(ApiKey.PRODUCE, 9, produce()))
        await settle()
        assert len(transport.frames()) == 1 and not transport.reading
        transport.deliver(one)
        await settle()
        assert memory.used_bytes == 0
        await until(lambda: len(transport.frames()) == 2)
        assert memory.used_bytes == 0

    run(main())


def test_a_large_request_of_which_a_part_was_read_before_the_delay_is_read_to_its_end() -> None:
    async def main() -> None:
        harness = Harness()
        large = bytes(encode_batch([(None, b"v" * 90_000, [], 1)]))
        one = harness.frame(ApiKey.PRODUCE, 9, limited(large))
        transport = harness.connect()
        transport.deliver(one[:50_000])
        connection_of(transport).delay(0.02)
        assert transport.reading, "it has its memory, and is not to be taken for one that does not arrive"
        transport.deliver(one[50_000:])
        assert not transport.reading and not transport.frames()
        await until(transport.frames)
        assert transport.reading

    run(main())


def test_a_client_that_has_closed_its_side_is_closed_after_the_delay() -> None:
    async def main() -> None:
        harness = Harness()
        transport = harness.connect()
        transport.protocol.delay(0.02)
        transport.reading = True  # as it was before the delay
        transport.deliver(harness.frame(ApiKey.PRODUCE, 9, produce(acks=0)))
        assert connection_of(transport).eof_received() is True
        await until(lambda: transport.closing)
        assert len(harness.replicas.appended) == 1

    run(main())
