"""A proxy as a process of its own, and requests to it."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from support.process_end import told_until_its_end

from raftwerk.testkit.process_cluster import TestCluster

JSON_V2 = "application/vnd.kafka.json.v2+json"
BINARY_V2 = "application/vnd.kafka.binary.v2+json"
V2 = "application/vnd.kafka.v2+json"
SECRET = "secret-of-"
"""How passwords of tests begin, so that none is told by a proxy."""
_TIMEOUT_S = 90


class Proxy:
    """Requests to a proxy that is running."""

    def __init__(self, url: str, ca: Path | None = None) -> None:
        self.url = url
        self.cluster_id = ""
        self.authorization = ""
        """The header by which requests log in, if they do."""
        self._tls = None if ca is None else ssl.create_default_context(cafile=str(ca))

    def acting_as(self, authorization: str) -> Proxy:
        """The same proxy for a client that logs in by this header."""
        other = Proxy(self.url)
        other._tls, other.authorization = self._tls, authorization
        return other

    def ask(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any]:
        """The status and the body of an answer; a body that is no bytes is sent as JSON."""
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        login = {"Authorization": self.authorization} if self.authorization else {}
        given = {"Content-Type": "application/json", **login, **(headers or {})}
        request = urllib.request.Request(self.url + path, data, given, method=method)
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S, context=self._tls) as answer:
                return answer.status, _parsed(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, _parsed(error.read())

    def v3(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Ask for a path below the cluster."""
        if not self.cluster_id:
            self.cluster_id = self.ask("GET", "/v3/clusters")[1]["data"][0]["cluster_id"]
        return self.ask(method, f"/v3/clusters/{self.cluster_id}{path}", body)

    def follow(self, link: Mapping[str, str]) -> Any:
        """What a link of an answer leads to."""
        status, answer = self.ask("GET", link["related"].removeprefix(self.url))
        assert status == 200, answer
        return answer

    def v2(self, method: str, path: str, body: Any = None, *, accept: str = V2, sent: str = V2) -> tuple[int, Any]:
        """Ask for a path of version 2."""
        return self.ask(method, path, body, {"Accept": accept, "Content-Type": sent})

    def stream(self, topic: str, parts: Iterable[bytes]) -> list[dict[str, Any]]:
        """Produce records in a chunked request; the answer of each."""
        self.v3("GET", "")
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=_TIMEOUT_S)
        path = f"/v3/clusters/{self.cluster_id}/topics/{topic}/records"
        headers = {"Content-Type": "application/json", "Transfer-Encoding": "chunked"}
        try:
            connection.request("POST", path, iter(parts), headers, encode_chunked=True)
            answer = connection.getresponse()
            assert answer.status == 200
            return [json.loads(line) for line in answer.read().splitlines()]
        finally:
            connection.close()


def _parsed(text: bytes) -> Any:
    """The JSON of a body, which ends its line, so that a prompt does not follow it."""
    assert not text or text.endswith((b"}\n", b"]\n")), text[-40:]
    return json.loads(text) if text else None


@contextmanager
def proxy(cluster: TestCluster, *options: str) -> Iterator[Proxy]:
    """The process of a proxy of a cluster."""
    with proxy_at(cluster.bootstrap_servers, *options) as running:
        yield running


@contextmanager
def proxy_at(bootstrap: str, *options: str, ca: Path | None = None) -> Iterator[Proxy]:
    """A proxy's process, which ends without a word when it is terminated. `ca` trusts its certificate."""
    command = [sys.executable, "-m", "raftwerk", "rest", "--port", "0", "-b", bootstrap, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stderr is not None
            line = process.stdout.readline()  # the test's limit of time ends it if nothing comes
            scheme = "http" if ca is None else "https"
            assert line.startswith(f"REST proxy at {scheme}://127.0.0.1:"), process.stderr.read()
            yield Proxy(line.split()[3].rstrip(","), ca)
        finally:
            process.terminate()
            told = told_until_its_end(process)
            assert "Traceback" not in told, told
            assert SECRET not in told
            assert process.returncode == 0, told


def basic(user: str, password: str) -> str:
    """The header for a user and a password."""
    return f"Basic {in_base64(f'{user}:{password}'.encode())}"


def text_record(text: str) -> bytes:
    """A record of version 3 whose value is this text."""
    return json.dumps({"value": {"type": "STRING", "data": text}}).encode()


def in_base64(data: bytes) -> str:
    """The bytes as a body has them."""
    return base64.b64encode(data).decode()
