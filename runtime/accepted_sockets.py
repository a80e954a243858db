"""Connections that a listener has accepted and that have no transport yet.

`loop.create_server` with TLS tells nobody of a connection before its handshake is done. Here the listener sees the
connection as soon as it is accepted, and begins the handshake when it likes.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import cast

from .loop import TaskSet
from .tls_contexts import TlsContext

PAUSE_AFTER_ERROR_S = 1.0
"""After too many open files, say. The loop of asyncio waits for as long."""

logger = logging.getLogger(__name__)


class AcceptedSocket:
    """A connection that is accepted. Either `begin_tls` is called, or `close`."""

    def __init__(self, accepted: socket.socket, peer: str) -> None:
        self._socket = accepted
        self.peer = peer

    def fileno(self) -> int:
        """Its file descriptor."""
        return self._socket.fileno()

    async def begin_tls(
        self, make_protocol: Callable[[asyncio.Transport], asyncio.BaseProtocol], tls: TlsContext, timeout_s: float
    ) -> asyncio.Transport:
        """Do the server's side of the handshake. Returns the transport of what is to be encrypted.

        `make_protocol` gets the transport of the encrypted bytes. Its protocol takes what is decrypted; that it is
        connected, it is not told. Raises OSError, after which the connection is closed.
        """
        loop = asyncio.get_running_loop()
        transport, early = await loop.connect_accepted_socket(_EarlyBytes, self._socket)
        protocol = make_protocol(transport)
        handshake = loop.create_task(_start_tls(transport, protocol, tls, timeout_s))
        # In the loop's next iteration the layer is told of its transport, and then of these bytes, before it reads.
        loop.call_soon(loop.call_soon, early.pass_on, transport)
        return await handshake

    def close(self) -> None:
        """Close it without a word."""
        self._socket.close()


class _EarlyBytes(asyncio.Protocol):
    """Keeps what is read of a connection before its TLS layer is there."""

    def __init__(self) -> None:
        self._data = b""
        self._has_ended = False

    def data_received(self, data: bytes) -> None:
        """Keep it."""
        self._data += data

    def eof_received(self) -> bool:
        """The layer is told of it."""
        self._has_ended = True
        return True

    def pass_on(self, transport: asyncio.Transport) -> None:
        """Give all to the transport's present protocol, the TLS layer."""
        current = transport.get_protocol()
        if current is self or transport.is_closing():
            return
        layer = cast(asyncio.BufferedProtocol, current)  # that of uvloop is no subclass
        data = self._data
        while data:
            buffer = cast(memoryview, layer.get_buffer(len(data)))
            size_bytes = min(len(buffer), len(data))
            buffer[:size_bytes] = data[:size_bytes]
            data = data[size_bytes:]
            layer.buffer_updated(size_bytes)
        if self._has_ended and not layer.eof_received():
            transport.close()


async def _start_tls(
    transport: asyncio.Transport, protocol: asyncio.BaseProtocol, tls: TlsContext, timeout_s: float
) -> asyncio.Transport:
    if transport.is_closing():
        raise ConnectionResetError("the connection was closed before its handshake")
    loop = asyncio.get_running_loop()
    encrypting = await loop.start_tls(transport, protocol, tls, server_side=True, ssl_handshake_timeout=timeout_s)
    if encrypting is None:
        raise ConnectionResetError("the connection was closed in its handshake")
    return encrypting


class AcceptingSockets:
    """Accepts the connections of a server that was created with `start_serving=False`, in the place of the loop."""

    def __init__(self, server: asyncio.Server, backlog: int, on_accepted: Callable[[AcceptedSocket], None]) -> None:
        self._on_accepted = on_accepted
        self._sockets = [socket.socket(fileno=socket.dup(listening.fileno())) for listening in server.sockets]
        self._tasks = TaskSet()
        for listening in self._sockets:
            listening.setblocking(False)
            listening.listen(backlog)
            self._tasks.spawn(self._accept(listening), "accepting of connections")

    def close(self) -> None:
        """Accept no more connections."""
        self._tasks.cancel_soon()
        for listening in self._sockets:
            listening.close()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(listening)
            except OSError as error:
                logger.warning("accepting connections pauses for %g s: %s", PAUSE_AFTER_ERROR_S, error.strerror)
                await asyncio.sleep(PAUSE_AFTER_ERROR_S)
                continue
            self._take(AcceptedSocket(accepted, str(address[0])))
            await asyncio.sleep(0)  # where many connections wait, others have their turn between them

    def _take(self, accepted: AcceptedSocket) -> None:
        """Hand a connection to the listener. An error concerns this connection only: the others are accepted still."""
        try:
            self._on_accepted(accepted)
        except Exception:
            logger.exception("a connection from %s is closed, since it could not be taken up", accepted.peer)
            accepted.close()
