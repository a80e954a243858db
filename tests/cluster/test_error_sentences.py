"""Errors as people read them: the codes of the cluster, and peers that speak something else."""

from __future__ import annotations

import asyncio
import http.server
import ssl
import threading

import pytest
from click.testing import CliRunner

from raftwerk.cli.main import cli
from raftwerk.cluster.client.admin_client import AdminClient, NewTopic
from raftwerk.cluster.client.client_errors import RefusedError, UnreachableError
from raftwerk.cluster.client.cluster_client import ClusterClient
from raftwerk.cluster.client.error_sentences import SENTENCES, error_sentence
from raftwerk.cluster.client.peer_protocol import explained
from raftwerk.controller.topics.new_partitions import PARTITIONS_PER_REQUEST_MAX
from raftwerk.testing import cluster
from raftwerk.wire.errors import ErrorCode


def test_every_error_code_has_a_meaning_and_a_way_out() -> None:
    assert set(SENTENCES) == set(ErrorCode) - {ErrorCode.NONE}
    for code, (meaning, way_out) in SENTENCES.items():
        told = error_sentence(code)
        assert ErrorCode(code).name in told
        for part in (meaning, way_out):
            assert part
            assert part[0].islower() or part.startswith("-")
            assert not part.endswith(".")


def test_sentences_of_refusals() -> None:
    assert str(RefusedError(36, "topic x")) == (
        "topic x: there is a topic of this name (TOPIC_ALREADY_EXISTS); --if-not-exists accepts that, raftwerk topics "
        "delete removes it"
    )
    assert "Topic 'x' already exists (TOPIC_ALREADY_EXISTS); --if" in str(
        RefusedError(36, "x", "Topic 'x' already exists.")
    )
    assert str(RefusedError(29, "x", "Topic authorization failed.")) == str(RefusedError(29, "x"))
    assert "(error 999)" in str(RefusedError(999, "x"))


def test_too_many_partitions_are_no_matter_of_a_policy() -> None:
    async def create() -> str:
        async with cluster() as running, ClusterClient(running.bootstrap) as client:
            with pytest.raises(RefusedError) as refused:
                await AdminClient(client).create_topic(NewTopic("x", PARTITIONS_PER_REQUEST_MAX + 1, 1))
            return str(refused.value)

    assert f"{PARTITIONS_PER_REQUEST_MAX:,} partitions at most: create the topic with fewer" in asyncio.run(create())


async def _ask(first_bytes: bytes) -> str:
    """What a client says of a server that sends these bytes to everybody who sends something."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4)
        writer.write(first_bytes)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, ClusterClient(f"127.0.0.1:{port}", timeout_s=10) as client:
        with pytest.raises(UnreachableError) as raised:
            await client.metadata()
    return str(raised.value).replace(str(port), "PORT")


@pytest.mark.parametrize(
    ("first_bytes", "told"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "speaks HTTP instead of Kafka's protocol: name the port of a broker"),
        (b"<!DOCTYPE HTML>", "speaks HTTP"),
        (bytes.fromhex("15030300020246"), "speaks TLS instead of Kafka's protocol: say how to log in"),
        (b"SSH-2.0-OpenSSH_9.9\r\n", "speaks SSH"),
        (b"\x7f\xff\xff\xff", "does not speak Kafka's protocol (frame of 2147483647 bytes"),
        (b"", "closes the connection"),
    ],
)
def test_peers_that_speak_something_else_are_named(first_bytes: bytes, told: str) -> None:
    assert told in asyncio.run(_ask(first_bytes))


def _serve_http(context: ssl.SSLContext | None) -> http.server.HTTPServer:
    server = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


async def _ask_stranger(port: int) -> str:
    async with ClusterClient(f"127.0.0.1:{port}", timeout_s=1.0) as client:
        with pytest.raises(UnreachableError) as raised:
            await client.metadata()
    return str(await explained(raised.value))


@pytest.mark.parametrize("protocol", ["HTTP", "TLS"])
def test_silent_peers_are_asked_what_they_speak(protocol: str) -> None:
    """A web server waits for the end of a line; one with TLS closes the connection."""
    server = _serve_http(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if protocol == "TLS" else None)
    try:
        told = asyncio.run(_ask_stranger(server.server_port))
        result = None
        if protocol == "TLS":
            result = CliRunner().invoke(cli, ["topics", "list", "-b", f"127.0.0.1:{server.server_port}"])
    finally:
        server.shutdown()
        server.server_close()
    assert f"speaks {protocol} instead of Kafka's protocol" in told
    assert result is None or (result.exit_code, told in result.output) == (1, True)
