"""`python -m raftwerk.bench scale`: many partitions on three nodes: made in bulk, idle, described, failed over.

For each number of partitions a cluster of its own. Half of the partitions come by CreateTopics (many topics of ten
partitions a request), half by CreatePartitions (topics of one partition grown to a thousand). Stalls are what the nodes
themselves saw their event loops held for (`event.loop.stall.log.ms`), by the processor time of the loop's thread: on a
machine shared with others, the time on the clock says little.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..cluster.layout import ClusterShape, plan_cluster
from ..cluster.supervisor import Supervisor, cpu_seconds, memory_bytes
from ..wire.records import iter_headers

STALL_MS = 20
_PARTITIONS_A_TOPIC = 10
_GROWN_TO = 1000
_TOPICS_A_REQUEST = 100
_HELD = re.compile(r"event loop held for (\d+) ms, cpu (\d+) ms, gc (\d+) ms")
_TIMEOUT_S = 600.0


@dataclass
class Row:
    """One figure of one phase."""

    name: str
    value: float
    unit: str


@dataclass
class Cluster:
    """Three nodes and one client."""

    partitions: int
    supervisor: Supervisor
    rows: list[Row] = field(default_factory=list)
    _log_sizes: dict[int, int] = field(default_factory=dict)

    @property
    def nodes(self) -> list[int]:
        return [plan.node_id for plan in self.supervisor.plan.brokers]

    def put(self, name: str, value: float, unit: str) -> None:
        self.rows.append(Row(name, value, unit))
        print(f"{self.partitions:7} {name:58} {value:12,.2f} {unit}", flush=True)

    def admin(self, *nodes: int) -> Any:
        """A client that knows these nodes (default all) only."""
        from confluent_kafka.admin import AdminClient

        plans = [plan for plan in self.supervisor.plan.brokers if not nodes or plan.node_id in nodes]
        bootstrap = ",".join(f"127.0.0.1:{plan.port}" for plan in plans)
        return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, "topic.metadata.refresh.interval.ms": -1})

    def stalls(self, phase: str) -> None:
        """Report what the nodes' logs tell since the last call."""
        cpu: list[int] = []
        elections = fenced = 0
        for plan in self.supervisor.plan.nodes:
            data = Path(plan.log_file).read_bytes()
            text = data[self._log_sizes.get(plan.node_id, 0) :].decode(errors="replace")
            self._log_sizes[plan.node_id] = len(data)
            cpu += [max(int(found[2]), int(found[3])) for found in _HELD.finditer(text)]
            elections += text.count("candidate in epoch") + text.count("becomes candidate")
            fenced += text.count("to RECOVERY")
        self.put(f"{phase}: longest hold of a loop (cpu)", max(cpu, default=0), "ms")
        self.put(f"{phase}: holds over {STALL_MS} ms (cpu)", sum(one >= STALL_MS for one in cpu), "times")

    def metadata_log(self) -> tuple[int, int, int]:
        """Bytes of the metadata log on the largest node, its records, and its largest batch in bytes."""
        sizes = []
        for plan in self.supervisor.plan.nodes:
            size = records = largest = 0
            for path in sorted(Path(plan.data_dir).glob("__cluster_metadata-0/*.log")):
                data = path.read_bytes()
                size += len(data)
                for _, header in iter_headers(data):
                    records += header.record_count
                    largest = max(largest, header.size_bytes)
            sizes.append((size, records, largest))
        return max(sizes)

    def leaders(self, admin: Any) -> dict[tuple[str, int], tuple[int, int]]:
        """Leader and size of the ISR of every partition."""
        topics = admin.list_topics(timeout=120).topics
        return {
            (name, index): (one.leader, len(one.isrs))
            for name, topic in topics.items()
            for index, one in topic.partitions.items()
        }

    def until(self, what: Callable[[], bool]) -> float:
        """Seconds until it holds."""
        began = time.monotonic()
        while not what():
            if time.monotonic() - began > _TIMEOUT_S:
                raise TimeoutError(f"after {_TIMEOUT_S:.0f} s: see {self.supervisor.plan.directory}")
            time.sleep(0.05)
        return time.monotonic() - began


# ---- phases ---------------------------------------------------------------------------------------------------------


def _create(cluster: Cluster) -> None:
    from confluent_kafka.cimpl import NewPartitions, NewTopic

    admin = cluster.admin()
    grown = max(1, cluster.partitions // 2 // _GROWN_TO)
    many = (cluster.partitions - grown * _GROWN_TO) // _PARTITIONS_A_TOPIC
    began = time.monotonic()
    slowest = 0.0
    for first in range(0, many, _TOPICS_A_REQUEST):
        topics = [
            NewTopic(f"many-{i}", _PARTITIONS_A_TOPIC, 3) for i in range(first, min(many, first + _TOPICS_A_REQUEST))
        ]
        asked = time.monotonic()
        for future in admin.create_topics(topics, request_timeout=120).values():
            future.result()
        slowest = max(slowest, time.monotonic() - asked)
    cluster.put(f"CreateTopics of {_TOPICS_A_REQUEST} x {_PARTITIONS_A_TOPIC}, slowest request", slowest, "s")
    names = [f"grown-{i}" for i in range(grown)]
    for future in admin.create_topics([NewTopic(name, 1, 3) for name in names], request_timeout=120).values():
        future.result()
    slowest = 0.0
    for name in names:
        asked = time.monotonic()
        for future in admin.create_partitions([NewPartitions(name, _GROWN_TO)], request_timeout=120).values():
            future.result()
        slowest = max(slowest, time.monotonic() - asked)
    cluster.put(f"CreatePartitions to {_GROWN_TO}, slowest request", slowest, "s")
    cluster.put("all requests answered after", time.monotonic() - began, "s")
    expected = many * _PARTITIONS_A_TOPIC + grown * _GROWN_TO

    def complete() -> bool:
        known = cluster.leaders(admin)
        return len(known) == expected and all(leader >= 0 and isr == 3 for leader, isr in known.values())

    cluster.until(complete)
    cluster.put("every partition with a leader and three in sync after", time.monotonic() - began, "s")
    size, records, largest = cluster.metadata_log()
    cluster.put("metadata log", size / 1024, "KiB")
    cluster.put("metadata bytes a record", size / max(records, 1), "B")
    cluster.put("largest metadata batch", largest / 1024, "KiB")
    time.sleep(2)
    cluster.stalls("creation")


def _idle(cluster: Cluster) -> None:
    time.sleep(8)
    before = {node: _cpu(cluster, node) for node in cluster.nodes}
    cluster.stalls("settling")
    time.sleep(15)
    shares = [(_cpu(cluster, node) - before[node]) / 15 * 100 for node in cluster.nodes]
    cluster.put("idle: processor of a core a node, greatest", max(shares), "%")
    cluster.put("idle: memory a node, greatest", max(_memory_mb(cluster)), "MB")
    fds = [len(list(Path(f"/proc/{cluster.supervisor.children[n].pid}/fd").iterdir())) for n in cluster.nodes]
    cluster.put("idle: open descriptors a node, greatest", max(fds), "")
    cluster.stalls("idle")


def _cpu(cluster: Cluster, node: int) -> float:
    return cpu_seconds(cluster.supervisor.children[node].pid) or 0.0


def _memory_mb(cluster: Cluster) -> Iterator[float]:
    for child in cluster.supervisor.children.values():
        yield (memory_bytes(child.pid) or 0) / 1e6


def _describe(cluster: Cluster) -> None:
    admin = cluster.admin()
    cluster.leaders(admin)
    began = time.monotonic()
    cluster.leaders(admin)
    cluster.put("list_topics of everything (librdkafka)", (time.monotonic() - began) * 1000, "ms")
    cluster.stalls("describe")


def _controller(cluster: Cluster) -> int:
    return int(cluster.admin().list_topics(timeout=120).controller_id)


def _kill_leader(cluster: Cluster) -> None:
    controller = _controller(cluster)
    victim = next(node for node in cluster.nodes if node != controller)
    admin = cluster.admin(*[node for node in cluster.nodes if node != victim])
    led = sum(leader == victim for leader, _ in cluster.leaders(admin).values())
    before, records, _ = cluster.metadata_log()
    cluster.stalls("before the kill")
    cluster.supervisor.kill(victim)
    began = time.monotonic()
    cluster.until(lambda: all(leader not in (victim, -1) for leader, _ in cluster.leaders(admin).values()))
    cluster.put(f"kill of a broker that leads {led}: new leaders for all after", time.monotonic() - began, "s")
    time.sleep(1)
    size, later, largest = cluster.metadata_log()
    cluster.put("... metadata written", (size - before) / 1024, "KiB")
    cluster.put("... metadata bytes a record", (size - before) / max(1, later - records), "B")
    cluster.put("... largest metadata batch so far", largest / 1024, "KiB")
    cluster.stalls("kill of a broker")
    _restart(cluster, victim, admin, "restart after the kill")


def _restart(cluster: Cluster, node: int, admin: Any, phase: str) -> None:
    began = time.monotonic()
    cluster.supervisor.restart_node(node, timeout_s=_TIMEOUT_S)
    cluster.put(f"{phase}: ready after", time.monotonic() - began, "s")
    cluster.until(lambda: all(isr == 3 for _, isr in cluster.leaders(admin).values()))
    cluster.put(f"{phase}: everything in sync after", time.monotonic() - began, "s")
    cluster.until(lambda: sum(leader == node for leader, _ in cluster.leaders(admin).values()) > cluster.partitions / 4)
    cluster.put(f"{phase}: leads again after", time.monotonic() - began, "s")
    cluster.stalls(phase)


def _kill_controller(cluster: Cluster) -> None:
    from confluent_kafka.cimpl import KafkaError, KafkaException, NewTopic

    victim = _controller(cluster)
    others = [node for node in cluster.nodes if node != victim]
    admin = cluster.admin(*others)
    cluster.leaders(admin)
    cluster.supervisor.kill(victim)
    began = time.monotonic()

    def made() -> bool:
        try:
            # A new client each time: an old one looks for the controller it knew.
            for future in cluster.admin(*others).create_topics([NewTopic("after", 1, 2)], request_timeout=5).values():
                future.result()
        except KafkaException as error:
            return bool(error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS)
        return True

    cluster.until(made)
    cluster.put("kill of the controller: the next one made a topic after", time.monotonic() - began, "s")
    cluster.until(lambda: all(leader not in (victim, -1) for leader, _ in cluster.leaders(admin).values()))
    cluster.put("kill of the controller: new leaders for all after", time.monotonic() - began, "s")
    cluster.stalls("kill of the controller")
    for future in admin.delete_topics(["after"], request_timeout=60).values():
        future.result()
    _restart(cluster, victim, admin, "restart of the controller")


def _controlled_shutdown(cluster: Cluster) -> None:
    controller = _controller(cluster)
    victim = next(node for node in cluster.nodes if node != controller)
    admin = cluster.admin(*[node for node in cluster.nodes if node != victim])
    child = cluster.supervisor.children[victim]
    led = sum(leader == victim for leader, _ in cluster.leaders(admin).values())
    cluster.supervisor.kill(victim, signal.SIGTERM)
    began = time.monotonic()
    cluster.until(lambda: all(leader not in (victim, -1) for leader, _ in cluster.leaders(admin).values()))
    cluster.put(f"controlled shutdown of a leader of {led}: all moved after", time.monotonic() - began, "s")
    child.process.wait(_TIMEOUT_S)
    cluster.put("controlled shutdown: process gone after", time.monotonic() - began, "s")
    cluster.stalls("controlled shutdown")
    _restart(cluster, victim, admin, "restart after it")


_PHASES: dict[str, Callable[[Cluster], None]] = {
    "create": _create,
    "idle": _idle,
    "describe": _describe,
    "kill": _kill_leader,
    "controller": _kill_controller,
    "shutdown": _controlled_shutdown,
}


def _measure(partitions: int, phases: list[str], keep: bool) -> list[Row]:
    directory = tempfile.mkdtemp(prefix="raftwerk-scale-")
    overrides = {"event.loop.stall.log.ms": str(STALL_MS)}
    supervisor = Supervisor(plan_cluster(directory, ClusterShape(3, port=0, overrides=overrides)))
    cluster = Cluster(partitions, supervisor)
    try:
        supervisor.start()
        for phase in phases:
            _PHASES[phase](cluster)
    finally:
        began = time.monotonic()
        supervisor.stop(_TIMEOUT_S)
        cluster.put("stop of the whole cluster", time.monotonic() - began, "s")
        if keep:
            print(f"kept: {directory}")
        else:
            shutil.rmtree(directory, ignore_errors=True)
    return cluster.rows


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m raftwerk.bench scale", description=__doc__)
    parser.add_argument("--partitions", type=int, nargs="+", default=[1000, 5000, 20000])
    parser.add_argument("--phases", nargs="+", choices=list(_PHASES), default=list(_PHASES))
    parser.add_argument("--keep", action="store_true", help="leave the nodes' logs and data where they are")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args(arguments)
    phases = ["create", *[phase for phase in options.phases if phase != "create"]]
    results = {count: _measure(count, phases, options.keep) for count in options.partitions}
    names = list(
        dict.fromkeys(re.sub(r"leads? \d+|of \d+:", "", row.name) for rows in results.values() for row in rows)
    )
    print(f"\n{'':60}" + "".join(f"{count:>12,}" for count in results))
    for name in names:
        cells = []
        for rows in results.values():
            found = [row for row in rows if re.sub(r"leads? \d+|of \d+:", "", row.name) == name]
            cells.append(f"{found[-1].value:12,.2f}" if found else f"{'-':>12}")
        unit = next(
            row.unit for rows in results.values() for row in rows if name == re.sub(r"leads? \d+|of \d+:", "", row.name)
        )
        print(f"{name:60}{''.join(cells)} {unit}")
    if options.json:
        options.json.write_text(
            json.dumps({n: [[r.name, r.value, r.unit] for r in rows] for n, rows in results.items()})
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
