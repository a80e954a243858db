"""Runs an ASGI application under uvicorn until SIGINT or SIGTERM."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

_READ_ON_S = 10.0
"""How long the rest of a body is read after the answer, which is also all that a client gets that never stops."""
_READ_ON_PAUSE_S = 1.0
"""A client that sends nothing for so long is not about to send the rest."""

Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens, so that nothing is begun where the port is taken; at `::` for IPv4, too. `OSError`."""
    takes_both = host == "::" and socket.has_dualstack_ipv6()
    return socket.create_server((host, port), family=_family(host), dualstack_ipv6=takes_both)


def url_of(host: str, listening: socket.socket, scheme: str = "http") -> str:
    """The URL at which the socket's server is reached."""
    shown = f"[{host}]" if _family(host) == socket.AF_INET6 else host
    return f"{scheme}://{shown}:{listening.getsockname()[1]}"


async def serve(
    app: Callable[..., Any],
    listening: socket.socket,
    on_stop: Callable[[], object] = lambda: None,
    *,
    goodbye_s: float = 3,
    **options: Any,
) -> None:
    """Serve the application until SIGINT or SIGTERM. `on_stop` is called with the signal: streams have to end then.

    Requests that are under way may take `goodbye_s` seconds to end; one that takes longer is answered with status 503.
    Other `options` are uvicorn's.
    """
    import uvicorn

    usual: dict[str, Any] = {"log_level": "warning", "access_log": False, "lifespan": "off"}
    config = uvicorn.Config(_complete(app), **{**usual, "timeout_graceful_shutdown": goodbye_s, **options})
    server = uvicorn.Server(config)
    # By itself uvicorn ends with the signal, as a process that was killed, when it has stopped cleanly.
    server.capture_signals = partial(_stopped_by_signals, server, on_stop)  # type: ignore[method-assign]
    await server.serve(sockets=[listening])


def _complete(app: Callable[..., Any]) -> Callable[..., Any]:
    """The application, of which every client gets its answer.

    Requests that uvicorn cancels at its end are answered, and the rest of a body is read before the connection closes.
    """

    async def complete(scope: Any, receive: Any, send: Any) -> None:
        exchange = _Exchange(scope, receive, send)
        try:
            await app(scope, exchange.receive, exchange.send)
        except asyncio.CancelledError:
            # Raised further, it would be logged as a failure of the application.
            if not exchange.is_answered:
                headers = [(b"content-type", b"application/json")]
                await send({"type": "http.response.start", "status": 503, "headers": headers})
                await send(
                    {"type": "http.response.body", "body": b'{"error": "the server is ending: ask again later"}'}
                )

    return complete


class _Exchange:
    """One request and its answer.

    An answer may come before the whole body was read, such as 413. If the connection closed right after it, the system
    would reset it for what comes then, and the client, still sending, would not see the answer. So the rest is read,
    for some seconds, before the answer ends, as nginx does.
    """

    def __init__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        self._receive = receive
        self._send = send
        self._is_read = headers.get(b"content-length", b"0") == b"0" and b"transfer-encoding" not in headers
        self.is_answered = False
        """Whether an answer has begun."""

    async def receive(self) -> Mapping[str, Any]:
        """See ASGI."""
        message = await self._receive()
        if message["type"] != "http.request" or not message.get("more_body"):
            self._is_read = True
        return message

    async def send(self, message: Mapping[str, Any]) -> None:
        """See ASGI."""
        self.is_answered = True
        if self._is_read or message["type"] != "http.response.body" or message.get("more_body"):
            await self._send(message)
            return
        await self._send({**message, "more_body": True})
        try:
            await self._read_on()
        finally:
            await self._send({"type": "http.response.body", "body": b""})

    async def _read_on(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_READ_ON_S):
                while not self._is_read:
                    async with asyncio.timeout(_READ_ON_PAUSE_S):
                        await self.receive()


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


@contextmanager
def _stopped_by_signals(server: Any, on_stop: Callable[[], object]) -> Iterator[None]:
    def stop() -> None:
        server.should_exit = True
        on_stop()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
