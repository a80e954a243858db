"""Kafka Connect with exactly-once sources: a file goes into a topic while brokers and the worker are killed."""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.e2e import helpers
from support.e2e.transactions import until, values

from raftwerk.cluster.local.supervisor import Supervisor

TIMEOUT_S = 60.0

pytestmark = pytest.mark.java


class Worker:
    """A worker in distributed mode: one process after the other, with nothing but what is in the cluster."""

    def __init__(self, java_command: list[str], settings: dict[str, str], directory: Path) -> None:
        self._file = directory / "worker.properties"
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self._address = f"127.0.0.1:{listener.getsockname()[1]}"
        settings = {**settings, "listeners": f"HTTP://{self._address}"}
        self._file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        self._command = [*java_command, "org.apache.kafka.connect.cli.ConnectDistributed", str(self._file)]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        nothing = subprocess.DEVNULL
        self._process = subprocess.Popen(self._command, stdout=nothing, stderr=nothing)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def put(self, path: str, body: dict[str, str]) -> None:
        """Send a request, again until the worker is up and takes it."""
        data, headers = json.dumps(body).encode(), {"Content-Type": "application/json"}
        request = urllib.request.Request(f"http://{self._address}{path}", data, headers, method="PUT")
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                urllib.request.urlopen(request, timeout=TIMEOUT_S).close()
                return
            except (urllib.error.URLError, OSError):
                assert time.monotonic() < deadline
                time.sleep(0.2)


@pytest.fixture
def worker(
    new_cluster: Callable[..., Supervisor], java_command: list[str], topic: str, tmp_path: Path
) -> Iterator[tuple[Supervisor, Worker]]:
    libs = Path(java_command[-1]).parent
    connectors = list(libs.glob("connect-file-*.jar"))
    if not connectors:
        pytest.skip(f"no jar of Connect's file connectors in {libs} (make kafka-jars gets it): Connect is NOT tested")
    plugins = tmp_path / "plugins"
    plugins.mkdir()
    (plugins / connectors[0].name).symlink_to(connectors[0])
    supervisor = new_cluster()
    settings: dict[str, Any] = {
        "bootstrap.servers": supervisor.plan.bootstrap,
        "group.id": f"{topic}-connect",
        "exactly.once.source.support": "enabled",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        "config.storage.topic": f"{topic}-configs",
        "offset.storage.topic": f"{topic}-offsets",
        "status.storage.topic": f"{topic}-status",
        "offset.storage.partitions": "3",
        **{f"{name}.storage.replication.factor": "3" for name in ("config", "offset", "status")},
        "session.timeout.ms": "6000",
        "heartbeat.interval.ms": "1000",
        "scheduled.rebalance.max.delay.ms": "0",
        "plugin.path": str(plugins),
        "plugin.discovery": "service_load",
    }
    made = Worker(java_command, settings, tmp_path)
    yield supervisor, made
    made.kill()


@pytest.mark.long
def test_each_line_of_a_file_arrives_once(worker: tuple[Supervisor, Worker], topic: str, tmp_path: Path) -> None:
    supervisor, connect = worker
    bootstrap, lines = supervisor.plan.bootstrap, tmp_path / "lines.txt"
    helpers.create_topic(bootstrap, topic, min_insync_replicas="2")
    written = 0

    def write(count: int) -> None:
        nonlocal written
        with lines.open("a") as file:
            file.writelines(f"{number}\n" for number in range(written, written + count))
        written += count

    def arrived(count: int) -> bool:
        (found,) = values(bootstrap, topic)
        assert found == [str(number).encode() for number in range(len(found))], "lines are lost, doubled or torn"
        return len(found) >= count

    write(200)
    connect.start()
    source = {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "tasks.max": "1",
        "file": str(lines),
        "topic": topic,
        "exactly.once.support": "required",
    }
    connect.put("/connectors/lines/config", source)
    until(lambda: arrived(200))
    for victim in (1, 2, 3):
        write(100)
        supervisor.kill(victim)
        write(100)
        if victim == 2:
            connect.kill()
            connect.start()
        until(lambda: arrived(written))
        supervisor.start_node(victim)
        supervisor.wait_ready()
