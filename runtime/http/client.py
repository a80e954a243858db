"""One request over HTTP/1.1 or HTTPS on the event loop, for documents of an identity provider.

It uses the connections of the running loop, so it works in the simulator, too. Redirects are not followed, since a
secret may be in the request. The connection is closed after the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias
from urllib.parse import SplitResult, urlsplit, urlunsplit

from ..os_errors import os_words
from ..tls_contexts import TlsContext, tls_failure

TIMEOUT_S = 10.0
"""How long a request may take that says nothing else."""
ANSWER_BYTES_MAX = 1024 * 1024
FILE_URL = "file:"
"""How the URL of a file begins; `path_of` has its path."""
_PORTS = {"http": 80, "https": 443}
_INTERIM = range(100, 200)


class HttpError(OSError):
    """There is no answer, or none that HTTP allows. The text names the address and has no secret."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """`url` has the scheme http or https. A request with a body is a POST, if it names no `method`. `tls` is for https.

    `timeout_s` is for all from the connection to the last byte of the answer. Its body has `answer_bytes_max` at most.
    """

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    tls: TlsContext | None = None
    method: str | None = None
    timeout_s: float = TIMEOUT_S
    answer_bytes_max: int = ANSWER_BYTES_MAX

    def __repr__(self) -> str:
        return f"HttpRequest({address_of(self.url)})"  # headers and body have secrets


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """The status, and the body without its transfer encoding."""

    status: int
    body: bytes


Fetch: TypeAlias = Callable[[HttpRequest], Awaitable[HttpAnswer]]
"""What carries a request out: `fetch`, or its twin in tests. Raises `HttpError`."""


def url_problem(url: str) -> str | None:
    """Why a URL is not one for this client; None if it is."""
    try:
        parts = urlsplit(url)
        has_host = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return "it is not a URL"
    if parts.scheme not in _PORTS or not has_host:
        return "it is neither http://host... nor https://host..."
    if parts.username is not None or parts.password is not None:
        return "it has a user name or password"
    if not url.isascii() or any(character <= " " for character in url):
        return "it has characters that a URL cannot have"
    return None


def path_of(url: str) -> str:
    """The path of a URL `file:/path` or `file:///path`."""
    rest = url.removeprefix(FILE_URL)
    return rest[2:] if rest.startswith("///") else rest


def without_login(url: str) -> str:
    """The URL without user and password, for people and for requests. What is no URL stays as it is."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def address_of(url: str) -> str:
    """A URL without its query, for messages."""
    return url.partition("?")[0].partition("#")[0]


async def fetch(request: HttpRequest) -> HttpAnswer:
    """Send a request, and wait for the answer. Raises `HttpError`."""
    where = address_of(request.url)
    try:
        return await asyncio.wait_for(_exchange(request), request.timeout_s)
    except HttpError:
        raise
    except TimeoutError:
        raise HttpError(f"{where} does not answer within {request.timeout_s:g} s") from None
    except OSError as error:
        raise HttpError(f"{where} {tls_failure(error) or f'cannot be reached: {os_words(error)}'}") from None
    except (EOFError, ValueError, asyncio.LimitOverrunError):
        raise HttpError(f"{where} does not answer by HTTP") from None


async def _exchange(request: HttpRequest) -> HttpAnswer:
    parts = urlsplit(request.url)
    host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
    options = {"ssl": request.tls, "server_hostname": host} if parts.scheme == "https" else {}
    reader, writer = await asyncio.open_connection(host, port, **options)  # type: ignore[arg-type]
    try:
        writer.write(_head(request, parts) + (request.body or b""))
        await writer.drain()
        status, headers = await _read_head(reader)
        return HttpAnswer(status, await _read_body(reader, headers, request))
    finally:
        writer.transport.abort()


def _head(request: HttpRequest, parts: SplitResult) -> bytes:
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    method = request.method or ("GET" if request.body is None else "POST")
    headers = {"Host": parts.netloc, "Accept": "application/json", "Connection": "close", **request.headers}
    if request.body is not None:
        headers["Content-Length"] = str(len(request.body))
    lines = (f"{name}: {value}\r\n" for name, value in headers.items())
    return f"{method} {path} HTTP/1.1\r\n{''.join(lines)}\r\n".encode("latin-1")


async def _read_head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    while True:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        version, _, rest = lines[0].partition(" ")
        if not version.startswith("HTTP/1."):
            raise ValueError("not HTTP/1")
        status = int(rest[:3])
        if status not in _INTERIM:
            break
    headers = {}
    for line in lines[1:]:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    return status, headers


async def _read_body(reader: asyncio.StreamReader, headers: Mapping[str, str], request: HttpRequest) -> bytes:
    if headers.get("transfer-encoding", "identity").lower() != "identity":
        return await _read_chunks(reader, request)
    length = headers.get("content-length")
    if length is not None:
        return await reader.readexactly(_checked(int(length), request))
    body = b""
    while part := await reader.read(request.answer_bytes_max):
        body += part
        _checked(len(body), request)
    return body


async def _read_chunks(reader: asyncio.StreamReader, request: HttpRequest) -> bytes:
    body = b""
    while True:
        size = int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16)
        if size == 0:
            return body
        _checked(len(body) + size, request)
        body += await reader.readexactly(size)
        await reader.readuntil(b"\r\n")


def _checked(size: int, request: HttpRequest) -> int:
    if size < 0:
        raise ValueError("negative size")
    if size > request.answer_bytes_max:
        raise HttpError(f"{address_of(request.url)} answers more than {request.answer_bytes_max} bytes")
    return size
