"""Connections on real sockets whose responses are files: pipelined, half closed, refused, closed by a stop."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

from raftwerk.broker.network.loop_budget import LoopBudget
from raftwerk.broker.network.request import Request
from raftwerk.broker.network.server import Server, ServerConfig
from raftwerk.runtime.files.file_slice import FileSlice
from raftwerk.runtime.files.real_disk import RealDisk
from raftwerk.wire.frames import RequestHeader

LARGE = os.urandom(6_000_000)
Scenario = Callable[["FileServer", socket.socket], Awaitable[None]]


class FileServer:
    """A dispatcher whose requests name a range of a file, which is the response."""

    def __init__(self, directory: Path) -> None:
        self.disk = RealDisk()
        self.file = self.disk.open(str(directory / "large"), create=True)
        self.file.append([LARGE])
        self.units: dict[int, int] = {}
        self.budget = LoopBudget()
        self.request_quota = None
        self.server = Server(ServerConfig("PLAINTEXT", "127.0.0.1", 0), self)  # type: ignore[arg-type]

    def overlaps(self, api_key: int) -> bool:
        return True

    def stop(self) -> None:
        pass

    def start(self, sink: Any, frame: memoryview, begin: Callable[[Request], None]) -> None:
        start, end = struct.unpack_from(">II", frame, 2)
        if start > end:
            sink.reject("a range that ends before it begins")
            return
        assert sink.sends_files
        request = Request(sink, RequestHeader(1, 4, start, None), frame, 0)
        begin(request)
        found = FileSlice(self.disk, self.file, start, end - start, lambda: True)
        request.respond([b"<", found, b">"])


def ask(start: int, end: int) -> bytes:
    return struct.pack(">IhII", 10, 1, start, end)


def answer(start: int, end: int) -> bytes:
    return struct.pack(">II", end - start + 6, start) + b"<" + LARGE[start:end] + b">"


async def receive(client: socket.socket, length: int) -> bytes:
    got = bytearray()
    while len(got) < length and (data := await asyncio.get_running_loop().sock_recv(client, 200_000)):
        got += data
    return bytes(got)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[[Scenario], None]]:
    async def main(scenario: Scenario) -> None:
        files = FileServer(tmp_path)
        await files.server.start()
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        client.setblocking(False)
        await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", files.server.port))
        await asyncio.wait_for(scenario(files, client), 30)
        client.close()
        await files.server.stop()
        await asyncio.sleep(0)

    def execute(scenario: Scenario) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main(scenario))

    yield execute


def test_answers_to_pipelined_requests_follow_each_other(run: Callable[[Scenario], None]) -> None:
    ranges = [(0, 3_000_000), (5, 6), (17, 17), (1_000_000, 4_500_000), (0, 100), (99, 6_000_000)]

    async def scenario(_: FileServer, client: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(client, b"".join(ask(*each) for each in ranges))
        expected = b"".join(answer(*each) for each in ranges)
        assert await receive(client, len(expected)) == expected
        await loop.sock_sendall(client, ask(3, 5))
        assert await receive(client, 12) == answer(3, 5)

    run(scenario)


def test_a_half_closed_client_gets_the_whole_response(run: Callable[[Scenario], None]) -> None:
    async def scenario(_: FileServer, client: socket.socket) -> None:
        await asyncio.get_running_loop().sock_sendall(client, ask(0, 6_000_000))
        client.shutdown(socket.SHUT_WR)
        assert await receive(client, 7_000_000) == answer(0, 6_000_000), "and then the end"

    run(scenario)


def test_a_refused_request_closes_after_earlier_responses(run: Callable[[Scenario], None]) -> None:
    async def scenario(files: FileServer, client: socket.socket) -> None:
        await asyncio.get_running_loop().sock_sendall(client, ask(0, 5_000_000) + ask(2, 1) + ask(0, 10))
        assert await receive(client, 7_000_000) == answer(0, 5_000_000)
        assert files.server.rejected_total == 1

    run(scenario)


def test_stopping_the_server_waits_for_no_client(run: Callable[[Scenario], None]) -> None:
    async def scenario(files: FileServer, client: socket.socket) -> None:
        await asyncio.get_running_loop().sock_sendall(client, ask(0, 6_000_000))
        assert (await receive(client, 1_000))[:1_000] == answer(0, 6_000_000)[:1_000]
        await files.server.stop()

    run(scenario)


def test_a_client_that_stops_reading_is_closed_when_it_is_idle(run: Callable[[Scenario], None]) -> None:
    async def scenario(files: FileServer, client: socket.socket) -> None:
        await asyncio.get_running_loop().sock_sendall(client, ask(0, 6_000_000))
        await receive(client, 1_000)
        while files.server.connections:
            files.server._close_idle()
            await asyncio.sleep(0)

    run(scenario)


def test_the_system_takes_little_of_a_response_at_once(run: Callable[[Scenario], None]) -> None:
    """Response data that waits in a socket's buffer has left the caches of the processor when the client reads it."""

    async def scenario(files: FileServer, client: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(client, ask(0, 6_000_000))
        await receive(client, 1)
        (connection,) = files.server.connections
        assert connection._transport is not None
        accepted = connection._transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == 2 * files.server.config.send_buffer_bytes

    run(scenario)
