"""The processes that the scale benchmark measures: three combined nodes of Raftwerk or of Apache Kafka."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Protocol

from ...cluster.local.layout import ClusterShape, plan_cluster
from ...cluster.local.processes import cpu_seconds, memory_bytes
from ...cluster.local.supervisor import Supervisor
from ...wire.records import iter_headers
from ..common.systems import ApacheKafka

NODES = 3
STALL_MS = 20
_METADATA_DIR = "__cluster_metadata-0"
_SNAPSHOT_INTERVAL_MS = 20_000
_HELD = re.compile(r"event loop held for (\d+) ms, cpu (\d+) ms, gc (\d+) ms")


class MetadataLog(NamedTuple):
    """A node's metadata log on disk: bytes, records, and its largest batch in bytes."""

    size_bytes: int
    records: int
    largest_batch_bytes: int


class Holds(NamedTuple):
    """The longest hold of an event loop: by the clock, and by the processor time of its thread."""

    longest_ms: int
    longest_cpu_ms: int


class Nodes(Protocol):
    """Three combined nodes with the ids 1 to 3."""

    name: str
    ports: Mapping[int, int]

    def pid(self, node: int) -> int:
        """The process id of a node."""

    def kill(self, node: int, sent: signal.Signals) -> None:
        """Send a signal; after SIGKILL return when the process has ended."""

    def wait_gone(self, node: int, timeout_s: float) -> None:
        """Wait until the process has ended."""

    def restart(self, node: int, timeout_s: float) -> None:
        """Start a dead node, and return when it listens."""

    def stop(self, timeout_s: float) -> None:
        """Stop all nodes."""

    def data_dir(self, node: int) -> Path:
        """The log directory of a node."""

    def holds(self) -> Holds | None:
        """The longest holds of the nodes' loops since the last call; None if loops are not observed."""


class RaftwerkNodes:
    """Nodes of Raftwerk under its supervisor."""

    name = "raftwerk"

    def __init__(self, directory: Path) -> None:
        overrides = {
            "event.loop.stall.log.ms": str(STALL_MS),
            "metadata.log.max.snapshot.interval.ms": str(_SNAPSHOT_INTERVAL_MS),
        }
        self._supervisor = Supervisor(plan_cluster(str(directory), ClusterShape(NODES, port=0, overrides=overrides)))
        self._supervisor.start()
        self.ports: Mapping[int, int] = {plan.node_id: plan.port or 0 for plan in self._supervisor.plan.brokers}
        self._read: dict[int, int] = {}

    def pid(self, node: int) -> int:
        """See `Nodes`."""
        return self._supervisor.children[node].pid

    def kill(self, node: int, sent: signal.Signals) -> None:
        """See `Nodes`."""
        self._supervisor.kill(node, sent)

    def wait_gone(self, node: int, timeout_s: float) -> None:
        """See `Nodes`."""
        self._supervisor.children[node].process.wait(timeout_s)

    def restart(self, node: int, timeout_s: float) -> None:
        """See `Nodes`."""
        self._supervisor.restart_node(node, timeout_s)

    def stop(self, timeout_s: float) -> None:
        """See `Nodes`."""
        self._supervisor.stop(timeout_s)

    def data_dir(self, node: int) -> Path:
        """See `Nodes`."""
        return Path(self._supervisor.plan.node(node).data_dir)

    def holds(self) -> Holds:
        """See `Nodes`."""
        found: list[tuple[int, int]] = []
        for plan in self._supervisor.plan.nodes:
            data = Path(plan.log_file).read_bytes()
            text = data[self._read.get(plan.node_id, 0) :].decode(errors="replace")
            self._read[plan.node_id] = len(data)
            found += [(int(one[1]), int(one[2])) for one in _HELD.finditer(text)]
        return Holds(max((ms for ms, _ in found), default=0), max((cpu for _, cpu in found), default=0))


class KafkaNodes(ApacheKafka):
    """Nodes of Apache Kafka."""

    settings: Mapping[str, object] = {
        "metadata.log.max.snapshot.interval.ms": _SNAPSHOT_INTERVAL_MS,
        "leader.imbalance.check.interval.seconds": 5,
    }

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, NODES)
        self.ports: Mapping[int, int] = {node: self.base_port + node - 1 for node in range(1, NODES + 1)}

    def pid(self, node: int) -> int:
        """See `Nodes`."""
        return self.processes[node - 1].pid

    def kill(self, node: int, sent: signal.Signals) -> None:
        """See `Nodes`."""
        self.processes[node - 1].send_signal(sent)
        if sent is signal.SIGKILL:
            self.processes[node - 1].wait()

    def wait_gone(self, node: int, timeout_s: float) -> None:
        """See `Nodes`."""
        self.processes[node - 1].wait(timeout_s)

    def restart(self, node: int, timeout_s: float) -> None:
        """See `Nodes`."""
        self.processes[node - 1] = self.launch_node(node)
        deadline = time.monotonic() + timeout_s
        while not self.knows(node, NODES):
            if time.monotonic() > deadline:
                raise TimeoutError(f"node {node} was not ready after {timeout_s:.0f} s: see {self.directory}")
            time.sleep(0.01)

    def stop(self, timeout_s: float = 30.0) -> None:
        """See `Nodes`."""
        running = [process for process in self.processes if process.poll() is None]
        for process in running:
            process.terminate()
        for process in running:
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout_s)
            process.kill()
            process.wait()

    def data_dir(self, node: int) -> Path:
        """See `Nodes`."""
        return self.directory / f"d{node}"

    def holds(self) -> None:
        """See `Nodes`."""
        return


def memory_mb(nodes: Nodes) -> float:
    """The resident memory of the largest node, in MB."""
    return max(memory_bytes(nodes.pid(node)) or 0 for node in nodes.ports) / 1e6


def cpu_s(nodes: Nodes) -> dict[int, float]:
    """The processor seconds of each running process."""
    taken = {nodes.pid(node): cpu_seconds(nodes.pid(node)) for node in nodes.ports}
    return {pid: seconds for pid, seconds in taken.items() if seconds is not None}


def descriptors(nodes: Nodes) -> int:
    """The open descriptors of the node with the most."""
    return max(len(list(Path(f"/proc/{nodes.pid(node)}/fd").iterdir())) for node in nodes.ports)


def metadata_log(nodes: Nodes) -> MetadataLog:
    """The longest of the nodes' metadata logs."""
    found = []
    for node in nodes.ports:
        size = records = largest = 0
        for path in sorted((nodes.data_dir(node) / _METADATA_DIR).glob("*.log")):
            data = path.read_bytes()
            size += len(data)
            for _, header in iter_headers(data):
                records += header.record_count
                largest = max(largest, header.size_bytes)
        found.append(MetadataLog(size, records, largest))
    return max(found)


def snapshots(nodes: Nodes) -> dict[int, tuple[int, int]]:
    """The end offset and the size in bytes of the latest metadata snapshot of each node that has one."""
    latest = {}
    for node in nodes.ports:
        paths = sorted((nodes.data_dir(node) / _METADATA_DIR).glob("*.checkpoint"))
        if paths:
            latest[node] = (int(paths[-1].name.split("-")[0]), paths[-1].stat().st_size)
    return latest
