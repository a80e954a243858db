"""The clusters that are measured: Raftwerk as `raftwerk up` starts it, and Apache Kafka from a directory of jars."""

from __future__ import annotations

import os
import random
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

READY_TIMEOUT_S = 120.0
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"


def _broker_count(port: int) -> int:
    """How many brokers the broker on `port` knows, by a Metadata v1 request on a plain socket."""
    body = struct.pack(">hhih1si", 3, 1, 1, 1, b"b", 0)
    with socket.create_connection(("127.0.0.1", port), 1) as conn:
        conn.settimeout(2)
        conn.sendall(struct.pack(">i", len(body)) + body)
        data = b""
        while len(data) < 12:
            if not (chunk := conn.recv(65536)):
                raise ConnectionError("closed before an answer")
            data += chunk
    return int(struct.unpack_from(">i", data, 8)[0])


def memory_mb(pid: int) -> float:
    """The resident memory of a process, in MB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


LISTENER_OFFSETS = (0, 200, 400, 1001)
"""What is added to the base port for each listener of a node."""


def _free_base_port(nodes: int) -> int:
    """A port P such that `nodes` ports from P on are free now, and as many at each of the offsets."""
    bases = list(range(19092, 30000, 97))
    random.shuffle(bases)  # clusters that are started at the same time shall not choose the same ports
    for base in bases:
        with suppress(OSError):
            for offset in LISTENER_OFFSETS:
                for port in range(base + offset, base + offset + nodes):
                    socket.create_server(("127.0.0.1", port)).close()
            return base
    raise OSError("no free range of ports between 19092 and 30000")


class System:
    """A running local cluster of `nodes` combined nodes; `stop` ends it."""

    name = "raftwerk"

    def __init__(self, directory: Path, nodes: int) -> None:
        self.directory = directory / "cluster"
        self.nodes = nodes
        self.base_port = _free_base_port(nodes)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.prepare()
        started = time.perf_counter()
        self.processes = self.launch()
        self._wait_ready()
        self.start_seconds = time.perf_counter() - started

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers."""
        return ",".join(f"127.0.0.1:{self.base_port + i}" for i in range(self.nodes))

    def prepare(self) -> None:
        """Do what must be done before the start is timed."""

    def launch(self) -> list[subprocess.Popen[bytes]]:
        """Start the processes."""
        command = [sys.executable, "-m", "raftwerk", "up", "-n", str(self.nodes), "--port", str(self.base_port)]
        with (self.directory.parent / "up.log").open("wb") as log:  # `up` takes no directory with other files
            return [subprocess.Popen([*command, "--dir", str(self.directory)], stdout=log, stderr=log)]

    def _wait_ready(self) -> None:
        deadline = time.monotonic() + READY_TIMEOUT_S
        waiting = list(range(self.nodes))
        while waiting:
            ended = [process.returncode for process in self.processes if process.poll() is not None]
            if ended:
                self.stop()
                raise RuntimeError(f"{self.name} ended with exit code {ended[0]}: {self._last_words()}")
            if time.monotonic() > deadline:
                self.stop()
                raise TimeoutError(f"{self.name} was not ready after {READY_TIMEOUT_S:.0f} s: see {self.directory}")
            if self.knows(waiting[0] + 1, self.nodes):
                waiting.pop(0)
                continue
            time.sleep(0.01)

    def _last_words(self) -> str:
        logs = [path for path in (self.directory.parent / "up.log", *self.directory.glob("n*.log")) if path.is_file()]
        return " ".join(path.read_text(errors="replace")[-500:].strip() for path in logs)

    def knows(self, node: int, brokers: int) -> bool:
        """Whether the node answers and knows at least this many brokers."""
        with suppress(OSError):
            return _broker_count(self.base_port + node - 1) >= brokers
        return False

    def pids(self) -> list[int]:
        """The process of each node."""
        return [int((self.directory / f"n{node}.pid").read_text()) for node in range(1, self.nodes + 1)]

    def memory_mb(self) -> list[float]:
        """The resident memory of each node's process, in MB."""
        return [memory_mb(pid) for pid in self.pids()]

    def stop(self) -> None:
        """Stop all processes."""
        for process in self.processes:
            process.send_signal(signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class ApacheKafka(System):
    """Apache Kafka, with the settings under which the figures of the design were measured."""

    name = "kafka"
    heap = "512m"
    settings: Mapping[str, object] = {}
    """Settings in addition to the usual ones."""

    @staticmethod
    def jars() -> Path | None:
        """The directory in `KAFKA_LIBS`, or the usual cache; None if it has no jars."""
        path = Path(os.environ.get("KAFKA_LIBS", Path.home() / ".cache" / "kafka-4.2.0"))
        return path if any(path.glob("kafka_2.13-*.jar")) else None

    def prepare(self) -> None:
        """Write the settings and format the log directories."""
        for node in range(1, self.nodes + 1):
            self._properties(node).write_text(self.render(node))
            command = [*self._java(), "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID]
            subprocess.run([*command, "-c", str(self._properties(node))], check=True, capture_output=True)

    def launch(self) -> list[subprocess.Popen[bytes]]:
        """Start the processes."""
        return [self.launch_node(node) for node in range(1, self.nodes + 1)]

    def launch_node(self, node: int) -> subprocess.Popen[bytes]:
        """Start the process of a node."""
        with (self.directory / f"n{node}.log").open("ab") as log:
            command = [*self._java(f"-Xms{self.heap}", f"-Xmx{self.heap}", "-XX:+UseG1GC"), "kafka.Kafka"]
            process = subprocess.Popen([*command, str(self._properties(node))], stdout=log, stderr=log)
        (self.directory / f"n{node}.pid").write_text(str(process.pid))
        return process

    def _java(self, *options: str) -> list[str]:
        return ["java", *options, "-cp", f"{self.jars()}/*"]

    def _properties(self, node: int) -> Path:
        return self.directory / f"s{node}.properties"

    def render(self, node: int) -> str:
        """The text of server.properties."""
        settings = {**node_settings(self, node), **self.settings}
        return "".join(f"{key}={value}\n" for key, value in settings.items())


def node_settings(system: System, node: int) -> dict[str, object]:
    """What server.properties has for a combined node with one listener for clients."""
    broker, controller = system.base_port + node - 1, system.base_port + 1000 + node
    copies = min(system.nodes, 3)
    return {
        "process.roles": "broker,controller",
        "node.id": node,
        "controller.quorum.voters": ",".join(
            f"{i}@127.0.0.1:{system.base_port + 1000 + i}" for i in range(1, system.nodes + 1)
        ),
        "listeners": f"PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{broker}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": system.directory / f"d{node}",
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": min(copies, 2),
        "group.initial.rebalance.delay.ms": 0,
    }
