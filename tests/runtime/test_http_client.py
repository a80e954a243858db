"""The HTTP client against servers that answer well, badly, and not at all."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from support.security.certificates import Authority
from support.security.identity_provider import IdentityProvider

from raftwerk.runtime.http import client
from raftwerk.runtime.http.client import HttpAnswer, HttpError, HttpRequest, fetch, path_of, url_problem
from raftwerk.runtime.tls_contexts import TlsMaterial, TlsOptions, client_context


def ask(answer: bytes, body: bytes | None = None, *, closes: bool = True, **options: Any) -> tuple[HttpAnswer, bytes]:
    """What the client makes of this answer, and what it sent."""
    seen = b""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal seen
        seen = await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        if closes:
            writer.close()
        else:
            await reader.read()
            writer.close()

    async def run() -> HttpAnswer:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            return await fetch(HttpRequest(f"http://127.0.0.1:{port}/keys?id=7#part", {"X-Own": "1"}, body, **options))

    found = asyncio.run(run())
    return found, seen


def test_answers_with_each_kind_of_length() -> None:
    found, seen = ask(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello more", closes=False)
    assert found == HttpAnswer(200, b"hello")
    assert seen.startswith(b"GET /keys?id=7 HTTP/1.1\r\nHost: 127.0.0.1:")
    assert b"\r\nX-Own: 1\r\n" in seen
    assert ask(b"HTTP/1.0 404 Not Found\r\n\r\nuntil the end")[0] == HttpAnswer(404, b"until the end")
    chunks = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"
    assert ask(chunks, closes=False)[0].body == b"hello"
    assert ask(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n")[0].status == 204
    assert b"POST /keys?id=7 HTTP/1.1\r\n" in ask(b"HTTP/1.1 200 OK\r\n\r\n", b"body")[1]


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000 + b"\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (client.ANSWER_BYTES_MAX + 1),
    ],
)
def test_answers_that_are_none(answer: bytes) -> None:
    with pytest.raises(HttpError, match=r"http://127.0.0.1:\d+/keys "):
        ask(answer)


def test_who_does_not_answer_is_given_up() -> None:
    with pytest.raises(HttpError, match=r"does not answer within 0\.1 s"):
        ask(b"HTTP/1.1 200 OK\r\n", closes=False, timeout_s=0.1)


def test_a_request_names_its_method_and_the_longest_answer() -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
    found, seen = ask(answer, b"", method="DELETE", answer_bytes_max=5)
    assert found.body == b"hello"
    assert seen.startswith(b"DELETE /keys?id=7 HTTP/1.1\r\n") and b"\r\nContent-Length: 0\r\n" in seen
    with pytest.raises(HttpError, match="answers more than 4 bytes"):
        ask(answer, answer_bytes_max=4)


def test_nobody_listens() -> None:
    with pytest.raises(HttpError, match="localhost:1/x cannot be reached: connection refused"):
        asyncio.run(fetch(HttpRequest("http://localhost:1/x?secret=1")))


def test_https_checks_the_certificate(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    trusts = client_context(TlsMaterial(authorities=authority.file.read_bytes()), TlsOptions())
    trusts_other = client_context(TlsMaterial(authorities=other.file.read_bytes()), TlsOptions())
    with IdentityProvider().serving(authority.issue("idp", "localhost")) as provider:
        assert asyncio.run(fetch(HttpRequest(provider.keys_url, tls=trusts))).body == provider.key_set()
        with pytest.raises(HttpError, match="not trusted"):
            asyncio.run(fetch(HttpRequest(provider.keys_url, tls=trusts_other)))


@pytest.mark.parametrize(
    "url",
    [
        "",
        "x",
        "ftp://h/",
        "http://",
        "http:///x",
        "http://u:p@h/",
        "http://h:0/",
        "http://h:x/",
        "http://h/a b",
        "http://\u00e4/",
    ],
)
def test_urls_that_are_refused(url: str) -> None:
    assert url_problem(url) is not None


def test_urls() -> None:
    assert url_problem("https://issuer.example:8443/a?b") is None
    assert [path_of("file:/a/b"), path_of("file:///a/b"), path_of("file:a")] == ["/a/b", "/a/b", "a"]
