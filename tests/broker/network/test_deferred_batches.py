"""Batches that wait for a thread: their memory has a bound over all connections, and connections take turns."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import pytest
from support.broker.broker_harness import TOPIC, FakeTransport, connection_of, correlation_ids, decode_answer, settle
from support.broker.hosted_replicas import HostingHarness
from support.isr.manual_threads import OneThread
from support.isr.replicas import WALL_MS

from raftwerk.broker.network import connection
from raftwerk.broker.network.request_memory import RequestMemory
from raftwerk.isr.ports import AppendCaller
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.compression import Compression
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.produce import PARTITION_BYTES, PARTITIONS_PER_STEP
from raftwerk.wire.records import encode_batch

MIB = 1024 * 1024
LIMIT_BYTES = 4 * MIB
VERSION = 9
SMALL_BYTES = 20_000
LARGE_BYTES = 100_000


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(coroutine, 60))


class Clients:
    """Connections to a broker whose thread does one work when the test says so."""

    def __init__(self) -> None:
        self.thread = OneThread()
        self.hosting = HostingHarness(2, self.thread)
        self.memory = self.hosting.harness.server.memory = RequestMemory(LIMIT_BYTES, MIB)

    def connect(self) -> FakeTransport:
        return self.hosting.harness.connect()

    def records(self, size_bytes: int) -> bytes:
        """A batch of about this size; decompressed, it is too large for the event loop."""
        value = random.Random(1).randbytes(size_bytes) + bytes(300_000)
        return bytes(encode_batch([(None, value, (), WALL_MS)], compression=Compression.ZSTD))

    def frame(self, size_bytes: int = SMALL_BYTES, partition: int = 0) -> bytes:
        """A Produce of such a batch."""
        return self.frame_of([{"index": partition, "records": self.records(size_bytes)}])

    def frame_of(self, partitions: Sequence[Mapping[str, Any]]) -> bytes:
        """A Produce of these rows of partitions."""
        fields = {"acks": 1, "timeout": 1000, "topic_data": [{"name": TOPIC, "partition_data": partitions}]}
        return self.hosting.harness.frame(ApiKey.PRODUCE, VERSION, fields)

    async def do_all(self) -> None:
        while self.thread.left:
            self.thread.do_one()
            await settle()


def results(client: FakeTransport) -> list[tuple[int, int]]:
    """Error code and base offset of each answer."""
    found = []
    for frame in client.frames():
        row = decode_answer(ApiKey.PRODUCE, VERSION, frame).responses[0].partition_responses[0]
        found.append((row.error_code, row.base_offset))
    return found


async def with_clients() -> Clients:
    clients = Clients()
    await clients.hosting.start()
    return clients


def test_a_connection_is_not_read_while_half_of_the_memory_waits() -> None:
    async def main() -> None:
        clients = await with_clients()
        client = clients.connect()
        one = clients.frame()
        client.deliver(b"".join([one, *(clients.frame() for _ in range(299))]))
        await settle(500)
        assert not client.reading
        assert LIMIT_BYTES / 2 - len(one) < clients.memory.used_bytes < LIMIT_BYTES / 2 + len(one)
        most = 0
        while clients.thread.left:
            clients.thread.do_one()
            await settle()
            most = max(most, clients.memory.used_bytes)
        assert most < LIMIT_BYTES / 2 + len(one)
        assert results(client) == [(0, offset) for offset in range(300)]
        assert correlation_ids(client) == sorted(correlation_ids(client))
        assert clients.memory.used_bytes == 0 and client.reading

    run(main())


def test_a_connection_is_not_read_beyond_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "DEFERRED_BYTES_MAX", 100_000)

    async def main() -> None:
        clients = await with_clients()
        client, neighbour = clients.connect(), clients.connect()
        client.deliver(b"".join(clients.frame() for _ in range(50)))
        await settle(100)
        assert not client.reading
        assert 100_000 <= clients.memory.used_bytes < 100_000 + 2 * SMALL_BYTES
        neighbour.deliver(clients.frame(partition=1))
        await settle()
        waiting = clients.thread.left
        clients.thread.do_one()
        await settle()
        assert clients.thread.left == waiting
        await clients.do_all()
        assert results(client) == [(0, offset) for offset in range(50)]

    run(main())


@pytest.mark.parametrize("partition", [0, 1])
def test_a_neighbours_batch_is_done_after_one_of_each_other_connection(partition: int) -> None:
    async def main() -> None:
        clients = await with_clients()
        others, neighbour = [clients.connect() for _ in range(3)], clients.connect()
        for other in others:
            other.deliver(b"".join(clients.frame() for _ in range(10)))
        await settle(50)
        neighbour.deliver(clients.frame(partition=partition))
        await settle()
        assert clients.thread.left == 31
        for _ in range(len(others) + 1):
            clients.thread.do_one()
            await settle()
        assert [code for code, _ in results(neighbour)] == [0]
        assert [len(other.frames()) for other in others] == [1, 1, 1]
        await clients.do_all()
        assert [len(other.frames()) for other in others] == [10, 10, 10]

    run(main())


def test_batches_of_many_connections_stay_below_the_bound() -> None:
    async def main() -> None:
        clients = await with_clients()
        bound_bytes = LIMIT_BYTES + LIMIT_BYTES // 8
        crowd = [clients.connect() for _ in range(bound_bytes // SMALL_BYTES + 20)]
        frame = clients.frame()
        for client in crowd:
            client.deliver(frame)
        await settle(500)
        assert bound_bytes - len(frame) < clients.memory.used_bytes <= bound_bytes
        await clients.do_all()
        codes = [code for client in crowd for code, _ in results(client)]
        assert len(codes) == len(crowd) and 20 <= codes.count(ErrorCode.NOT_ENOUGH_REPLICAS) < 30
        assert clients.memory.used_bytes == 0
        crowd[-1].deliver(frame)
        await settle()
        await clients.do_all()
        assert results(crowd[-1])[-1][0] == 0

    run(main())


def test_the_memory_of_batches_whose_connections_end_counts_until_they_are_appended() -> None:
    async def main() -> None:
        clients = await with_clients()
        for size_bytes in (SMALL_BYTES, LARGE_BYTES):
            client = clients.connect()
            client.deliver(clients.frame(size_bytes))
            await settle()
            used_bytes = clients.memory.used_bytes
            assert used_bytes >= size_bytes
            connection_of(client).abort()
            await settle()
            assert clients.memory.used_bytes == used_bytes
            await clients.do_all()
            assert clients.memory.used_bytes == 0

    run(main())


def test_a_request_for_many_partitions_counts_until_its_answer_also_when_one_of_its_parts_has_waited() -> None:
    async def main() -> None:
        clients = await with_clients()
        client, many = clients.connect(), 2 * PARTITIONS_PER_STEP
        rows = [{"index": 1, "records": bytes(encode_batch([(None, b"v", (), WALL_MS)]))}] * many
        rows[0] = rows[-1] = {"index": 0, "records": clients.records(LARGE_BYTES)}
        client.deliver(clients.frame_of(rows))
        await settle(50)
        assert clients.thread.left == 2
        memory, items_bytes = clients.memory, many * PARTITION_BYTES
        assert memory.used_bytes >= 2 * LARGE_BYTES, "the two copies, as the frame is not needed any more"
        clients.thread.do_one()
        await settle()
        assert not client.frames(), "its last part waits"
        assert memory.used_bytes >= LARGE_BYTES and memory.decoded.used_bytes >= items_bytes
        await clients.do_all()
        assert [code for code, _ in results(client)] == [0]
        assert clients.memory.used_bytes == clients.memory.decoded.used_bytes == 0

    run(main())


def test_reading_goes_on_when_batches_are_appended_although_they_are_not_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "DEFERRED_BYTES_MAX", SMALL_BYTES)

    async def main() -> None:
        clients = await with_clients()
        client = clients.connect()
        releases: list[Callable[[], None] | None] = []

        def append(acks: int, timeout_ms: int, entries: object, done: object, *, caller: AppendCaller) -> None:
            releases.append(caller.defer(SMALL_BYTES))

        clients.hosting.harness.replicas.append = append  # type: ignore[method-assign, assignment]
        client.deliver(clients.frame() + clients.frame())
        await settle()
        assert len(releases) == 1 and not client.reading
        release = releases[0]
        assert release is not None
        release()
        await settle()
        assert len(releases) == 2

    run(main())
