"""What the log says of clients whose TLS handshake fails, which neither asyncio nor uvloop tells."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from pathlib import Path

import pytest
import uvloop
from support.broker.broker_harness import Harness
from support.security.certificates import Authority

from raftwerk.broker.network.listener_security import ListenerSecurity
from raftwerk.broker.network.server import Server, ServerConfig
from raftwerk.runtime.tls_contexts import REQUIRED, TlsMaterial, TlsOptions, client_context, server_context


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop])
def runner(request: pytest.FixtureRequest) -> asyncio.Runner:
    return asyncio.Runner(loop_factory=request.param)


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
