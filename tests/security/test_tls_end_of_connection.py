"""What a client sent over TLS before it ended the connection is carried out, as without TLS and in Apache Kafka."""

from __future__ import annotations

import asyncio
import random
import socket
import ssl

import pytest
from support.broker.broker_harness import TOPIC, Harness, make_image, until
from support.security.certificates import Authority

from raftwerk.broker.network.listener_security import ListenerSecurity
from raftwerk.broker.network.server import Server, ServerConfig
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
