"""A request of HTTP: its parts, and its body, which is read no faster than it is used.

Paths are split before they are decoded, since the id of a consumer group may hold a slash or a colon.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import parse_qs, unquote

from ..runtime.http.request_body import ClientGoneError
from .errors import BAD_REQUEST, RestError, path_not_found
from .json_text import parse_json
from .validation import validated

Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]

INT32_MAX = 2**31 - 1
_BODY_TIMEOUT_S = 30.0
"""How long the next part of a body that is read as a whole may take."""
_PARAMETERS_MAX = 100


class Request:
    """One request. `max_body_bytes` limits a body that is read as a whole; `stopping` is set when the proxy stops."""

    def __init__(self, scope: Scope, receive: Receive, max_body_bytes: int, stopping: asyncio.Event) -> None:
        raw = scope.get("raw_path") or str(scope["path"]).encode()
        text = raw.decode("ascii", "replace").partition("?")[0]
        self.method = str(scope["method"])
        self.segments = [unquote(part) for part in text.strip("/").split("/")] if text.strip("/") else []
        self.headers = {
            bytes(name).decode("latin-1"): bytes(value).decode("latin-1") for name, value in scope["headers"]
        }
        self.parameters: dict[str, str] = {}
        self.max_body_bytes = max_body_bytes
        self.stopping = stopping
        self._scope = scope
        self._receive = receive
        self._is_read = False

    @property
    def is_v3(self) -> bool:
        """Whether the path is one of version 3, whose errors have other codes than those of version 2."""
        return self.segments[:1] == ["v3"]

    @property
    def base_url(self) -> str:
        """The beginning of all URLs, as the client named it: `http://localhost:8082`."""
        host, port = (self._scope.get("server") or ("localhost", 80))[:2]
        return f"{self._scope.get('scheme', 'http')}://{self.headers.get('host') or f'{host}:{port}'}"

    def number(self, name: str) -> int:
        """A parameter of the path that is a number; another text is no path that is served."""
        text = self.parameters[name]
        if not text.isascii() or not text.isdigit() or len(text) > 10 or int(text) > INT32_MAX:
            raise path_not_found()
        return int(text)

    def query(self, name: str) -> str | None:
        """The last value of a name in the query; None if it is not there. Raises `RestError`."""
        text = bytes(self._scope.get("query_string") or b"").decode("ascii", "replace")
        try:
            found = parse_qs(text, keep_blank_values=True, max_num_fields=_PARAMETERS_MAX)
        except ValueError:
            raise RestError(BAD_REQUEST, f"The query has more than {_PARAMETERS_MAX} parameters") from None
        return found[name][-1] if name in found else None

    def query_number(self, name: str, default: int) -> int:
        """A number in the query, or the default if it is missing or -1. Raises `RestError`."""
        text = self.query(name)
        if text is None or text == "-1":
            return default
        if not text.isascii() or not text.isdigit() or len(text) > 18:
            raise RestError(BAD_REQUEST, f"{name} in the query must be a whole number from 0 on")
        return int(text)

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body in parts, each read when it is asked for. It ends early when the proxy stops.

        Raises `ClientGoneError` when the client closes the connection.
        """
        stopped = asyncio.ensure_future(self.stopping.wait())
        try:
            while not self._is_read:
                received = asyncio.ensure_future(self._receive())
                try:
                    await asyncio.wait((received, stopped), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    if not received.done():
                        received.cancel()
                if not received.done() or received.cancelled():
                    return
                message = received.result()
                if message["type"] != "http.request":
                    raise ClientGoneError
                self._is_read = not message.get("more_body")
                yield message.get("body", b"")
        finally:
            stopped.cancel()

    async def body(self) -> bytes:
        """The whole body. Raises `RestError` when it is too long, or does not come."""
        parts: list[bytes] = []
        size = 0
        chunks = self.chunks()
        while True:
            try:
                async with asyncio.timeout(_BODY_TIMEOUT_S):
                    part = await anext(chunks, None)
            except TimeoutError:
                text = f"The next part of the body did not come within {_BODY_TIMEOUT_S:g} s"
                raise RestError(408, text) from None
            if part is None:
                return b"".join(parts)
            parts.append(part)
            size += len(part)
            if size > self.max_body_bytes:
                raise RestError(413, f"The body has more than {self.max_body_bytes:,} bytes")

    async def fields(self, schema_name: str, *, needs_body: bool = True) -> Any:
        """The body, which must be JSON of this schema; None without a body where none is needed.

        Raises `RestError`: version 3 has 400 for all mistakes, version 2 has 422 for fields that do not fit.
        """
        data = await self.body()
        if not data.strip():
            if not needs_body:
                return None
            code, text = (400, "Null input provided. Data is required.") if self.is_v3 else (422, "The body is empty")
            raise RestError(code, text)
        return validated(parse_json(data), schema_name, BAD_REQUEST if self.is_v3 else 422)
