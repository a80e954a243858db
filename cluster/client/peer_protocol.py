"""Finds out what a peer speaks that takes connections and does not answer Kafka's requests.

A web server waits for the end of a line that never comes, and a server with TLS closes the connection without a word.
So the peer is asked in these protocols too, on connections of their own.
"""

from __future__ import annotations

import asyncio

from ...runtime.tls_contexts import tls_greeting
from ...wire.frames import other_protocol
from .client_errors import UnreachableError

_START_BYTES = 4
_HTTP_REQUEST = b"GET / HTTP/1.0\r\n\r\n"
_TIMEOUT_S = 2.0
WAYS_OUT = {
    "HTTP": "name the port of a broker, not that of a web server or of a node's metrics",
    "TLS": "say how to log in there (--command-config), or name a listener without TLS",
    "SSH": "name the port of a broker",
}
"""What to do when a peer speaks another protocol than Kafka's."""


def speaks(protocol: str) -> str:
    """What to say of a peer that speaks `protocol`, after its address."""
    return f"speaks {protocol} instead of Kafka's protocol: {WAYS_OUT[protocol]}"


async def spoken_protocol(host: str, port: int, timeout_s: float = _TIMEOUT_S) -> str | None:
    """HTTP, TLS or SSH, if the peer answers in it within `timeout_s` for each; None otherwise."""
    requests = (_HTTP_REQUEST, tls_greeting())
    answers = await asyncio.gather(*(_first_bytes(host, port, request, timeout_s) for request in requests))
    return next((protocol for answer in answers if (protocol := other_protocol(answer)) is not None), None)


async def unreachable_reason(error: UnreachableError) -> str:
    """The text of the error, which names the protocols of peers that were silent."""
    reasons = dict(error.reasons)
    for address in error.silent:
        protocol = await spoken_protocol(*address)
        if protocol is not None:
            reasons[address] = speaks(protocol)
    return str(UnreachableError(reasons))


async def _first_bytes(host: str, port: int, request: bytes, timeout_s: float) -> bytes:
    loop = asyncio.get_running_loop()
    transport = None
    try:
        async with asyncio.timeout(timeout_s):
            transport, start = await loop.create_connection(_Start, host, port)
            transport.write(request)
            await start.done
            return bytes(start.data)
    except OSError:  # a time-out is one, too
        return b""
    finally:
        if transport is not None:
            transport.abort()


class _Start(asyncio.Protocol):
    """Keeps the first bytes that arrive."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        """Called by asyncio."""
        self.data += data
        if len(self.data) >= _START_BYTES:
            self._finish()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio."""
        self._finish()

    def _finish(self) -> None:
        if not self.done.done():
            self.done.set_result(None)
