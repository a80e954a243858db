"""The sum of all items of large requests has a bound, small requests do not wait for it, and all is given back."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from support.broker.broker_harness import TOPIC, FakeTransport, Harness, settle

from raftwerk.broker.network.decoded_memory import DecodedMemory
from raftwerk.broker.network.request_memory import RequestMemory
from raftwerk.wire.api_keys import ApiKey

MIB = 1024 * 1024
LIMIT_BYTES = 16 * MIB


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(coroutine, 60))


def make_harness() -> tuple[Harness, DecodedMemory]:
    harness = Harness()
    harness.server.memory = RequestMemory(LIMIT_BYTES, 8 * MIB)
    return harness, harness.server.memory.decoded


def list_offsets(harness: Harness, items: int) -> bytes:
    rows = [{"partition_index": index, "timestamp": -1} for index in range(items)]
    fields = {"replica_id": -1, "topics": [{"name": TOPIC, "partitions": rows}]}
    return harness.frame(ApiKey.LIST_OFFSETS, 1, fields)


def attack(harness: Harness, connections: int) -> list[FakeTransport]:
    """Each sends a request of 120 KB whose items take 3.6 MB."""
    frame = list_offsets(harness, 10_000)
    clients = [harness.connect() for _ in range(connections)]
    for client in clients:
        client.deliver(frame, chunk=1 << 20)
    return clients


def test_few_large_requests_have_their_items_in_memory_at_a_time() -> None:
    async def main() -> None:
        harness, decoded = make_harness()
        clients = attack(harness, 30)
        most = 0
        while not all(client.frames() for client in clients):
            most = max(most, decoded.used_bytes)
            await asyncio.sleep(0)
        assert LIMIT_BYTES // 2 < most <= LIMIT_BYTES
        assert decoded.used_bytes == 0 and harness.server.memory.used_bytes == 0

    run(main())


def test_a_small_request_does_not_wait_behind_large_ones() -> None:
    async def main() -> None:
        harness, _ = make_harness()
        clients = attack(harness, 30)
        neighbour = harness.connect()
        neighbour.deliver(list_offsets(harness, 500))
        await settle(40)
        assert len(neighbour.frames()) == 1
        assert not any(client.frames() for client in clients[10:])

    run(main())


def test_closed_connections_give_their_memory_back() -> None:
    async def main() -> None:
        harness, decoded = make_harness()
        clients = attack(harness, 30)
        await settle(3)
        for client in clients:
            client.close()
        await settle(50)
        assert decoded.used_bytes == 0 and harness.server.memory.used_bytes == 0
        client = attack(harness, 1)[0]
        await settle(800)
        assert len(client.frames()) == 1

    run(main())


def test_a_request_with_more_items_than_the_bound_allows_is_refused() -> None:
    async def main() -> None:
        harness, decoded = make_harness()
        client = harness.connect()
        client.deliver(list_offsets(harness, 60_000), chunk=1 << 20)
        await settle(50)
        assert client.closing and not client.frames()
        assert decoded.used_bytes == 0 and harness.server.memory.used_bytes == 0

    run(main())
