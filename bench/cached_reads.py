"""`python -m raftwerk.bench reads`: the cost of serving records that are in the page cache.

Raftwerk with sendfile, Raftwerk without it, and Apache Kafka if its jars are there, each a single node with the same
data. For every fetch size they are read in turn, several times, by a client that only receives, and once more by
librdkafka. A row is the processor time of the broker's process for each GB, and the MB/s.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..cluster.local.layout import ClusterShape, plan_cluster
from ..cluster.local.processes import cpu_seconds
from ..cluster.local.supervisor import Supervisor
from .common.client_workloads import create_topic
from .common.raw_client import RawClient, batches
from .common.systems import ApacheKafka

TOPIC = "reads"
_BATCH_BYTES = 16 * 1024
_GB = 1e9


@dataclass
class Served:
    """A single node with the data in it."""

    name: str
    port: int
    pid: int
    stop: Callable[[], object]

    @property
    def cpu_s(self) -> float:
        """Processor seconds of the broker's process."""
        return cpu_seconds(self.pid) or 0.0


def start_raftwerk(name: str, directory: Path, overrides: dict[str, str]) -> Served:
    """Start a node of Raftwerk with these settings."""
    supervisor = Supervisor(plan_cluster(str(directory), ClusterShape(1, port=0, overrides=overrides)))
    supervisor.start()
    plan = supervisor.plan.brokers[0]
    return Served(name, plan.port or 0, supervisor.children[plan.node_id].pid, supervisor.stop)


def start_kafka(directory: Path) -> Served:
    """Start a node of Apache Kafka."""
    system = ApacheKafka(directory, 1)
    return Served("kafka", system.base_port, int((directory / "n1.pid").read_text()), system.stop)


def fill(served: Served, total_bytes: int) -> None:
    """Create a topic of six partitions, and write all data into the first one."""
    create_topic(f"127.0.0.1:{served.port}", TOPIC, 1)
    client = RawClient(served.port)
    client.wait_until_leader(TOPIC, 0)
    client.produce(TOPIC, 0, batches(total_bytes, _BATCH_BYTES))
    client.close()


def read_raw(served: Served, fetch_bytes: int, total_bytes: int) -> tuple[float, float]:
    """The broker's processor seconds for each GB, and MB/s, of reading `total_bytes` in fetches of this size."""
    client = RawClient(served.port)
    got = offset = 0
    cpu_s, began = served.cpu_s, time.perf_counter()
    while got < total_bytes:
        size, offset = client.fetch(TOPIC, 0, offset, fetch_bytes)
        if not size:
            offset = 0
        got += size
    seconds = time.perf_counter() - began
    client.close()
    return (served.cpu_s - cpu_s) / got * _GB, got / seconds / 1e6


def read_librdkafka(served: Served, _: int, total_bytes: int) -> tuple[float, float]:
    """The same figures for a consumer of librdkafka with large fetches."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": f"127.0.0.1:{served.port}",
            "group.id": "bench",
            "enable.auto.commit": False,
            "max.partition.fetch.bytes": 8 << 20,
            "queued.max.messages.kbytes": 262_144,
            "fetch.queue.backoff.ms": 5,
        }
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    got = 0
    cpu_s, began = served.cpu_s, time.perf_counter()
    while got < total_bytes * 0.97:
        messages = consumer.consume(10_000, 5)
        if not messages:
            break
        got += 1000 * len(messages)
    seconds = time.perf_counter() - began
    consumer.close()
    return (served.cpu_s - cpu_s) / got * _GB, got / seconds / 1e6


def _measure(systems: list[Served], sizes: list[int], total_bytes: int, rounds: int) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    ways = [(f"{size >> 10} KiB", read_raw, size) for size in sizes] + [("librdkafka", read_librdkafka, 0)]
    print(f"{'fetches of':12}" + "".join(f"{one.name:>34}" for one in systems), flush=True)
    for name, way, size in ways:
        found: dict[str, list[tuple[float, float]]] = {one.name: [] for one in systems}
        for _ in range(rounds):
            for one in systems:
                found[one.name].append(way(one, size, total_bytes))
        row: dict[str, object] = {"fetch": name}
        text = f"{name:12}"
        for one in systems:
            cpu = statistics.median(cost for cost, _ in found[one.name])
            speed = statistics.median(rate for _, rate in found[one.name])
            row[one.name] = {"cpu_s_per_gb": round(cpu, 3), "mb_per_s": round(speed)}
            text += f"{cpu:16.3f} s/GB {speed:8.0f} MB/s"
        rows.append(row)
        print(text, flush=True)
    return rows


def main(arguments: list[str]) -> int:
    """Run the command line; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m raftwerk.bench reads", description=__doc__)
    parser.add_argument("--gb", type=float, default=1.0, help="data of each round (default 1)")
    parser.add_argument("--rounds", type=int, default=3, help="times each is measured, in turn (default 3)")
    parser.add_argument("--sizes-kib", type=int, nargs="+", default=[16, 32, 64, 128, 256, 1024, 4096, 16384])
    parser.add_argument("--without-kafka", action="store_true")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args(arguments)
    directory = Path(tempfile.mkdtemp(prefix="raftwerk-reads-"))
    total_bytes = int(options.gb * _GB)
    systems: list[Served] = []
    try:
        for name, least in (("sendfile", "1"), ("read and write", "-1")):
            systems.append(start_raftwerk(name, directory / name[:4], {"fetch.sendfile.min.bytes": least}))
        if ApacheKafka.jars() is not None and not options.without_kafka:
            systems.append(start_kafka(directory / "kafka"))
        for one in systems:
            fill(one, total_bytes)
        rows = _measure(systems, [size << 10 for size in options.sizes_kib], total_bytes, options.rounds)
    finally:
        for one in systems:
            one.stop()
        shutil.rmtree(directory, ignore_errors=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    return 0
