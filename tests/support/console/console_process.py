"""A console's process beside a test cluster, and requests to it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from support.process_end import told_until_its_end

from raftwerk.testkit.process_cluster import TestCluster

CHANGE = {"X-Raftwerk-Console": "1"}


@contextmanager
def console(cluster: TestCluster, *options: str) -> Iterator[str]:
    """The process; gives its URL. It has to end cleanly, with no traceback."""
    command = [sys.executable, "-m", "raftwerk", "console", "--port", "0", "--dir", cluster.plan.directory, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stderr is not None
            line = process.stdout.readline()
            assert line.startswith("console of "), process.stderr.read()
            yield line.split()[-1]
        finally:
            process.terminate()
            told = told_until_its_end(process)
            assert "Traceback" not in told, told
            assert process.returncode == 0, told


def ask(url: str, path: str, fields: Any = None, **headers: str) -> tuple[int, Any]:
    """The status and the answer of a GET, or of a POST of `fields`, which may be bytes."""
    data = fields if isinstance(fields, bytes | None) else json.dumps(fields).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(url + path, data, named or (CHANGE if data is not None else {}))
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def events(url: str, until: Callable[[str, Any], bool], limit_s: float = 60) -> list[tuple[str, Any]]:
    """The events of a stream up to the one for which `until(name, fields)` holds."""
    seen: list[tuple[str, Any]] = []
    deadline = time.monotonic() + limit_s
    with urllib.request.urlopen(f"{url}/events", timeout=limit_s) as stream:
        name = ""
        for line in stream:
            text = line.decode().rstrip("\n")
            if text.startswith("event: "):
                name = text.removeprefix("event: ")
            elif text.startswith("data: "):
                seen.append((name, json.loads(text.removeprefix("data: "))))
                if until(*seen[-1]):
                    return seen
            assert time.monotonic() < deadline, seen[-3:]
    raise AssertionError("the stream ended")
