"""max.connections and max.connections.per.ip: counted over all listeners, changed at run time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from raftwerk.broker.connection_quota import ConnectionQuota
from raftwerk.broker.server import Server, ServerConfig
from raftwerk.controller.image import MetadataDelta, MetadataImage
from raftwerk.controller.records import ConfigRecord


def set_to(image: MetadataImage, broker: str, name: str, value: str | None) -> None:
    image.replay(ConfigRecord(4, broker, name, value), image.offset + 1, MetadataDelta())


def test_what_holds_for_this_broker() -> None:
    """Its own value, else that of all, else its server.properties', else no limit."""
    image = MetadataImage("c")
    quota = ConnectionQuota(image, 1, {"max.connections.per.ip": "2"})
    for _ in range(2):
        assert quota.refusal("a", is_protected=False) is None
        quota.opened("a")
    assert "2 connections" in str(quota.refusal("a", is_protected=True))
    assert quota.refusal("b", is_protected=False) is None
    set_to(image, "", "max.connections.per.ip", "3")
    assert quota.refusal("a", is_protected=False) is None
    set_to(image, "1", "max.connections", "2")
    assert "max.connections allows" in str(quota.refusal("b", is_protected=False))
    assert quota.refusal("b", is_protected=True) is None
    quota.closed("a")
    assert quota.refusal("b", is_protected=False) is None
    set_to(image, "2", "max.connections", "0")
    assert quota.refusal("b", is_protected=False) is None, "another broker's"


class Nothing:
    """No request comes."""

    def stop(self) -> None: ...


@pytest.mark.parametrize("name", ["max.connections", "max.connections.per.ip"])
def test_one_too_many_is_closed(name: str) -> None:
    async def connect(port: int) -> asyncio.StreamReader:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writers.append(writer)
        return reader

    async def scenario() -> None:
        image = MetadataImage("c")
        set_to(image, "", name, "1")
        dispatcher: Any = Nothing()
        server = Server(ServerConfig("PLAINTEXT", "127.0.0.1", 0), dispatcher, ConnectionQuota(image, 1, {}))
        await server.start()
        try:
            await connect(server.port)
            with pytest.raises(ConnectionError):
                if await asyncio.wait_for((await connect(server.port)).read(1), 5) == b"":
                    raise ConnectionResetError
            assert (server.rejected_total, len(server.connections)) == (1, 1)
            set_to(image, "", name, None)
            reader = await connect(server.port)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(reader.read(1), 0.05)
            assert len(server.connections) == 2
        finally:
            for writer in writers:
                writer.close()
            await server.stop()

    writers: list[asyncio.StreamWriter] = []
    asyncio.run(scenario())
