"""Connections on listeners with SASL: how long a peer may take to authenticate itself."""

from __future__ import annotations

import asyncio

from support.broker.broker_harness import FakeTransport, Harness
from support.broker.group_harness import on_virtual_time

from raftwerk.broker.network.connection import LOGIN_TIMEOUT_S, ConnectionLimits
from raftwerk.broker.network.connection_quota import ConnectionQuota
from raftwerk.broker.network.listener_security import ListenerSecurity
from raftwerk.broker.network.server import Server, ServerConfig
from raftwerk.controller.metadata.metadata_image import MetadataImage
from raftwerk.security.sasl.plain import PLAIN, PlainServer
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.client import connect
from raftwerk.wire.errors import ErrorCode


def secured(harness: Harness, quota: ConnectionQuota | None = None) -> Server:
    security = ListenerSecurity(mechanisms={PLAIN: lambda: PlainServer(lambda user, password: False)})
    return Server(ServerConfig("SASL", "127.0.0.1", 0, security=security), harness.server.dispatcher, quota)


def test_who_does_not_log_in_is_disconnected() -> None:
    async def main() -> None:
        server = secured(Harness())
        transport = FakeTransport()
        server.make_connection().connection_made(transport)
        await asyncio.sleep(LOGIN_TIMEOUT_S - 1)
        assert not transport.closing
        await asyncio.sleep(2)
        assert transport.closing
        assert server.rejected_total == 1

    on_virtual_time(main)


def test_a_frame_that_is_too_large_before_the_login_closes_the_connection_at_once() -> None:
    """CVE-2022-34917: it names a size, and gets no memory of that size."""

    async def main() -> None:
        server = secured(Harness())
        transport = FakeTransport()
        connection = server.make_connection()
        transport.protocol = connection
        connection.connection_made(transport)
        transport.deliver((512 * 1024 + 1).to_bytes(4, "big") + bytes(100))
        assert transport.closing
        assert server.memory.used_bytes == 0

    on_virtual_time(main)


def test_2_000_peers_that_babble_before_the_login_hold_no_memory_of_the_size_that_they_name() -> None:
    async def main() -> None:
        server = secured(Harness())
        transports = []
        for number in range(2_000):
            transport = FakeTransport()
            transport.protocol = server.make_connection()
            transport.protocol.connection_made(transport)
            transport.deliver((512 * 1024).to_bytes(4, "big") + bytes(10 + number % 50))
            transports.append(transport)
        assert server.memory.used_bytes < 8 * 1024 * 1024
        await asyncio.sleep(LOGIN_TIMEOUT_S + 1)
        assert all(transport.closing for transport in transports)
        assert server.memory.used_bytes == 0

    on_virtual_time(main)


def test_the_time_for_the_login_begins_when_the_connection_is_not_delayed_any_more() -> None:
    async def main() -> None:
        quota = ConnectionQuota(MetadataImage("c"), 1, {"max.connection.creation.rate": "1"})
        for _ in range(15):
            quota.delay_s(asyncio.get_running_loop().time())
        server = secured(Harness(), quota)
        transport = FakeTransport()
        transport.protocol = server.make_connection()
        transport.protocol.connection_made(transport)
        await asyncio.sleep(0)
        assert not transport.reading
        await asyncio.sleep(6 + LOGIN_TIMEOUT_S - 1)
        assert transport.reading and not transport.closing
        await asyncio.sleep(2)
        assert transport.closing

    on_virtual_time(main)


def test_a_connection_whose_tls_handshake_failed_is_not_waited_for() -> None:
    """The loop makes its protocol before the handshake, and calls it only after it."""

    async def main() -> None:
        server = secured(Harness())
        server.make_connection()
        await asyncio.sleep(2 * LOGIN_TIMEOUT_S)
        assert server.rejected_total == 0

    on_virtual_time(main)


def test_a_handshake_of_version_0_is_offered_and_refused() -> None:
    """librdkafka 2.0 logs in only where ApiVersions has version 0, and then sends version 1."""

    async def main() -> None:
        server = secured(Harness())
        await server.start()
        try:
            client = await connect("127.0.0.1", server.port)
            assert (await client.api_versions())[ApiKey.SASL_HANDSHAKE] == (0, 1)
            answer = await client.request(ApiKey.SASL_HANDSHAKE, 0, {"mechanism": PLAIN})
            assert (answer.error_code, list(answer.mechanisms)) == (ErrorCode.UNSUPPORTED_VERSION, [PLAIN])
            await asyncio.wait_for(client.closed, 10)
        finally:
            await server.stop()

    asyncio.run(main())


class Waiting:
    """A mechanism whose every token waits until the connection ends."""

    result = None

    def __init__(self) -> None:
        self.has_begun, self.has_ended = asyncio.Event(), asyncio.Event()

    async def evaluate_soon(self, token: bytes) -> bytes:
        self.has_begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.has_ended.set()
        return b""


def test_a_token_of_a_connection_that_is_gone_is_evaluated_no_more() -> None:
    async def main() -> None:
        one = Waiting()
        security = ListenerSecurity(mechanisms={PLAIN: lambda: one})
        server = Server(ServerConfig("SASL", "127.0.0.1", 0, security=security), Harness().server.dispatcher)
        await server.start()
        try:
            client = await connect("127.0.0.1", server.port)
            await client.request(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": PLAIN})
            asked = asyncio.ensure_future(client.request(ApiKey.SASL_AUTHENTICATE, 1, {"auth_bytes": b"x"}))
            async with asyncio.timeout(10):
                await one.has_begun.wait()
                client.close()
                await one.has_ended.wait()
            await asyncio.gather(asked, return_exceptions=True)
        finally:
            await server.stop()

    asyncio.run(main())


def test_a_second_token_before_the_answer_to_the_first_fails_the_login() -> None:
    """On a controller's listener requests need not wait for earlier ones."""

    async def main() -> None:
        security = ListenerSecurity(mechanisms={PLAIN: Waiting}, failure_delay_s=0)
        limits = ConnectionLimits(ordered_start=False)
        config = ServerConfig("SASL", "127.0.0.1", 0, security=security, limits=limits)
        server = Server(config, Harness().server.dispatcher)
        await server.start()
        try:
            client = await connect("127.0.0.1", server.port)
            await client.request(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": PLAIN})
            sent = [client.request(ApiKey.SASL_AUTHENTICATE, 1, {"auth_bytes": b"x"}) for _ in range(2)]
            answers = asyncio.gather(*sent, return_exceptions=True)
            await asyncio.wait_for(client.closed, 10)
            assert all(isinstance(answer, OSError) for answer in await answers)
            assert server.rejected_total == 1
        finally:
            await server.stop()

    asyncio.run(main())
