"""What a client sent over TLS before it ended the connection is carried out, as without TLS and in Apache Kafka."""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from support.broker.broker_harness import TOPIC, Harness, make_image, until
from support.security.certificates import Authority

from raftwerk.broker.network.listener_security import ListenerSecurity
from raftwerk.broker.network.server import Server, ServerConfig
from raftwerk.broker.network.tls_connection import RECEIVED_BYTES, TlsConnection
from raftwerk.runtime.tls_contexts import TlsMaterial, TlsOptions, client_context, server_context
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.records import encode_batch

PARTITIONS = 400


def produce(harness: Harness, partitions: int, value_bytes: int) -> bytes:
    records = bytes(encode_batch([(None, random.Random(1).randbytes(value_bytes), [], 1)]))
    rows = [{"index": index, "records": records} for index in range(partitions)]
    fields = {"acks": 0, "timeout": 1000, "topic_data": [{"name": TOPIC, "partition_data": rows}]}
    return harness.frame(ApiKey.PRODUCE, 9, fields)


def send_and_end(port: int, sent: bytes, tls: ssl.SSLContext, is_notified: bool) -> None:
    with socket.create_connection(("127.0.0.1", port)) as plain:
        connection = tls.wrap_socket(plain, server_hostname="localhost")
        connection.sendall(sent)
        if is_notified:
            connection.unwrap().close()
        else:
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65536):  # what is not read when a socket is closed makes that a reset
                pass


@pytest.mark.parametrize("is_notified", [True, False])
@pytest.mark.parametrize(
    ("partitions", "value_bytes", "requests"),
    [(1, 900_000, 9), (1, 20_000, 40), (PARTITIONS, 2_000, 1), (PARTITIONS, 2_000, 4), (1, 30_000_000, 1)],
)
def test_requests_without_acks_are_carried_out(
    runner: asyncio.Runner,
    authority: Authority,
    partitions: int,
    value_bytes: int,
    requests: int,
    is_notified: bool,
) -> None:
    """Whether the client ends it by TLS's close_notify, or closes its socket only."""

    async def main() -> None:
        harness = Harness(image=make_image(partitions=PARTITIONS))
        pem = authority.issue("node", "localhost", "127.0.0.1").read_bytes()
        security = ListenerSecurity(server_context(TlsMaterial(pem, pem), TlsOptions()))
        server = Server(ServerConfig("CLIENTS", "127.0.0.1", 0, security=security), harness.server.dispatcher)
        await server.start()
        tls = client_context(TlsMaterial(authorities=authority.file.read_bytes()), TlsOptions())
        sent = produce(harness, partitions, value_bytes) * requests
        await asyncio.to_thread(send_and_end, server.port, sent, tls, is_notified)
        await until(lambda: server.accepted_total and not server.connections and not server.handshakes)
        assert len(harness.replicas.appended) == partitions * requests
        await server.stop()

    with runner:
        runner.run(asyncio.wait_for(main(), 60))


class Transport(asyncio.Transport):
    """That of the encrypted bytes, or the TLS layer's."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.calls.append("pause")

    def resume_reading(self) -> None:
        self.calls.append("resume")

    def close(self) -> None:
        self.calls.append("close")

    def abort(self) -> None:
        self.calls.append("abort")


class Client(asyncio.BufferedProtocol):
    """The protocol of the connection."""

    def __init__(self) -> None:
        self.events: list[object] = []
        self._buffer = bytearray(1024)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.events.append("made")

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append("lost")

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)

    def buffer_updated(self, nbytes: int) -> None:
        self.events.append(bytes(self._buffer[:nbytes]))

    def eof_received(self) -> bool:
        self.events.append("end")
        return False


class Setting:
    def __init__(self) -> None:
        self.client, self.socket, self.layer = Client(), Transport(), Transport()
        self.connection = TlsConnection(self.client, self.socket, memoryview(bytearray(RECEIVED_BYTES)))

    def receive(self, data: bytes) -> None:
        self.connection.get_buffer(len(data))[: len(data)] = data
        self.connection.buffer_updated(len(data))


def run(test: Callable[[Setting], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        await test(Setting())

    asyncio.run(main())


async def turn() -> None:
    for _ in range(4):
        await asyncio.sleep(0)


def test_a_connection_that_is_reset_right_after_its_handshake_is_lost_as_soon_as_it_is_made() -> None:
    """Nobody tells of it later: it would count for the limits until it had been idle for long enough."""

    async def main(setting: Setting) -> None:
        setting.connection.connection_lost(ConnectionResetError())
        setting.connection.begin(setting.layer)
        await turn()
        assert setting.client.events == ["made", "lost"]

    run(main)


def test_what_arrived_with_the_handshake_is_passed_on_before_the_end() -> None:
    async def main(setting: Setting) -> None:
        setting.receive(b"early")
        setting.connection.eof_received()
        setting.connection.connection_lost(None)
        setting.connection.begin(setting.layer)
        await turn()
        assert setting.client.events == ["made", b"early", "end", "lost"]

    run(main)


def test_what_arrives_after_the_connection_has_closed_is_dropped_and_the_socket_read_on() -> None:
    """Else the client's close_notify would not be read, and the TLS layer wait for it."""

    async def main(setting: Setting) -> None:
        setting.connection.begin(setting.layer)
        await turn()
        setting.connection.pause_reading()
        setting.connection.close()
        setting.socket.calls.clear()
        setting.receive(b"late")
        assert setting.socket.calls == []
        setting.connection.connection_lost(None)
        assert setting.client.events == ["made", "lost"]

    run(main)
