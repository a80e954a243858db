"""Runs an ASGI application under uvicorn until SIGINT or SIGTERM."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens, so that nothing is begun where the port is taken. `OSError`."""
    return socket.create_server((host, port), family=_family(host))


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
    config = uvicorn.Config(_answering_at_the_end(app), **{**usual, "timeout_graceful_shutdown": goodbye_s, **options})
    server = uvicorn.Server(config)
    # By itself uvicorn ends with the signal, as a process that was killed, when it has stopped cleanly.
    server.capture_signals = partial(_stopped_by_signals, server, on_stop)  # type: ignore[method-assign]
    await server.serve(sockets=[listening])


def _answering_at_the_end(app: Callable[..., Any]) -> Callable[..., Any]:
    """The application, whose requests are answered when they are cancelled, as uvicorn does at its end."""

    async def answering(scope: Any, receive: Any, send: Any) -> None:
        has_begun = False

        async def noting(message: dict[str, Any]) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await app(scope, receive, noting)
        except asyncio.CancelledError:
            # Raised further, it would be logged as a failure of the application.
            if not has_begun:
                headers = [(b"content-type", b"application/json")]
                await send({"type": "http.response.start", "status": 503, "headers": headers})
                await send(
                    {"type": "http.response.body", "body": b'{"error": "the server is ending: ask again later"}'}
                )

    return answering


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
