"""Requests with more items than any client needs: nobody waits behind one, and each gets the answer of a small one."""

from __future__ import annotations

import asyncio
import gc
import random
import struct
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest
from support.broker.broker_harness import TOPIC, Harness, settle
from support.broker.large_requests import Attack

from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.records import encode_batch

MIB = 1024 * 1024


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(coroutine, 120))


@pytest.fixture(autouse=True)
def no_garbage_collection() -> Iterator[None]:
    """Collections of the whole test process are not the broker's work."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_parts_of_large_requests_are_read_in_later_iterations_while_others_are_served() -> None:
    async def main() -> None:
        harness = Harness()
        part = struct.pack(">i", 8 * MIB) + bytes(2 * MIB)
        attackers = [harness.connect() for _ in range(30)]
        for attacker in attackers:
            attacker.deliver(part, chunk=2 * MIB)
        left = [len(attacker.backlog) for attacker in attackers]
        assert 30 * len(part) - sum(left) <= 20 * MIB
        neighbour = harness.connect()
        neighbour.deliver(harness.frame(ApiKey.API_VERSIONS, 0, {}))
        await settle(2)
        assert len(neighbour.frames()) == 1
        await settle(100)
        assert not any(attacker.backlog for attacker in attackers)

    run(main())


def test_a_very_large_request_arrives_whole() -> None:
    async def main() -> None:
        harness = Harness()
        client = harness.connect()
        records = bytes(encode_batch([(None, random.Random(1).randbytes(5 * MIB), [], 1)]))
        partitions = [{"index": 0, "records": records}]
        fields = {"acks": 1, "timeout": 1000, "topic_data": [{"name": TOPIC, "partition_data": partitions}]}
        client.deliver(harness.frame(ApiKey.PRODUCE, 9, fields), chunk=1 << 30)
        await settle(100)
        assert len(client.frames()) == 1
        assert [len(batches) for _, batches in harness.replicas.appended] == [len(records)]
        assert harness.server.memory.used_bytes == 0

    run(main())


def test_metadata_of_100_000_empty_names_is_answered_with_one_row() -> None:
    async def main() -> None:
        fields = {"topics": [{"name": ""}] * 100_000, "allow_auto_topic_creation": True}
        attack = Attack(Harness(), ApiKey.METADATA, 5, fields)
        answer = await attack.run()
        assert [(row.name, row.error_code) for row in answer.topics] == [("", ErrorCode.INVALID_TOPIC_EXCEPTION)]

    run(main())


@pytest.mark.parametrize("version", [5, 12])
def test_metadata_of_many_unknown_topics_is_answered_in_steps(version: int) -> None:
    async def main() -> None:
        harness = Harness()
        names = [f"unknown-{n}" for n in range(20_000)]
        fields = {"topics": [{"name": name} for name in names], "allow_auto_topic_creation": False}
        attack = Attack(harness, ApiKey.METADATA, version, fields)
        answer = await attack.run()
        assert [row.name for row in answer.topics] == names
        assert {row.error_code for row in answer.topics} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert attack.iterations > 100

    run(main())


def test_a_known_topic_among_many_is_described() -> None:
    async def main() -> None:
        harness = Harness()
        names = [*(f"unknown-{n}" for n in range(2_000)), TOPIC]
        fields = {"topics": [{"name": name} for name in names], "allow_auto_topic_creation": False}
        answer = await Attack(harness, ApiKey.METADATA, 8, fields).run()
        (alone,) = (await harness.call(ApiKey.METADATA, 8, {"topics": [{"name": TOPIC}]})).topics
        assert answer.topics[-1] == alone

    run(main())


def test_a_large_malformed_request_closes_its_connection_only() -> None:
    async def main() -> None:
        harness = Harness()
        attacker, neighbour = harness.connect(), harness.connect()
        attacker.deliver(
            harness.frame(ApiKey.METADATA, 5, (10_000).to_bytes(4, "big") + bytes(19_000) + b"\xff" * 2_000)
        )
        await settle(200)
        assert attacker.closing
        neighbour.deliver(harness.frame(ApiKey.API_VERSIONS, 0, {}))
        assert len(neighbour.frames()) == 1
        assert not harness.fatal

    run(main())


def test_a_connection_that_ends_ends_the_work_of_its_request() -> None:
    async def main() -> None:
        harness = Harness()
        attacker = harness.connect()
        fields = {"topics": [{"name": f"t{n}"} for n in range(20_000)]}
        attacker.deliver(harness.frame(ApiKey.METADATA, 5, fields), chunk=1 << 20)
        await settle(3)
        attacker.abort()
        await settle(3_000)
        assert not harness.dispatcher._tasks

    run(main())


def fetch_fields(version: int, rows: list[tuple[str, list[int]]], epoch: int = -1) -> dict[str, Any]:
    topics = [
        {"topic": name, "partitions": [{"partition": n, "fetch_offset": 0, "partition_max_bytes": 1} for n in numbers]}
        for name, numbers in rows
    ]
    fields = {"replica_id": -1, "max_wait": 10, "min_bytes": 1, "max_bytes": 1000, "topics": topics}
    return fields | ({"session_epoch": epoch} if version >= 7 else {})


@pytest.mark.parametrize("version", [4, 12])
@pytest.mark.parametrize("topics", [1, 40_000])
def test_a_fetch_of_40_000_unknown_partitions_is_answered_in_steps(version: int, topics: int) -> None:
    async def main() -> None:
        rows = [("unknown", list(range(40_000)))] if topics == 1 else [(f"t{n}", [0]) for n in range(topics)]
        attack = Attack(Harness(), ApiKey.FETCH, version, fetch_fields(version, rows))
        answer = await attack.run()
        found = [(topic.topic, [row.partition_index for row in topic.partitions]) for topic in answer.responses]
        assert found == rows
        codes = {row.error_code for topic in answer.responses for row in topic.partitions}
        assert codes == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}

    run(main())


@pytest.mark.parametrize("version", [4, 12])
def test_a_partition_that_is_fetched_40_000_times_in_one_request_is_read_once(version: int) -> None:
    async def main() -> None:
        harness = Harness()
        answer = await Attack(harness, ApiKey.FETCH, version, fetch_fields(version, [(TOPIC, [0] * 40_000)])).run()
        alone = await harness.call(ApiKey.FETCH, version, fetch_fields(version, [(TOPIC, [0])]))
        assert answer.responses == alone.responses

    run(main())


def test_known_partitions_of_a_large_fetch_are_read_and_no_session_forgets_the_others() -> None:
    async def main() -> None:
        rows = [(TOPIC, [0, 5_000]), ("unknown", list(range(5_000)))]
        answer = await Attack(Harness(), ApiKey.FETCH, 12, fetch_fields(12, rows, epoch=0)).run()
        assert answer.session_id == 0
        found = {
            (topic.topic, row.partition_index): row.error_code for topic in answer.responses for row in topic.partitions
        }
        assert found.pop((TOPIC, 0)) == 0
        assert len(found) == 5_001
        assert set(found.values()) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}

    run(main())


def test_the_settings_of_one_topic_2_000_times_are_described_in_steps() -> None:
    async def main() -> None:
        resource = {"resource_type": 2, "resource_name": TOPIC, "configuration_keys": None}
        attack = Attack(Harness(), ApiKey.DESCRIBE_CONFIGS, 4, {"resources": [resource] * 2_000})
        answer = await attack.run()
        assert len(answer.results) == 2_000
        assert answer.results[0] == answer.results[-1]

    run(main())
