"""`python -m raftwerk.bench cold`: how long a producer waits while a consumer reads old records from the disk.

There are three nodes. The old records are in a topic whose only replica is on the node that also leads the producer's
topic. In turn the producer is alone, beside a reader of old records in the page cache, and beside a reader of records
that were dropped from it. The difference of the last two is the cost of the disk. The reader is a process of its own.
A hold is the time for which the leader's event loop was held by its own work (processor time).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..cluster.local.layout import ClusterShape, plan_cluster
from ..cluster.local.supervisor import Supervisor
from ..runtime.files.page_cache import is_cached
from .common.page_cache import drop_from_page_cache
from .common.raw_client import RawClient, batches

_OLD, _NEW = "old", "new"
_FETCH_BYTES = 1 << 20
_KINDS = ("alone", "beside a warm reader", "beside a cold reader")
_STALL_MS = 5
_HELD = re.compile(r"event loop held for \d+ ms, cpu (\d+) ms")
_ALONE_S = 5.0
_SETTLE_S = 1.0


class Bench:
    """The cluster, and the node that leads both topics."""

    def __init__(self, supervisor: Supervisor, total_bytes: int) -> None:
        self._supervisor = supervisor
        self._total_bytes = total_bytes
        self.bootstrap = supervisor.plan.bootstrap
        self.latencies_s: dict[tuple[str, str], list[float]] = {}
        self.read_s: dict[tuple[str, str], list[float]] = {}
        self.holds_ms: dict[tuple[str, str], list[int]] = {}
        self.cached_share = 0.0

    def prepare(self) -> None:
        """Create the topics, and write the old records."""
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for topic in (NewTopic(_NEW, 1, 3, config={"min.insync.replicas": "2"}), NewTopic(_OLD, 6, 1)):
            for future in admin.create_topics([topic]).values():
                future.result()
        time.sleep(_SETTLE_S)
        topics = admin.list_topics(timeout=10).topics
        leader = topics[_NEW].partitions[0].leader
        self.partition = next(one.id for one in topics[_OLD].partitions.values() if one.leader == leader)
        plan = self._supervisor.plan.node(leader)
        self.port = plan.port or 0
        self._log = Path(plan.log_file)
        self._files = Path(plan.data_dir, f"{_OLD}-{self.partition}")
        client = RawClient(self.port)
        client.wait_until_leader(_OLD, self.partition)
        client.produce(_OLD, self.partition, batches(self._total_bytes, 64 * 1024))
        client.close()

    def drop_cache(self) -> None:
        """Drop the old records from the page cache; they are on the disk by then."""
        cached = total = 0
        for path in sorted(self._files.glob("*.log")):
            drop_from_page_cache(path)
            with path.open("rb") as file:
                for at in range(0, path.stat().st_size, 1 << 20):
                    cached += is_cached(file.fileno(), at, 4096)
                    total += 1
        self.cached_share = cached / max(total, 1)

    def turn(self, kind: str, acks: str) -> None:
        """Produce for some seconds, or for as long as the reader reads."""
        if kind == _KINDS[2]:
            self.drop_cache()
        reader = None
        log_bytes = self._log.stat().st_size
        began = time.monotonic()
        until = began + _ALONE_S
        if kind != _KINDS[0]:
            work = (self.port, self.partition, self._total_bytes)
            reader = multiprocessing.get_context("spawn").Process(target=read_all, args=work)
            reader.start()

        def goes_on() -> bool:
            return time.monotonic() < until if reader is None else reader.is_alive()

        times = produce(self.bootstrap, acks, goes_on)
        if reader is not None:
            reader.join()
            self.read_s.setdefault((kind, acks), []).append(time.monotonic() - began)
            if reader.exitcode:
                raise RuntimeError("the reader failed")
        self.latencies_s.setdefault((kind, acks), []).extend(times)
        logged = self._log.read_bytes()[log_bytes:].decode(errors="replace")
        self.holds_ms.setdefault((kind, acks), []).extend(int(found[1]) for found in _HELD.finditer(logged))
        time.sleep(_SETTLE_S)


def read_all(port: int, partition: int, total_bytes: int) -> None:
    """Read all old records; runs in a process of its own."""
    client = RawClient(port)
    got = offset = 0
    while got < total_bytes * 0.99:
        size, offset = client.fetch(_OLD, partition, offset, _FETCH_BYTES)
        got += size


def produce(bootstrap: str, acks: str, goes_on: Callable[[], bool], rate: int = 500) -> list[float]:
    """The seconds from send to ack of small records at a steady rate."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "acks": acks, "linger.ms": 0})
    times: list[float] = []

    def timed(sent: float) -> Callable[[Any, Any], None]:
        return lambda error, _: times.append(time.perf_counter() - sent) if error is None else None

    value = os.urandom(100)
    producer.produce(_NEW, value)
    producer.flush(30)  # connected
    begin, count = time.perf_counter(), 0
    while goes_on():
        wait_s = begin + count / rate - time.perf_counter()
        if wait_s > 0:
            producer.poll(wait_s)
            continue
        producer.produce(_NEW, value, on_delivery=timed(time.perf_counter()))
        count += 1
    if producer.flush(60) or len(times) != count:
        raise RuntimeError("records were not acknowledged")
    return times


def _show(bench: Bench) -> list[dict[str, Any]]:
    rows = []
    print(f"{'':36}{'p50':>9}{'p99':>9}{'p99.9':>9}{'max':>9}  ms{'acks':>8}{'read in, s':>12}{'longest hold, ms':>18}")
    for (kind, acks), latencies in sorted(bench.latencies_s.items(), key=lambda row: (row[0][1], row[0][0])):
        times = sorted(latencies)
        cells = [times[min(int(len(times) * of), len(times) - 1)] * 1e3 for of in (0.5, 0.99, 0.999, 1.0)]
        reads = bench.read_s.get((kind, acks), [])
        read_s = sorted(reads)[len(reads) // 2] if reads else 0.0
        names = ("p50_ms", "p99_ms", "p999_ms", "max_ms")
        hold_ms = max(bench.holds_ms[kind, acks], default=0)
        rows.append(
            {"acks": acks, "kind": kind, **dict(zip(names, cells, strict=True)), "read_s": read_s, "hold_ms": hold_ms}
        )
        text = "".join(f"{one:9.2f}" for one in cells)
        print(f"acks={acks:4} {kind:26}{text}{len(times):12}{read_s:12.1f}{hold_ms or f'< {_STALL_MS}':>18}")
    return rows


def main(arguments: list[str]) -> int:
    """Run the command line; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m raftwerk.bench cold", description=__doc__)
    parser.add_argument("--gb", type=float, default=1.0, help="old records (default 1)")
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args(arguments)
    directory = tempfile.mkdtemp(prefix="raftwerk-cold-")
    supervisor = Supervisor(
        plan_cluster(directory, ClusterShape(3, port=0, overrides={"event.loop.stall.log.ms": str(_STALL_MS)}))
    )
    try:
        supervisor.start()
        bench = Bench(supervisor, int(options.gb * 1e9))
        bench.prepare()
        for _ in range(options.turns):
            for acks in ("1", "all"):
                for kind in _KINDS:
                    bench.turn(kind, acks)
        print(f"left in the page cache after it was dropped: {bench.cached_share:.0%}")
        rows = _show(bench)
    finally:
        supervisor.stop()
        shutil.rmtree(directory, ignore_errors=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    return 0
