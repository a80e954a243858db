"""Produce requests for more partitions than one step of the event loop handles: same answers, same order, no wait."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from support.broker.broker_harness import TOPIC, TOPIC_ID, Harness, connection_of, make_image, run, settle, until
from support.broker.hosted_replicas import HostingHarness
from support.broker.large_requests import Attack

from raftwerk.broker.network.decoded_memory import DecodedMemory
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.produce import MAX_VERSION, MIN_VERSION
from raftwerk.wire.records import encode_batch

RECORDS = bytes(encode_batch([(b"k", b"v", [], 1)]))
TRANSACTIONAL = bytes(
    encode_batch([(b"k", b"v", [], 1)], producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
)
MANY = 1_000


def fields(topics: list[tuple[Any, list[int]]], version: int, acks: int = 1, records: bytes | None = RECORDS) -> Any:
    rows = [
        {
            ("topic_id" if version >= 13 else "name"): topic,
            "partition_data": [{"index": index, "records": records} for index in partitions],
        }
        for topic, partitions in topics
    ]
    return {"transactional_id": None, "acks": acks, "timeout_ms": 1000, "topic_data": rows}


def known(version: int) -> Any:
    return TOPIC_ID if version >= 13 else TOPIC


@pytest.mark.parametrize("version", [MIN_VERSION, 9, MAX_VERSION])
def test_each_partition_has_its_own_answer(version: int) -> None:
    async def main() -> None:
        harness = Harness(image=make_image(partitions=MANY))
        unknown: Any = UUID(int=77) if version >= 13 else "unknown"
        topics = [(unknown, [1]), (known(version), list(range(MANY + 300))), (unknown, list(range(300)))]
        answer = await harness.call(ApiKey.PRODUCE, version, fields(topics, version))
        first, middle, last = answer.responses
        code = ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert {row.error_code for topic in (first, last) for row in topic.partition_responses} == {code}
        rows = middle.partition_responses
        assert [row.index for row in rows] == list(range(MANY + 300))
        assert [row.base_offset for row in rows[:MANY]] == list(range(MANY))
        assert {row.error_code for row in rows[MANY:]} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert [key.partition for key, _ in harness.replicas.appended] == list(range(MANY))

    run(main())


@pytest.mark.parametrize("value_bytes", [1, 1_000])
def test_it_is_written_to_the_logs_in_frames_of_any_size(value_bytes: int) -> None:
    """Offsets are written into the batches; a frame that came in one read is a part of memory that is used again."""

    async def main() -> None:
        hosting = HostingHarness(300)
        await hosting.start()
        records = bytes(encode_batch([(None, bytes(value_bytes), [], 1)]))
        for offset in range(2):
            body = fields([(TOPIC, list(range(300)))], 9, records=records)
            answer = await hosting.harness.call(ApiKey.PRODUCE, 9, body)
            rows = [(row.error_code, row.base_offset) for row in answer.responses[0].partition_responses]
            assert rows == [(0, offset)] * 300

    run(main())


def test_it_does_not_hold_the_loop() -> None:
    async def main() -> None:
        harness = Harness(image=make_image(partitions=MANY))
        topics = [("unknown", list(range(50_000))), (TOPIC, list(range(MANY)) * 10)]
        await Attack(harness, ApiKey.PRODUCE, 9, fields(topics, 9)).run()
        many = [(f"unknown-{number}", [0]) for number in range(30_000)]
        await Attack(harness, ApiKey.PRODUCE, 9, fields(many, 9, records=None)).run()
        empty: list[tuple[Any, list[int]]] = [("", [])] * 300_000
        await Attack(harness, ApiKey.PRODUCE, 9, fields(empty, 9)).run()

    run(main(), 120)


def test_the_next_request_of_the_connection_is_carried_out_after_it() -> None:
    async def main() -> None:
        harness = Harness(image=make_image(partitions=MANY))
        client = harness.connect()
        large = harness.frame(ApiKey.PRODUCE, 9, fields([(TOPIC, list(range(MANY)))], 9))
        client.deliver(large + harness.frame(ApiKey.PRODUCE, 9, fields([(TOPIC, [MANY - 1])], 9)))
        await until(lambda: len(client.frames()) == 2)
        assert [key.partition for key, _ in harness.replicas.appended] == [*range(MANY), MANY - 1]

    run(main())


def test_it_is_answered_when_all_parts_are_committed() -> None:
    async def main() -> None:
        harness = Harness(image=make_image(partitions=MANY))
        harness.replicas.hold = True
        client = harness.connect()
        client.deliver(harness.frame(ApiKey.PRODUCE, 9, fields([(TOPIC, list(range(MANY)))], 9, acks=-1)))
        await until(lambda: len(harness.replicas.appended) == MANY)
        *parts, last = harness.replicas.held
        assert len(parts) >= 3
        for done in parts:
            done()
        await settle()
        assert not client.frames()
        last()
        await until(client.frames)

    run(main())


def test_without_acks_nothing_is_answered_and_an_error_closes_the_connection() -> None:
    async def main() -> None:
        harness = Harness(image=make_image(partitions=MANY))
        client = harness.connect()
        client.deliver(harness.frame(ApiKey.PRODUCE, 9, fields([(TOPIC, list(range(MANY)))], 9, acks=0)))
        client.deliver(harness.frame(ApiKey.API_VERSIONS, 0, {}))
        await until(client.frames)
        assert len(client.frames()) == 1 and len(harness.replicas.appended) == MANY
        client.deliver(harness.frame(ApiKey.PRODUCE, 9, fields([(TOPIC, list(range(MANY + 1)))], 9, acks=0)))
        await until(lambda: client.closing)
        assert len(client.frames()) == 1

    run(main())


def test_without_acks_the_client_may_end_the_connection_once_it_is_sent() -> None:
    async def main() -> None:
        harness = Harness(image=make_image(partitions=MANY))
        client = harness.connect()
        client.deliver(harness.frame(ApiKey.PRODUCE, 9, fields([(TOPIC, list(range(MANY)))], 9, acks=0)))
        if not connection_of(client).eof_received():  # as asyncio does then
            client.close()
        await until(lambda: client.closing)
        assert [key.partition for key, _ in harness.replicas.appended] == list(range(MANY))

    run(main())


def test_large_batches_take_no_memory_for_items_and_do_not_wait_for_that() -> None:
    """A second passes before a request that wants all of the memory is let in beside others, such as parked fetches."""

    async def main() -> None:
        harness = Harness(image=make_image(partitions=MANY))
        client = harness.connect()
        connection_of(client).memory.decoded.change(100_000)
        records = bytes(encode_batch([(None, bytes(30_000), [], 1)]))
        client.deliver(harness.frame(ApiKey.PRODUCE, 9, fields([(TOPIC, list(range(300)))], 9, records=records)))
        await settle(200)
        assert client.frames()

    run(main())


def test_requests_that_are_refused_as_a_whole_append_nothing() -> None:
    async def main() -> None:
        harness = Harness(image=make_image(partitions=MANY))
        topics = [(TOPIC, list(range(MANY)))]
        answer = await harness.call(ApiKey.PRODUCE, 9, fields(topics, 9, acks=2))
        codes = {row.error_code for row in answer.responses[0].partition_responses}
        assert codes == {ErrorCode.INVALID_REQUIRED_ACKS}
        answer = await harness.call(ApiKey.PRODUCE, 9, fields(topics, 9, records=TRANSACTIONAL))
        codes = {row.error_code for row in answer.responses[0].partition_responses}
        assert codes == {ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
        assert not harness.replicas.appended

    run(main())


def test_a_failed_append_is_told_for_its_partitions() -> None:
    async def main() -> None:
        harness = Harness(image=make_image(partitions=MANY))
        harness.replicas.fail_with = ValueError("a fault")
        answer = await harness.call(ApiKey.PRODUCE, 9, fields([("unknown", [0]), (TOPIC, list(range(MANY)))], 9))
        unknown, rows = (topic.partition_responses for topic in answer.responses)
        assert {row.error_code for row in rows} == {ErrorCode.UNKNOWN_SERVER_ERROR} and len(rows) == MANY
        assert unknown[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(main())


def test_its_partitions_count_towards_the_memory_for_requests() -> None:
    async def main() -> None:
        harness = Harness()
        harness.server.memory.decoded = DecodedMemory(1 << 20)
        client = harness.connect()
        client.deliver(harness.frame(ApiKey.PRODUCE, 9, fields([("unknown", list(range(10_000)))], 9, records=None)))
        await until(lambda: client.closing)
        assert not client.frames() and harness.server.memory.decoded.used_bytes == 0

    run(main())
