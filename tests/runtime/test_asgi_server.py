"""The end of a server, as SIGTERM brings it about while a request is under way."""

from __future__ import annotations

import http.client
import subprocess
import sys

from support.process_end import told_until_its_end

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


def test_a_request_that_outlasts_the_server_is_answered_and_logged_as_no_failure() -> None:
    command = [sys.executable, "-c", SERVER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        connection = http.client.HTTPConnection("127.0.0.1", int(process.stdout.readline()), timeout=30)
        connection.request("GET", "/")
        assert process.stdout.readline() == "asked\n"
        process.terminate()
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (503, b'{"error": "the server is ending: ask again later"}')
        assert process.stdout.readline() == "ended\n"
        told = told_until_its_end(process)
        assert "Traceback" not in told, told
        assert process.returncode == 0
