"""Channels to other brokers: one connection each, made again after a loss, closed when the broker is fenced."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from support.broker.broker_harness import make_image
from support.broker.group_harness import on_virtual_time

from raftwerk.broker.to_brokers.broker_channels import BrokerChannels
from raftwerk.controller.metadata.metadata_image import MetadataDelta
from raftwerk.controller.metadata.metadata_records import BrokerChangeRecord
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.client import Connection, RequestTimedOutError


class FakeTransport(asyncio.Transport):
    def __init__(self, protocol: Connection) -> None:
        super().__init__()
        self.protocol = protocol

    def write(self, data: Any) -> None:
        pass

    def writelines(self, list_of_data: Any) -> None:
        pass

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    abort = close


class Brokers:
    """Connections that nobody answers; `refuses` makes attempts fail."""

    def __init__(self) -> None:
        self.connections: list[Connection] = []
        self.refuses = False
        self.channels = BrokerChannels(self.connect, random.Random(1))

    async def connect(self, broker_id: int) -> Connection:
        if self.refuses:
            raise ConnectionRefusedError
        connection = Connection("test", 1 << 20)
        connection.connection_made(FakeTransport(connection))
        self.connections.append(connection)
        return connection

    async def ask(self, broker_id: int = 2, timeout_ms: int = 5_000) -> Any:
        fields: dict[str, Any] = {"transactional_ids": []}
        return await self.channels.request(broker_id, ApiKey.DESCRIBE_TRANSACTIONS, 0, fields, timeout_ms=timeout_ms)


Test = Callable[[Brokers], Coroutine[Any, Any, None]]


def played(test: Test) -> Callable[[], None]:
    def run() -> None:
        async def main() -> None:
            await test(Brokers())

        on_virtual_time(main)

    run.__name__ = test.__name__
    return run


@played
async def test_requests_to_a_broker_share_a_connection(brokers: Brokers) -> None:
    asked = [
        asyncio.create_task(brokers.ask()),
        asyncio.create_task(brokers.ask()),
        asyncio.create_task(brokers.ask(3)),
    ]
    await asyncio.sleep(0.1)
    assert len(brokers.connections) == 2
    brokers.channels.close()
    for task in asked:
        with pytest.raises(OSError):
            await task
    with pytest.raises(OSError):
        await brokers.ask()


@played
async def test_a_request_ends_with_its_time_out_and_the_next_connects_again(brokers: Brokers) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    with pytest.raises(RequestTimedOutError):
        await brokers.ask(timeout_ms=500)
    assert loop.time() - began == pytest.approx(0.5, abs=0.01)
    brokers.refuses = True
    with pytest.raises(ConnectionRefusedError):
        await brokers.ask()
    brokers.refuses = False
    task = asyncio.create_task(brokers.ask())
    await asyncio.sleep(1.5)
    assert len(brokers.connections) == 2
    task.cancel()


@played
async def test_the_connection_to_a_fenced_broker_is_closed(brokers: Brokers) -> None:
    image, delta = make_image(), MetadataDelta()
    task, other = asyncio.create_task(brokers.ask(2)), asyncio.create_task(brokers.ask(3))
    await asyncio.sleep(0.1)
    image.replay(BrokerChangeRecord(2, image.brokers[2].epoch, fenced=True), image.offset + 1, delta)
    brokers.channels.on_metadata(image, delta)
    with pytest.raises(OSError):
        await task
    assert not other.done()
    other.cancel()
