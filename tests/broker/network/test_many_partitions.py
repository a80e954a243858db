"""Fetches of as many partitions as a large cluster has: nothing holds the loop, and nobody waits."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator

import pytest
from support.broker.broker_harness import TOPIC, settle
from support.broker.hosted_replicas import FETCH_VERSION, NEW_SESSION, NO_SESSION, HostingHarness, fetch_body
from support.broker.large_requests import ITERATION_S_MAX, Attack
from support.isr.replicas import batch
from support.processor_speed import times_slower

from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.types import TopicPartition

PARTITIONS = 10_000


@pytest.fixture(autouse=True)
def no_garbage_collection() -> Iterator[None]:
    """Collections of the whole test process are not the broker's work."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def attack(hosting: HostingHarness, body: bytes) -> Attack:
    return Attack(hosting.harness, ApiKey.FETCH, FETCH_VERSION, body)


def test_fetches_of_all_partitions_are_handled_in_steps() -> None:
    async def main() -> None:
        hosting = HostingHarness(PARTITIONS)
        await hosting.start()
        for session, wait_ms in ((NO_SESSION, 0), (NO_SESSION, 50), (NEW_SESSION, 0)):
            answer = await attack(hosting, fetch_body(PARTITIONS, session, wait_ms)).run()
            rows = [(row.partition_index, row.error_code) for row in answer.responses[0].partitions]
            assert rows == [(index, 0) for index in range(PARTITIONS)]
        session_id = answer.session_id
        append(hosting, 7)
        answer = await attack(hosting, fetch_body(0, (session_id, 1))).run()
        assert [row.partition_index for row in answer.responses[0].partitions] == [7]
        answer = await attack(hosting, fetch_body(PARTITIONS // 2, (session_id, 2))).run()
        assert [row.partition_index for row in answer.responses[0].partitions] == [7]

    asyncio.run(asyncio.wait_for(main(), 120))


def test_fetches_of_many_topics_without_partitions_are_handled_in_steps() -> None:
    async def main() -> None:
        hosting = HostingHarness(1)
        topics = [{"topic": str(number), "partitions": []} for number in range(300_000)]
        fields = {"max_wait": 0, "min_bytes": 1, "topics": topics}
        answer = await Attack(hosting.harness, ApiKey.FETCH, 12, fields).run()
        assert not answer.responses

    asyncio.run(asyncio.wait_for(main(), 120))


def append(hosting: HostingHarness, partition: int) -> None:
    hosting.manager.append(1, 1000, [(TopicPartition(TOPIC, partition), batch())], lambda rows: None)


def test_fetches_that_wait_for_many_partitions_are_answered_in_steps() -> None:
    async def main() -> None:
        hosting = HostingHarness(PARTITIONS)
        await hosting.start()
        harness = hosting.harness
        frame = harness.frame(ApiKey.FETCH, FETCH_VERSION, fetch_body(PARTITIONS, NO_SESSION, 60_000))
        clients = [harness.connect() for _ in range(5)]
        for client in clients:
            client.deliver(frame, chunk=1 << 20)
        await settle(2000)
        purgatory = hosting.manager.purgatory
        assert purgatory.sizes() == (0, len(clients))
        clients.pop().close()
        began = time.thread_time()
        append(hosting, PARTITIONS - 1)
        longest_s = time.thread_time() - began
        while not all(client.frames() for client in clients):
            began = time.thread_time()
            await asyncio.sleep(0)
            longest_s = max(longest_s, time.thread_time() - began)
        await settle(2000)
        assert longest_s < ITERATION_S_MAX * times_slower()
        assert purgatory.sizes() == (0, 0)
        append(hosting, 0)  # nobody is listed any more

    asyncio.run(asyncio.wait_for(main(), 120))


def test_a_fetch_that_waits_for_records_holds_no_memory_of_requests() -> None:
    """It waits for as long as its client says, which may be days; large requests of others wait for that memory."""

    async def main() -> None:
        hosting = HostingHarness(2_000)
        await hosting.start()
        client = hosting.harness.connect()
        body = fetch_body(2_000, NO_SESSION, 2**31 - 1)
        client.deliver(hosting.harness.frame(ApiKey.FETCH, FETCH_VERSION, body))
        await settle(500)
        memory = hosting.harness.server.memory
        assert hosting.manager.purgatory.sizes() == (0, 1)
        assert (memory.used_bytes, memory.decoded.used_bytes) == (0, 0)
        append(hosting, 1_999)
        await settle(500)
        assert client.frames() and (memory.used_bytes, memory.decoded.used_bytes) == (0, 0)

    asyncio.run(asyncio.wait_for(main(), 120))


def test_the_high_watermarks_of_many_partitions_are_collected_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        hosting = HostingHarness(2_000)
        await hosting.start()
        append(hosting, 7)
        written: list[dict[TopicPartition, int]] = []
        logs = hosting.manager._logs
        monkeypatch.setattr(
            logs, "write_high_watermarks_soon", lambda: written.append(dict(logs.directories.high_watermarks))
        )
        for _ in range(2):
            hosting.manager.checkpoint_high_watermarks()
            assert not written
        await settle(20)
        assert written == [{TopicPartition(TOPIC, index): int(index == 7) for index in range(2_000)}]
        hosting.manager.checkpoint_high_watermarks()
        await hosting.manager.stop()
        await settle(20)
        assert len(written) == 1

    asyncio.run(asyncio.wait_for(main(), 120))
