"""The image by itself: a node by default, its user, its health, its end; settings by file."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.containers.compose import docker, wait_for
from support.ports import free_port

RUNNING = "Transitioning from RECOVERY to RUNNING"
SEND_ONE = "raftwerk topics create t && echo hello | raftwerk produce t"


@pytest.fixture
def containers() -> Iterator[list[str]]:
    started: list[str] = []
    yield started
    for one in started:
        docker("rm", "-f", "-v", one)


def start(containers: list[str], image: str, *options: str) -> str:
    done = docker("run", "-d", *options, image)
    assert done.returncode == 0, done.stdout
    containers.append(done.stdout.strip())
    return containers[-1]


def test_without_settings_it_is_one_node(image: str, containers: list[str]) -> None:
    container = start(containers, image)
    wait_for("RUNNING", lambda: RUNNING in docker("logs", container).stdout)
    wait_for(
        "healthy", lambda: json.loads(docker("inspect", container).stdout)[0]["State"]["Health"]["Status"] == "healthy"
    )
    assert docker("exec", container, "id", "-u").stdout.strip() == "1000"
    asked = docker("exec", "-i", container, "sh", "-c", f"{SEND_ONE} && raftwerk consume t -n 1")
    assert asked.stdout.splitlines()[-1] == "hello"
    began = time.monotonic()
    assert docker("stop", container).returncode == 0
    assert time.monotonic() - began < 8
    state = json.loads(docker("inspect", container).stdout)[0]["State"]
    assert state["ExitCode"] == 0


def test_data_outlives_the_container(image: str, containers: list[str]) -> None:
    volume = docker("volume", "create").stdout.strip()
    try:
        first = start(containers, image, "-v", f"{volume}:/var/lib/kafka/data")
        wait_for("RUNNING", lambda: RUNNING in docker("logs", first).stdout)
        docker("exec", first, "sh", "-c", SEND_ONE)
        docker("rm", "-f", containers.pop())
        second = start(containers, image, "-v", f"{volume}:/var/lib/kafka/data")
        wait_for("RUNNING", lambda: RUNNING in docker("logs", second).stdout)
        assert docker("exec", second, "raftwerk", "consume", "t", "-n", "1").stdout.splitlines()[-1] == "hello"
    finally:
        docker("rm", "-f", containers.pop())
        docker("volume", "rm", volume)


def test_settings_by_file_and_json_logs(image: str, containers: list[str], tmp_path: Path) -> None:
    port = free_port("")
    (tmp_path / "server.properties").write_text(
        "process.roles=broker,controller\nnode.id=7\ncontroller.quorum.voters=7@localhost:9093\n"
        "listeners=PLAINTEXT://:9092,CONTROLLER://:9093\ncontroller.listener.names=CONTROLLER\n"
        f"advertised.listeners=PLAINTEXT://localhost:{port}\nlog.dirs=/tmp/data\n"
    )
    tmp_path.chmod(0o755)
    mount = f"{tmp_path}:/mnt/shared/config:ro"
    container = start(containers, image, "-v", mount, "-p", f"{port}:9092", "-e", "RAFTWERK_LOG_FORMAT=json")
    wait_for("RUNNING", lambda: RUNNING in docker("logs", container).stdout)
    rows = [json.loads(line) for line in docker("logs", container).stdout.splitlines()]
    assert {row["node"] for row in rows} == {7}
    assert any(RUNNING in row["message"] for row in rows)


def test_wrong_settings_are_named_and_end_it(image: str, containers: list[str]) -> None:
    container = start(containers, image, "-e", "KAFKA_NODE_ID=1", "-e", "KAFKA_PROCESS_ROLES=brocker")
    wait_for("the end", lambda: json.loads(docker("inspect", container).stdout)[0]["State"]["Status"] == "exited")
    assert json.loads(docker("inspect", container).stdout)[0]["State"]["ExitCode"] == 2
    assert "process.roles" in docker("logs", container).stdout
