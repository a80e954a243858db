"""Runs a registry: the topic, and the HTTP server in front of it."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from .http_app import RegistryApp
from .schemas_topic import SchemasTopic


def missing_libraries() -> list[str]:
    """The names of libraries that the registry needs and that are not installed."""
    from importlib.util import find_spec

    return [name for name in ("confluent_kafka", "fastavro", "uvicorn") if find_spec(name) is None]


async def serve(
    settings: Mapping[str, str], host: str, port: int, topic: str, on_ready: Callable[[str], object]
) -> None:
    """Serve until SIGINT or SIGTERM. `on_ready` gets the URL. Raises `SchemasTopicError`, and `OSError` for a port."""
    import uvicorn

    schemas = SchemasTopic(settings, topic)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family) as listening:  # before another registry is fenced
        try:
            await schemas.start()
            config = uvicorn.Config(RegistryApp(schemas), log_level="warning", access_log=False, lifespan="off")
            server = uvicorn.Server(config)
            # By itself uvicorn ends with the signal, as a process that was killed, when it has stopped cleanly.
            server.capture_signals = partial(_stopped_by_signals, server)  # type: ignore[method-assign]
            shown = f"[{host}]" if family == socket.AF_INET6 else host
            on_ready(f"http://{shown}:{listening.getsockname()[1]}")
            await server.serve(sockets=[listening])
        finally:
            await schemas.stop()


@contextmanager
def _stopped_by_signals(server: Any) -> Iterator[None]:
    def stop() -> None:
        server.should_exit = True

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
