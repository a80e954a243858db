"""The HTTP server of the metrics port, in bytes."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable

import pytest
import uvloop

from raftwerk.cluster.metrics import http_server
from raftwerk.cluster.metrics.http_server import HttpServer, Page


async def hello() -> Page:
    return Page(b"hello", "text/plain")


async def broken() -> Page:
    raise ValueError("no")


def with_server(talk: Callable[[int], Awaitable[None]]) -> None:
    async def run() -> None:
        server = HttpServer({"/": hello, "/broken": broken})
        await server.start("127.0.0.1", 0)
        try:
            async with asyncio.timeout(20):
                await talk(server.port)
        finally:
            await server.stop()

    asyncio.run(run())


async def answer_to(port: int, request: bytes) -> bytes:
    """All that the server says until it closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize(
    ("request_lines", "status"),
    [
        ("GET / HTTP/1.0", 200),
        ("GET /?a=b HTTP/1.1\r\nHost: x\r\nConnection: close", 200),
        ("HEAD / HTTP/1.1\r\nConnection: close", 200),
        ("GET /nothing HTTP/1.0", 404),
        ("POST / HTTP/1.1\r\nContent-Length: 3", 405),
        ("GET /broken HTTP/1.0", 500),
        ("nonsense", 400),
        ("GET / SPDY/3", 400),
        (f"GET / HTTP/1.1\r\nX: {'x' * 20_000}", 431),
    ],
)
def test_one_request(request_lines: str, status: int) -> None:
    async def talk(port: int) -> None:
        told = await answer_to(port, request_lines.encode() + b"\r\n\r\n")
        head, _, body = told.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 %d " % status)
        assert b"\r\nConnection: close" in head
        assert (body == b"hello") == (status == 200 and request_lines.startswith("GET"))
        assert (b"\r\nAllow: GET, HEAD" in head) == (status == 405)

    with_server(talk)


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_client_that_does_not_read_its_answer_is_cut_off(
    monkeypatch: pytest.MonkeyPatch, loop_factory: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """The rest of its answer is not kept for it: only one connection is served, and the next is when it has gone."""
    monkeypatch.setattr(http_server, "_SEND_TIMEOUT_S", 0.2)
    monkeypatch.setattr(http_server, "_MAX_CONNECTIONS", 1)
    size_bytes = 20_000_000

    async def big() -> Page:
        return Page(b"x" * size_bytes, "text/plain")

    async def run() -> None:
        server = HttpServer({"/": hello, "/big": big})
        await server.start("127.0.0.1", 0)
        with socket.create_connection(("127.0.0.1", server.port)) as silent:
            silent.sendall(b"GET /big HTTP/1.1\r\n\r\n")
            async with asyncio.timeout(20):
                while not await answer_to(server.port, b"GET / HTTP/1.0\r\n\r\n"):
                    pass
            silent.settimeout(10)
            assert await asyncio.to_thread(read_to_the_end, silent) < size_bytes
        await server.stop()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(run())


def read_to_the_end(connection: socket.socket) -> int:
    """The number of bytes until the connection is closed, or until nothing has come for a while."""
    count = 0
    with contextlib.suppress(OSError):
        while part := connection.recv(1 << 20):
            count += len(part)
    return count


def test_a_client_that_has_closed_its_side_gets_its_whole_answer() -> None:
    async def talk(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        writer.write_eof()
        assert (await reader.read()).endswith(b"hello")
        writer.close()

    with_server(talk)


def test_requests_follow_one_another_on_a_connection() -> None:
    async def talk(port: int) -> None:
        told = await answer_to(port, b"GET / HTTP/1.1\r\n\r\n" * 2 + b"GET / HTTP/1.0\r\n\r\n")
        assert told.count(b"hello") == 3 and told.count(b"keep-alive") == 2

    with_server(talk)


def test_a_silent_client_is_closed_and_others_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "_MAX_CONNECTIONS", 1)
    monkeypatch.setattr(http_server, "_IDLE_TIMEOUT_S", 0.3)

    async def talk(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\n\r\nGET")
        assert b"hello" in await reader.readuntil(b"hello")
        assert await answer_to(port, b"GET / HTTP/1.0\r\n\r\n") == b""
        assert await reader.read() == b""
        writer.close()
        assert b"hello" in await answer_to(port, b"GET / HTTP/1.0\r\n\r\n")

    with_server(talk)


def test_the_server_stops_while_clients_are_connected() -> None:
    async def run() -> None:
        server = HttpServer({"/": hello})
        await server.start("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await reader.readuntil(b"hello")
        await server.stop()
        assert await reader.read() == b""
        writer.close()

    asyncio.run(run())
