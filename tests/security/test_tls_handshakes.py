"""What the log says of clients whose TLS handshake fails, which neither asyncio nor uvloop tells."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from pathlib import Path

import pytest
from support.broker.broker_harness import Harness, until
from support.security.certificates import Authority

from raftwerk.broker.network.connection_quota import ConnectionQuota
from raftwerk.broker.network.listener_security import ListenerSecurity
from raftwerk.broker.network.server import Server, ServerConfig
from raftwerk.controller.metadata.metadata_image import MetadataImage
from raftwerk.runtime.tls_contexts import REQUIRED, TlsMaterial, TlsOptions, client_context, server_context


@pytest.fixture
def server(authority: Authority) -> Server:
    """A listener that wants a certificate of the client."""
    pem = authority.issue("node", "localhost", "127.0.0.1").read_bytes()
    material = TlsMaterial(pem, pem, None, authority.file.read_bytes())
    security = ListenerSecurity(server_context(material, TlsOptions(client_auth=REQUIRED)))
    return Server(ServerConfig("CLIENTS", "127.0.0.1", 0, security=security), Harness().server.dispatcher)


def trusting(authority: Authority) -> ssl.SSLContext:
    return client_context(TlsMaterial(authorities=authority.file.read_bytes()), TlsOptions())


def _exchange(port: int, sent: bytes, tls: ssl.SSLContext | None) -> None:
    """Connect and send, until the listener closes the connection. A socket without asyncio sends TLS alerts."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)) as plain:
        connection = plain if tls is None else tls.wrap_socket(plain, server_hostname="localhost")
        with connection:
            connection.sendall(sent)
            connection.recv(100)


async def _send(server: Server, sent: bytes, tls: ssl.SSLContext | None) -> None:
    await server.start()
    try:
        await asyncio.to_thread(_exchange, server.port, sent, tls)
    finally:
        await server.stop()


def told(
    runner: asyncio.Runner,
    server: Server,
    caplog: pytest.LogCaptureFixture,
    tls: ssl.SSLContext | None,
    sent: bytes = b"\x00\x00\x00\x10" + bytes(16),
) -> str:
    with runner, caplog.at_level(logging.WARNING):
        runner.run(_send(server, sent, tls))
    (record,) = caplog.records
    return record.getMessage().removeprefix("closed a connection from a client on listener CLIENTS: ")


@pytest.mark.parametrize("sent", [b"\x00\x00\x00\x10" + bytes(16), b"GET / HTTP/1.1\r\n\r\n"])
def test_a_client_without_tls(
    runner: asyncio.Runner, server: Server, caplog: pytest.LogCaptureFixture, sent: bytes
) -> None:
    said = told(runner, server, caplog, None, sent)
    assert said == "it speaks without TLS (security.protocol has to be SSL or SASL_SSL)"


def test_a_client_without_a_certificate(
    runner: asyncio.Runner, server: Server, caplog: pytest.LogCaptureFixture, authority: Authority
) -> None:
    said = told(runner, server, caplog, trusting(authority))
    assert said == "it fails in the TLS handshake: peer did not return a certificate"


def test_a_client_that_does_not_trust_us(
    runner: asyncio.Runner, server: Server, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    said = told(runner, server, caplog, trusting(Authority(tmp_path)))
    assert said.startswith("it does not take the certificate of this listener (tlsv1 alert unknown ca)")


PER_ADDRESS = 3
IS_ASKED = b"\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x07\xff\xff"
"""ApiVersions v0 with the correlation id 7."""


def limited(authority: Authority, **values: str) -> Server:
    pem = authority.issue("node", "localhost", "127.0.0.1").read_bytes()
    security = ListenerSecurity(server_context(TlsMaterial(pem, pem), TlsOptions()))
    limits = {"max.connections.per.ip": str(PER_ADDRESS)} | values
    quota = ConnectionQuota(MetadataImage("c"), 1, limits)
    return Server(ServerConfig("CLIENTS", "127.0.0.1", 0, security=security), Harness().server.dispatcher, quota)


def in_handshake(server: Server) -> int:
    return 0 if server.handshakes is None else len(server.handshakes)


async def is_answered(server: Server, authority: Authority) -> bool:
    tls = trusting(authority)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=tls, server_hostname="localhost")
    writer.write(IS_ASKED)
    answer = await reader.readexactly(8)
    writer.close()
    await until(lambda: not server.connections)
    return answer[4:] == b"\x00\x00\x00\x07"


def test_connections_in_a_handshake_count_for_the_limits(runner: asyncio.Runner, authority: Authority) -> None:
    async def main() -> None:
        server = limited(authority)
        await server.start()
        kept = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(PER_ADDRESS)]
        await until(lambda: in_handshake(server) == PER_ADDRESS)
        for _ in range(20):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            with contextlib.suppress(ConnectionError):
                assert await reader.read(1) == b""
            writer.close()
        assert in_handshake(server) == PER_ADDRESS
        kept[0][1].close()
        kept[1][1].write(b"no TLS at all")
        with contextlib.suppress(ConnectionError):
            await kept[1][0].read()
        await until(lambda: in_handshake(server) == 1)
        for _ in range(2 * PER_ADDRESS):
            assert await is_answered(server, authority)
        await server.stop()
        with contextlib.suppress(ConnectionError):
            assert await kept[2][0].read() == b""
        for _, writer in kept:
            writer.close()

    with runner:
        runner.run(asyncio.wait_for(main(), 30))


def test_a_request_in_one_packet_with_the_end_of_the_handshake(runner: asyncio.Runner, authority: Authority) -> None:
    async def main() -> None:
        server = limited(authority)
        await server.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = trusting(authority).wrap_bio(received, sent, server_hostname="localhost")
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                writer.write(sent.read())
                received.write(await reader.read(65536))
        tls.write(IS_ASKED)
        writer.write(sent.read())
        answer = b""
        while len(answer) < 8:
            with contextlib.suppress(ssl.SSLWantReadError):
                answer += tls.read(65536)
                continue
            received.write(await reader.read(65536))
        assert answer[4:8] == b"\x00\x00\x00\x07"
        writer.close()
        await until(lambda: not server.connections)
        await server.stop()

    with runner:
        runner.run(asyncio.wait_for(main(), 30))


def test_a_handshake_waits_for_the_creation_rate(runner: asyncio.Runner, authority: Authority) -> None:
    async def main() -> None:
        server = limited(authority, **{"max.connection.creation.rate": "20"})
        await server.start()
        loop = asyncio.get_running_loop()
        for number in range(200):
            assert server.admit(f"192.0.2.{number}", 1000) is not None
        began = loop.time()
        assert await is_answered(server, authority)
        assert loop.time() - began >= 0.04
        await server.stop()

    with runner:
        runner.run(asyncio.wait_for(main(), 30))
