"""`raftwerk up --console`: the console begins and ends with the local cluster."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from raftwerk.cluster.local.processes import is_running
from raftwerk.cluster.local.running_up import CONSOLE_PID, running_up

pytestmark = pytest.mark.process
RAFTWERK = [sys.executable, "-m", "raftwerk"]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*RAFTWERK, *arguments], capture_output=True, text=True, timeout=90, check=False)


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[str]:
    path = str(tmp_path / "c")
    yield path
    run("down", "-d", path)


def url_in(told: str) -> str:
    return next(line.removeprefix("console: ") for line in told.splitlines() if line.startswith("console: "))


def is_local(url: str) -> bool:
    with urllib.request.urlopen(f"{url}/api/about", timeout=30) as answer:
        return bool(json.load(answer)["is_local"])


def console_pid(directory: str) -> int:
    pid = running_up(directory, CONSOLE_PID)
    assert pid is not None
    return pid


def test_a_detached_console_runs_until_the_cluster_is_put_down(directory: str) -> None:
    started = run("up", "--port", "0", "-d", directory, "--detach", "--console-port", "0")
    assert started.returncode == 0, started.stderr
    url = url_in(started.stdout)
    assert is_local(url)
    pid = console_pid(directory)
    again = run("stop", "1", "-d", directory)
    assert again.returncode == 0, again.stderr
    for command in (("up", "--console"), ("delete", "--yes")):
        refused = run(*command, "-d", directory)
        assert refused.returncode == 1
        assert f"(process {pid})" in refused.stderr and f"raftwerk down -d {directory}" in refused.stderr
    ended = run("down", "-d", directory)
    assert (ended.returncode, ended.stdout) == (0, f"No node was running. The console (process {pid}) has ended.\n")
    assert not is_running(pid)
    assert run("delete", "--yes", "-d", directory).returncode == 0
    assert not os.path.exists(directory)


def test_a_console_ends_with_the_command_that_stays(directory: str) -> None:
    command = [*RAFTWERK, "up", "--port", "0", "-d", directory, "--plain", "--console", "--console-port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            url = next(line.split()[-1] for line in process.stdout if line.startswith("console: "))
            assert is_local(url)
            pid = console_pid(directory)
        finally:
            process.send_signal(signal.SIGINT)
            _, told = process.communicate(timeout=60)
    assert (process.returncode, is_running(pid)) == (0, False), told


def test_a_console_whose_command_was_killed_ends(directory: str) -> None:
    command = [*RAFTWERK, "up", "--port", "0", "-d", directory, "--plain", "--console-port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert any(line.startswith("console: ") for line in process.stdout)
        watched = os.pidfd_open(console_pid(directory))
        process.kill()
    with open(watched, "rb") as ended:
        assert select.select([ended], [], [], 60)[0]  # it can be read when the process has ended


def test_a_taken_port_of_the_console_is_told_before_anything_starts(directory: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = run("up", "--port", "0", "-d", directory, "--detach", "--console-port", str(port))
    assert refused.returncode == 1
    assert f"port {port} for the console" in refused.stderr and "--console-port" in refused.stderr
    assert not os.path.exists(directory)
