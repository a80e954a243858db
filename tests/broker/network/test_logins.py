"""Connections on listeners with SASL: how long a peer may take to authenticate itself."""

from __future__ import annotations

import asyncio

from support.broker.broker_harness import FakeTransport, Harness
from support.broker.group_harness import on_virtual_time

from raftwerk.broker.network.connection import LOGIN_TIMEOUT_S
from raftwerk.broker.network.listener_security import ListenerSecurity
from raftwerk.broker.network.server import Server, ServerConfig
from raftwerk.security.sasl.plain import PLAIN, PlainServer
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.client import connect
from raftwerk.wire.errors import ErrorCode


def secured(harness: Harness) -> Server:
    security = ListenerSecurity(mechanisms={PLAIN: lambda: PlainServer(lambda user, password: False)})
    return Server(ServerConfig("SASL", "127.0.0.1", 0, security=security), harness.server.dispatcher)


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
