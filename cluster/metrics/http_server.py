"""A small HTTP/1.1 server for a few pages that are read with GET, such as metrics and health.

It takes requests without a body, keeps connections open as HTTP/1.1 says, and bounds what a client can cost: the size
of a request's head, the time that it may take to arrive, and the number of connections.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus

from ...runtime.loop import host_to_listen_on

_HEAD_BYTES = 16 * 1024
_IDLE_TIMEOUT_S = 75.0
_SEND_TIMEOUT_S = 60.0
_MAX_CONNECTIONS = 64
_HAS_BODY = ("content-length", "transfer-encoding")

_logger = logging.getLogger("raftwerk.node")


@dataclass(frozen=True, slots=True)
class Page:
    """What a path answers."""

    body: bytes
    content_type: str
    status: HTTPStatus = HTTPStatus.OK


Handler = Callable[[], Awaitable[Page]]


class HttpServer:
    """Serves pages by their path, without query strings."""

    def __init__(self, pages: Mapping[str, Handler]) -> None:
        self._pages = dict(pages)
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], None] = {}
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        """Listen; an empty host means every interface. Raises `OSError` when the port cannot be had."""
        self._server = await asyncio.start_server(self._accept, host_to_listen_on(host), port, limit=_HEAD_BYTES)
        self.port = int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Close the port and all connections."""
        if self._server is not None:
            self._server.close()
        for task in list(self._connections):
            task.cancel()
        if self._connections:
            await asyncio.wait(list(self._connections))

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None or len(self._connections) >= _MAX_CONNECTIONS:
            writer.transport.abort()
            return
        self._connections[task] = None
        try:
            while await self._serve(reader, writer):
                pass
            writer.close()
            async with asyncio.timeout(_SEND_TIMEOUT_S):
                await writer.wait_closed()
        except (OSError, asyncio.CancelledError):
            pass  # the client is gone or slow, or the server stops
        finally:
            self._connections.pop(task, None)
            writer.transport.abort()  # to close it would wait for a client that does not read

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; whether another may follow on this connection."""
        try:
            async with asyncio.timeout(_IDLE_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return await _send(writer, _error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE), keeps_open=False)
        except asyncio.IncompleteReadError:
            return False  # the client asks for no more, and may still read
        first, *lines = head.decode("latin-1").split("\r\n")
        words = first.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return await _send(writer, _error(HTTPStatus.BAD_REQUEST), keeps_open=False)
        method, target, version = words
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        wish = headers.get("connection", "").lower()
        has_body = any(headers.get(name, "0") != "0" for name in _HAS_BODY)
        keeps_open = not has_body and (wish == "keep-alive" if version == "HTTP/1.0" else wish != "close")
        page = await self._page(method, target.partition("?")[0])
        return await _send(writer, page, keeps_open=keeps_open, has_body=method != "HEAD")

    async def _page(self, method: str, path: str) -> Page:
        handler = self._pages.get(path)
        if handler is None:
            return _error(HTTPStatus.NOT_FOUND)
        if method not in ("GET", "HEAD"):
            return _error(HTTPStatus.METHOD_NOT_ALLOWED)
        try:
            return await handler()
        except Exception:  # a page that fails must not end the node
            _logger.exception("the page %s of the metrics port failed", path)
            return _error(HTTPStatus.INTERNAL_SERVER_ERROR)


def _error(status: HTTPStatus) -> Page:
    return Page(f"{status.value} {status.phrase}\n".encode(), "text/plain; charset=utf-8", status)


async def _send(writer: asyncio.StreamWriter, page: Page, *, keeps_open: bool, has_body: bool = True) -> bool:
    lines = [
        f"HTTP/1.1 {page.status.value} {page.status.phrase}",
        f"Content-Type: {page.content_type}",
        f"Content-Length: {len(page.body)}",
        f"Connection: {'keep-alive' if keeps_open else 'close'}",
    ]
    if page.status is HTTPStatus.METHOD_NOT_ALLOWED:
        lines.append("Allow: GET, HEAD")
    writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
    if has_body:
        writer.write(page.body)
    async with asyncio.timeout(_SEND_TIMEOUT_S):
        await writer.drain()
    return keeps_open
