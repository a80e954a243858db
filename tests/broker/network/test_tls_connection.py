"""What stands between the TLS layer and a connection, without a socket: ends that come early, and what follows them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from raftwerk.broker.network.tls_connection import RECEIVED_BYTES, TlsConnection


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
