"""The responses of one connection, buffers and file slices: in order, whole, and not before the socket has room."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from raftwerk.broker.network.response_queue import BYTES_PER_ITERATION, PIECE_BYTES, ResponseQueue
from raftwerk.runtime.files.file_slice import FileSlice, Sendable
from raftwerk.runtime.files.real_disk import RealDisk

CONTENT = bytes(range(256)) * 40
LARGE = os.urandom(3 * BYTES_PER_ITERATION + 12_345)
LOOPS = pytest.mark.parametrize("loop_factory", [uvloop.new_event_loop, asyncio.SelectorEventLoop])


def run(coroutine: Any, loop_factory: Callable[[], Any] | None = None) -> None:
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(asyncio.wait_for(coroutine, 30))


class MemoryFile:
    """A file of `CONTENT`, of which only `warm` bytes are in memory."""

    path = "memory"

    def __init__(self) -> None:
        self.warm = len(CONTENT)

    def share(self) -> MemoryFile:
        return self

    def pread(self, offset: int, length: int) -> bytes:
        return CONTENT[offset : offset + length]

    def is_cached(self, offset: int, length: int) -> bool:
        return offset + length <= self.warm


class MemoryDisk:
    """Sends as much as the scripted socket has room for."""

    def __init__(self) -> None:
        self.warmings: list[asyncio.Future[None]] = []
        self.error: OSError | None = None

    def send(self, file: Any, offset: int, length: int, transport: Any) -> int:
        if self.error is not None:
            raise self.error
        assert not transport.buffered, "never before what the transport has"
        sent: int = transport.take(file.pread(offset, length))
        return sent

    def warm_soon(self, file: Any, offset: int, length: int) -> asyncio.Future[None]:
        self.warmings.append(asyncio.get_running_loop().create_future())
        return self.warmings[-1]


class ScriptedTransport(asyncio.Transport):
    """Has a socket with some room, and a buffer for what does not fit."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room
        self.received = bytearray()
        self.buffered = bytearray()
        self.high = 0
        self.paused = False
        self.closing = False

    def take(self, data: bytes) -> int:
        taken = data[: self.room]
        self.received += taken
        self.room -= len(taken)
        return len(taken)

    def write(self, data: Any) -> None:
        data = bytes(data)
        self.buffered += data[0 if self.buffered else self.take(data) :]
        self.paused = self.paused or len(self.buffered) > self.high

    def writelines(self, buffers: Any) -> None:
        self.write(b"".join(buffers))

    def get_write_buffer_size(self) -> int:
        return len(self.buffered)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = high or 0
        self.paused = self.paused or len(self.buffered) > self.high

    def is_closing(self) -> bool:
        return self.closing

    def open_window(self, room: int, queue: ResponseQueue) -> None:
        self.room += room
        del self.buffered[: self.take(bytes(self.buffered))]
        if self.paused and len(self.buffered) <= self.high // 4:
            self.paused = False
            queue.drained()


class Scripted:
    """A response queue over the transport above."""

    def __init__(self, room: int = 0) -> None:
        self.transport = ScriptedTransport(room)
        self.disk = MemoryDisk()
        self.file = MemoryFile()
        self.sent = 0
        self.broken: list[OSError] = []
        self.is_unchanged = True
        self.queue = ResponseQueue(self.transport, self._on_sent, self.broken.append)

    def _on_sent(self) -> None:
        self.sent += 1

    def slice(self, offset: int, length: int) -> FileSlice:
        return FileSlice(self.disk, self.file, offset, length, lambda: self.is_unchanged)  # type: ignore[arg-type]


PART = st.one_of(st.binary(max_size=40), st.tuples(st.integers(0, 5_000), st.integers(1, 5_000)))


@given(st.lists(st.tuples(st.lists(PART, max_size=5), st.lists(st.integers(1, 4_000), max_size=3)), max_size=8))
@settings(deadline=None, max_examples=300)
def test_everything_arrives_once_and_in_order(
    steps: list[tuple[list[bytes | tuple[int, int]], list[int]]],
) -> None:
    async def main() -> None:
        one = Scripted()
        expected = bytearray()
        for parts, windows in steps:
            response: list[Sendable] = []
            for part in parts:
                data = part if isinstance(part, bytes) else CONTENT[part[0] : sum(part)]
                expected.extend(data)
                response.append(data if isinstance(part, bytes) else one.slice(*part))
            one.queue.put(response)
            one.queue.flush()
            for room in windows:
                one.transport.open_window(room, one.queue)
        while one.transport.buffered or one.queue.is_sending_files:
            one.transport.open_window(10_000, one.queue)
        assert one.transport.received == expected
        assert not one.broken

    run(main())


def test_bytes_outside_the_page_cache_are_read_by_a_thread_first() -> None:
    async def main() -> None:
        one = Scripted(room=1_000)
        one.queue.put([b"head", one.slice(0, 9_000), b"tail"])
        one.queue.flush()
        one.file.warm = 5_000  # the rest was dropped while the client did not read
        one.transport.open_window(8_000, one.queue)
        assert len(one.disk.warmings) == 1
        waiting_at = len(one.transport.received)
        one.transport.open_window(50_000, one.queue)
        assert len(one.transport.received) == waiting_at
        one.disk.warmings[0].set_result(None)
        await asyncio.sleep(0)
        assert one.transport.received == b"head" + CONTENT[:9_000] + b"tail"
        assert one.sent == 1, "told, since it did not go on by itself"
        assert not one.queue.is_sending_files

    run(main())


@pytest.mark.parametrize("what", ["cut", "disk"])
def test_a_failed_send_breaks_the_connection(what: str) -> None:
    async def main() -> None:
        one = Scripted(room=1_000)
        one.queue.put([one.slice(0, 9_000), b"tail"])
        one.queue.flush()
        one.is_unchanged = what != "cut"
        one.disk.error = OSError("the disk is gone") if what == "disk" else None
        one.transport.open_window(20_000, one.queue)
        assert len(one.broken) == 1
        assert not one.queue.is_sending_files
        assert b"tail" not in one.transport.received

    run(main())


def test_nothing_is_sent_on_a_closing_connection() -> None:
    async def main() -> None:
        one = Scripted(room=1_000)
        one.queue.put([one.slice(0, 9_000), b"tail"])
        one.queue.flush()
        one.transport.closing = True
        before = len(one.transport.received)
        one.queue.drained()
        assert len(one.transport.received) == before
        assert not one.queue.is_sending_files

    run(main())


class SendingProtocol(asyncio.Protocol):
    def __init__(self, response: list[Sendable]) -> None:
        self.response = response
        self.broken: list[OSError] = []
        self.turns = 0
        self.lost = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.queue = ResponseQueue(transport, self.count_turn, self.give_up)
        self.queue.put(self.response)
        self.queue.flush()

    def count_turn(self) -> None:
        self.turns += 1

    def give_up(self, error: OSError) -> None:
        self.broken.append(error)
        self.transport.abort()

    def resume_writing(self) -> None:
        self.queue.drained()

    def connection_lost(self, exc: Exception | None) -> None:
        self.queue.clear()
        self.lost.set_result(None)


async def serve(tmp_path: Path, response: Callable[[RealDisk, Any], list[Sendable]]) -> tuple[SendingProtocol, Any]:
    """A server that sends `response(disk, file)` to one client, and the client's socket."""
    disk = RealDisk()
    file = disk.open(str(tmp_path / "large"), create=True)
    file.append([LARGE])
    protocol = SendingProtocol(response(disk, file))
    file.close()
    os.unlink(tmp_path / "large")
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: protocol, "127.0.0.1", 0)
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
    client.setblocking(False)
    await loop.sock_connect(client, server.sockets[0].getsockname())
    server.close()
    return protocol, client


def open_files(directory: Path) -> int:
    return sum(str(directory) in str(one.readlink()) for one in Path("/proc/self/fd").iterdir() if one.is_symlink())


async def receive(client: socket.socket, length: int) -> bytes:
    got = bytearray()
    while len(got) < length and (data := await asyncio.get_running_loop().sock_recv(client, 300_000)):
        got += data
    return bytes(got)


@LOOPS
def test_real_files_to_a_real_socket_with_memory_between_them(tmp_path: Path, loop_factory: Any) -> None:
    def true() -> bool:
        return True

    async def main() -> None:
        def response(disk: RealDisk, file: Any) -> list[Sendable]:
            first = FileSlice(disk, file, 100, PIECE_BYTES + 77, true)
            small = FileSlice(disk, file, 0, 1, true)
            rest = FileSlice(disk, file, 5, len(LARGE) - 5, true)
            return [b"head", first, b"between", small, small, bytearray(b"x" * 20_000), rest, b"tail"]

        protocol, client = await serve(tmp_path, response)
        expected = b"head" + LARGE[100 : PIECE_BYTES + 177] + b"between" + LARGE[:1] * 2 + b"x" * 20_000
        expected += LARGE[5:] + b"tail"
        assert await receive(client, len(expected)) == expected
        assert not protocol.broken
        protocol.transport.close()
        assert await receive(client, 1) == b""
        await protocol.lost
        client.close()

    run(main(), loop_factory)


@LOOPS
def test_a_client_that_disconnects_leaves_no_descriptor_open(tmp_path: Path, loop_factory: Any) -> None:
    async def main() -> None:
        protocol, client = await serve(
            tmp_path, lambda disk, file: [FileSlice(disk, file, 0, len(LARGE), lambda: True)]
        )
        await receive(client, 100_000)
        protocol.response.clear()
        client.close()
        await protocol.lost
        assert all(isinstance(error, ConnectionError) for error in protocol.broken)
        assert not open_files(tmp_path)

    run(main(), loop_factory)


@LOOPS
def test_a_file_that_ends_too_early_breaks_the_connection(tmp_path: Path, loop_factory: Any) -> None:
    async def main() -> None:
        protocol, client = await serve(
            tmp_path, lambda disk, file: [FileSlice(disk, file, len(LARGE) - 10, 20, lambda: True)]
        )
        assert await receive(client, 10) == LARGE[-10:]
        await protocol.lost
        assert len(protocol.broken) == 1
        client.close()

    run(main(), loop_factory)
