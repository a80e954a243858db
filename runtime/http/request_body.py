"""Reads the whole body of a request of an ASGI application, up to a size."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any


class BodyTooLongError(Exception):
    """The body has more bytes than are taken."""


class ClientGoneError(Exception):
    """The client has closed the connection, so nobody reads an answer."""


async def read_body(receive: Callable[[], Awaitable[Mapping[str, Any]]], max_bytes: int) -> bytes:
    """The body. Raises `BodyTooLongError` as soon as there are more than `max_bytes`, or `ClientGoneError`."""
    parts: list[bytes] = []
    size_bytes = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise ClientGoneError
        parts.append(message.get("body", b""))
        size_bytes += len(parts[-1])
        if size_bytes > max_bytes:
            raise BodyTooLongError
        if not message.get("more_body"):
            return b"".join(parts)
