"""max.connections and max.connections.per.ip: counted over all listeners, changed at run time."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from support.broker.broker_harness import FakeTransport, Harness

from raftwerk.broker.network.connection_quota import ConnectionQuota
from raftwerk.broker.network.loop_budget import LoopBudget
from raftwerk.broker.network.server import Server, ServerConfig
from raftwerk.broker.quotas.sampled_rate import QuotaWindow
from raftwerk.controller.metadata.metadata_image import MetadataDelta, MetadataImage
from raftwerk.controller.metadata.metadata_records import ClientQuotaRecord, ConfigRecord


def set_to(image: MetadataImage, broker: str, name: str, value: str | None) -> None:
    image.replay(ConfigRecord(4, broker, name, value), image.offset + 1, MetadataDelta())


def test_the_value_that_holds_for_this_broker() -> None:
    """Its own value, else that of all, else its server.properties', else no limit."""
    image = MetadataImage("c")
    quota = ConnectionQuota(image, 1, {"max.connections.per.ip": "2"})
    for _ in range(2):
        assert quota.refusal("a", 0.0, is_protected=False) is None
        quota.opened("a")
    assert "2 connections" in str(quota.refusal("a", 0.0, is_protected=True))
    assert quota.refusal("b", 0.0, is_protected=False) is None
    set_to(image, "", "max.connections.per.ip", "3")
    assert quota.refusal("a", 0.0, is_protected=False) is None
    set_to(image, "1", "max.connections", "2")
    assert "max.connections allows" in str(quota.refusal("b", 0.0, is_protected=False))
    assert quota.refusal("b", 0.0, is_protected=True) is None
    quota.closed("a")
    assert quota.refusal("b", 0.0, is_protected=False) is None
    set_to(image, "2", "max.connections", "0")
    assert quota.refusal("b", 0.0, is_protected=False) is None, "another broker's"


def test_addresses_with_limits_of_their_own() -> None:
    image = MetadataImage("c")
    quota = ConnectionQuota(image, 1, {"max.connections.per.ip": "1"})
    set_to(image, "", "max.connections.per.ip.overrides", "10.0.0.1:2, [::1]:0,2001:DB8::0:1:3")
    for peer, count in (("10.0.0.1", 2), ("::1", 0), ("2001:db8::1", 3), ("10.0.0.2", 1), ("?", 1)):
        for _ in range(count):
            assert quota.refusal(peer, 0.0, is_protected=False) is None, peer
            quota.opened(peer)
        assert f"it has {count} connections" in str(quota.refusal(peer, 0.0, is_protected=False))
    set_to(image, "1", "max.connections.per.ip.overrides", "")
    assert quota.refusal("::1", 0.0, is_protected=False) is None
    quota.opened("::1")
    assert "max.connections.per.ip allows" in str(quota.refusal("::1", 0.0, is_protected=False))


@pytest.mark.parametrize("given", [100.0, 0.0])
def test_connections_a_second(given: float) -> None:
    """The rate is an average over ten seconds.

    Connections beyond it are delayed; unused time is kept for ten seconds.
    """
    image = MetadataImage("c")
    quota = ConnectionQuota(image, 1, {"max.connection.creation.rate": "5"})
    assert [quota.delay_s(given) for _ in range(50)] == pytest.approx([0.0] * 50, abs=1e-9)
    assert [quota.delay_s(given) for _ in range(2)] == pytest.approx([0.2, 0.4])
    assert quota.delay_s(given + 0.4) == pytest.approx(0.2)
    assert [quota.delay_s(given + 1000) for _ in range(50)] == pytest.approx([0.0] * 50, abs=1e-9)
    assert quota.delay_s(given + 1000) == pytest.approx(0.2)
    set_to(image, "", "max.connection.creation.rate", "0")
    assert quota.refusal("a", 0.0, is_protected=False) == "max.connection.creation.rate is 0"
    assert quota.refusal("a", 0.0, is_protected=True) is None


def test_what_waits_is_bounded_and_a_rate_holds_from_when_it_is_set() -> None:
    """Connections that would wait for more than ten seconds are refused, and do not count."""
    image = MetadataImage("c")
    quota = ConnectionQuota(image, 1, {"max.connection.creation.rate": "100"})

    def connect(count: int, now_s: float) -> list[float]:
        return [quota.delay_s(now_s) for _ in range(count) if quota.refusal("a", now_s, is_protected=False) is None]

    delays = connect(5000, 50.0)
    assert (len(delays), delays[0], max(delays)) == (2000, 0.0, 10.0)
    assert "wait for more than 10 s by max.connection.creation.rate=100" in str(
        quota.refusal("a", 50.0, is_protected=False)
    )
    assert len(connect(500, 51.0)) == 100, "those that were refused do not keep others out"
    set_to(image, "", "max.connection.creation.rate", "1000")
    assert max(connect(2, 51.0)) == pytest.approx(1.0, abs=0.01)
    set_to(image, "", "max.connection.creation.rate", "2147483647")
    assert max(connect(2, 51.0)) < 0.001
    set_to(image, "", "max.connection.creation.rate", "100")
    connect(5000, 60.0)
    set_to(image, "", "max.connection.creation.rate", "1")
    assert connect(5, 61.0) == []
    assert connect(5, 63.0) == [9.0, 10.0], "a lowered rate does not wait for what another one allowed"


def test_a_connection_that_its_address_may_not_open_takes_no_turn_of_others() -> None:
    async def scenario() -> None:
        image = MetadataImage("c")
        set_rate(image, "192.0.2.1", 0.001)
        quota = ConnectionQuota(image, 1, {"max.connection.creation.rate": "1"})
        harness = Harness()
        server = Server(ServerConfig("PLAINTEXT", "127.0.0.1", 0), harness.dispatcher, quota)
        for _ in range(20):
            server.make_connection().connection_made(FakeTransport("192.0.2.1"))
        for _ in range(9):
            assert quota.delay_s(asyncio.get_running_loop().time()) == 0

    asyncio.run(scenario())


class Echo:
    """Answers each frame with itself."""

    def __init__(self) -> None:
        self.units: dict[int, int] = {}
        self.budget = LoopBudget()
        self.request_quota = None

    def stop(self) -> None: ...

    def overlaps(self, key: int) -> bool:
        return False

    def start(self, connection: Any, frame: memoryview, begin: Any) -> None:
        request = SimpleNamespace(response=None, on_gone=None, frame_bytes=len(frame), api_key=0, memory=None)
        begin(request)
        connection.complete(request, [bytes(frame)])


def test_a_connection_beyond_the_rate_is_answered_later() -> None:
    async def scenario() -> None:
        dispatcher: Any = Echo()
        quota = ConnectionQuota(MetadataImage("c"), 1, {"max.connection.creation.rate": "20"})
        server = Server(ServerConfig("PLAINTEXT", "127.0.0.1", 0), dispatcher, quota)
        await server.start()
        loop = asyncio.get_running_loop()
        for _ in range(200):
            quota.delay_s(loop.time())
        try:
            began = loop.time()
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(b"\0\0\0\4ping\0\0\0\4pong")
            assert await asyncio.wait_for(reader.readexactly(8), 5) == b"pingpong"
            assert loop.time() - began >= 0.04
            writer.close()
        finally:
            await server.stop()

    asyncio.run(scenario())


class Nothing:
    """No request comes."""

    def __init__(self) -> None:
        self.units: dict[int, int] = {}
        self.budget = LoopBudget()
        self.request_quota = None

    def stop(self) -> None: ...


@pytest.mark.parametrize("name", ["max.connections", "max.connections.per.ip"])
def test_a_connection_beyond_the_limit_is_closed(name: str) -> None:
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


def set_rate(image: MetadataImage, address: str | None, value: float | None) -> None:
    record = ClientQuotaRecord((("ip", address),), "connection_creation_rate", value)
    image.replay(record, image.offset + 1, MetadataDelta())


def test_connections_a_second_of_an_address() -> None:
    """Its own quota, else that of all; the connections that are closed do not count, and wait a second at most."""
    image = MetadataImage("c")
    quota = ConnectionQuota(image, 1, {})
    assert quota.closes_after_s("10.0.0.1", 0) == 0
    set_rate(image, None, 1.0)
    set_rate(image, "::1", 2.0)
    assert [quota.closes_after_s("10.0.0.1", 0) for _ in range(12)] == [0.0] * 10 + [1.0] * 2
    assert [quota.closes_after_s("0::1", 0) for _ in range(21)] == [0.0] * 20 + [0.5]
    assert quota.closes_after_s("10.0.0.2", 0) == 0
    assert quota.closes_after_s("10.0.0.1", 11) == 0
    set_rate(image, None, None)
    assert [quota.closes_after_s("10.0.0.1", 11) for _ in range(50)] == [0.0] * 50


def test_an_address_that_opens_too_many_connections() -> None:
    """They are accepted, never answered, and closed."""

    async def scenario() -> None:
        dispatcher: Any = Echo()
        image = MetadataImage("c")
        set_rate(image, "127.0.0.1", 1.0)
        window = QuotaWindow(2, 50)
        server = Server(ServerConfig("PLAINTEXT", "127.0.0.1", 0), dispatcher, ConnectionQuota(image, 1, {}, window))
        await server.start()
        answers = []
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(b"\0\0\0\4ping")
            with suppress(ConnectionError):
                answers.append(await asyncio.wait_for(reader.read(), 5))
            writer.close()
        finally:
            await server.stop()
        assert answers in ([], [b""])
        assert server.rejected_total == 1

    asyncio.run(scenario())
