"""The sum of all items of large requests has a bound, small requests do not wait for it, and all is given back."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from support.broker.broker_harness import TOPIC, FakeTransport, Harness, settle
from support.broker.group_harness import on_virtual_time

from raftwerk.broker.network import decoded_memory
from raftwerk.broker.network.decoded_memory import DecodedItems, DecodedMemory
from raftwerk.broker.network.request_memory import RequestMemory
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.errors import WireFormatError

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


def test_few_large_requests_have_their_items_in_memory_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoded_memory, "WAIT_MAX_S", 60)

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


class Requests:
    """Requests for memory of 100 MB, by name, and those that have begun."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.memory = DecodedMemory(100_000_000)

    def ask(self, name: str, size_bytes: int) -> DecodedItems:
        items = DecodedItems(self.memory, None, size_bytes, lambda _: self.begun.append(name))
        self.memory.decode(items)
        return items

    def hold(self, name: str, size_bytes: int, counted_bytes: int) -> DecodedItems:
        """It is decoded and not answered yet, as a JoinGroup that waits for other members."""
        items = self.ask(name, size_bytes)
        items.count(counted_bytes)
        items.settle()
        return items


def test_a_client_that_gives_up_while_its_request_waits_lets_the_next_ones_go_on() -> None:
    async def main() -> None:
        requests = Requests()
        requests.hold("parked", 70_000, 360)
        all_of_it = requests.ask("all", 4_000_000)
        requests.ask("next", 70_000)
        all_of_it.release()
        await settle()
        assert requests.begun == ["parked", "next"]

    on_virtual_time(main)


def test_a_request_that_has_waited_for_a_second_is_let_in_beside_the_others() -> None:
    """Otherwise one small request that waits for minutes would keep all large ones away."""

    async def main() -> None:
        requests = Requests()
        requests.hold("parked", 70_000, 360)
        first = requests.ask("first", 4_000_000)
        requests.ask("second", 4_000_000)
        await asyncio.sleep(0.9)
        assert requests.begun == ["parked"]
        await asyncio.sleep(0.2)
        assert requests.begun == ["parked", "first"], "one at a time"
        requests.ask("small", 60_000)
        assert requests.begun == ["parked", "first", "small"]
        await asyncio.sleep(10)
        assert requests.memory.used_bytes <= 2.125 * requests.memory.limit_bytes
        first.count(1_000)
        first.settle()
        await settle()
        assert requests.begun == ["parked", "first", "small", "second"], "the first one is small after all"

    on_virtual_time(main)


def test_a_request_that_was_let_in_and_is_large_keeps_others_out_until_it_is_answered() -> None:
    async def main() -> None:
        requests = Requests()
        requests.hold("parked", 70_000, 360)
        first = requests.ask("first", 4_000_000)
        requests.ask("second", 4_000_000)
        await asyncio.sleep(2)
        first.count(requests.memory.limit_bytes)
        first.settle()
        await asyncio.sleep(2)
        assert requests.begun == ["parked", "first"]
        first.release()
        await settle()
        assert requests.begun == ["parked", "first", "second"]

    on_virtual_time(main)


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


def test_a_forwarded_request_that_fails_after_its_client_has_gone_gives_its_memory_back() -> None:
    """The error answer would need its items, but nobody waits for it."""

    async def main() -> None:
        harness, decoded = make_harness()
        harness.controller.gate = asyncio.Event()
        topics = [{"name": f"t{n}", "num_partitions": 1, "replication_factor": 1} for n in range(100)]
        client = harness.connect()
        client.deliver(harness.frame(ApiKey.CREATE_TOPICS, 5, {"topics": topics, "timeout": 1000}))
        await settle()
        client.abort()
        await settle()
        harness.controller.gate.set()
        await settle(100)
        assert (decoded.used_bytes, harness.server.memory.used_bytes) == (0, 0)
        assert not harness.dispatcher._tasks

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


def test_requests_with_more_items_than_were_expected_of_them_do_not_use_more_than_twice_the_bound() -> None:
    async def main() -> None:
        requests = Requests()
        growing = [requests.ask(name, 1_000) for name in ("one", "two", "three")]
        for items in growing[:2]:
            items.count(90_000_000)
        with pytest.raises(WireFormatError, match=r"queued\.max\.request\.bytes"):
            growing[2].count(90_000_000)
        growing[0].release()
        growing[2].count(1)

    on_virtual_time(main)
