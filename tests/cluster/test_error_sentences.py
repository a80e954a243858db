"""Errors as people read them: the codes of the cluster, and peers that speak something else."""

from __future__ import annotations

import asyncio

import pytest

from raftwerk.cluster.client.client_errors import RefusedError, UnreachableError
from raftwerk.cluster.client.cluster_client import ClusterClient
from raftwerk.cluster.client.error_sentences import SENTENCES, error_sentence
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
    assert "(error 999)" in str(RefusedError(999, "x"))


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
        (bytes.fromhex("15030300020246"), "speaks TLS instead of Kafka's protocol: name a listener without TLS"),
        (b"SSH-2.0-OpenSSH_9.9\r\n", "speaks SSH"),
        (b"\x7f\xff\xff\xff", "does not answer: connection to 127.0.0.1:PORT lost: frame of 2147483647 bytes"),
        (b"", "lost: closed by the peer"),
    ],
)
def test_peers_that_speak_something_else_are_named(first_bytes: bytes, told: str) -> None:
    assert told in asyncio.run(_ask(first_bytes))
