"""The end of a server, as SIGTERM brings it about while a request is under way."""

from __future__ import annotations

import http.client
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from support.process_end import told_until_its_end

from raftwerk.runtime.http.asgi_server import listen

SERVER = """
import asyncio
from raftwerk.runtime.http.asgi_server import listen, serve

async def app(scope, receive, send):
    print("asked", flush=True)
    await asyncio.Event().wait()

listening = listen("127.0.0.1", 0)
print(listening.getsockname()[1], flush=True)
asyncio.run(serve(app, listening, goodbye_s=0.1))
print("ended", flush=True)
"""


@contextmanager
def server(program: str) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """A process that serves, and its port."""
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline()), process
        finally:
            process.terminate()


def test_a_request_that_outlasts_the_server_is_answered_and_logged_as_no_failure() -> None:
    with server(SERVER) as (port, process):
        assert process.stdout is not None
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("GET", "/")
        assert process.stdout.readline() == "asked\n"
        process.terminate()
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (503, b'{"error": "the server is ending: ask again later"}')
        assert process.stdout.readline() == "ended\n"
        told = told_until_its_end(process)
        assert "Traceback" not in told, told
        assert process.returncode == 0


REFUSING = """
import asyncio
from raftwerk.runtime.http.asgi_server import listen, serve

async def app(scope, receive, send):
    await receive()
    await send({"type": "http.response.start", "status": 413, "headers": [(b"content-length", b"8")]})
    await send({"type": "http.response.body", "body": b"too long"})

listening = listen("127.0.0.1", 0)
print(listening.getsockname()[1], flush=True)
asyncio.run(serve(app, listening))
"""


def test_a_client_that_is_still_sending_gets_the_answer() -> None:
    """It closes the connection after it, as urllib asks for; the system would reset it for what the client sends."""
    with server(REFUSING) as (port, process), socket.create_connection(("127.0.0.1", port), 30) as client:
        client.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 20000000\r\n\r\n")
        part = bytes(100_000)
        client.sendall(part)
        answer = b""
        while not answer.endswith(b"too long"):
            answer += client.recv(1000)
        for _ in range(199):
            client.sendall(part)
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert client.recv(1000) == b"", "the server has closed its side, and has not reset the connection"
        process.terminate()
        assert "Traceback" not in told_until_its_end(process)


def test_a_client_that_sends_no_more_is_let_go() -> None:
    with server(REFUSING) as (port, _), socket.create_connection(("127.0.0.1", port), 30) as client:
        client.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 20000000\r\n\r\npart")
        answer = b"".join(iter(lambda: client.recv(1000), b""))
        assert answer.endswith(b"too long")


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="the system has no IPv6")
def test_all_addresses_are_those_of_ipv4_and_ipv6() -> None:
    with listen("::", 0) as listening:
        for address in ("127.0.0.1", "::1"):
            socket.create_connection((address, listening.getsockname()[1])).close()
