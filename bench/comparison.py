"""`python -m raftwerk.bench`: Raftwerk and Apache Kafka, measured in turn by the same client in one run.

Absolute figures drift from hour to hour on a shared machine; the ratio of two systems that are measured in one run does
not. Apache Kafka is measured if its jars are there.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from .common import client_workloads
from .common.client_workloads import Figure
from .common.systems import ApacheKafka, System


def _measure(system: System, scale: float) -> Iterable[Figure]:
    yield Figure(f"start of {system.nodes} nodes", system.start_seconds, "s", 0, False)
    yield Figure("memory a node, idle", statistics.mean(system.memory_mb()), "MB", 0, False)
    replication_factor = min(system.nodes, 3)
    tag, bootstrap = f"bench{int(time.time())}", system.bootstrap
    for acks, copies in ((1, 1), (-1, replication_factor)) if replication_factor > 1 else ((1, 1),):

        def topic(name: str, copies: int = copies) -> str:
            return client_workloads.create_topic(bootstrap, f"{tag}-{name}-rf{copies}", copies)

        client_workloads.produce(bootstrap, topic("warm"), int(50_000 * scale), 100, acks)
        for size, count in ((100, int(1_000_000 * scale)), (1024, int(400_000 * scale))):
            name = topic(f"p{size}")
            yield client_workloads.produce(bootstrap, name, count, size, acks)
            yield client_workloads.consume(bootstrap, name, count, size)
        yield client_workloads.produce_single(bootstrap, topic("single"), int(60_000 * scale), acks)
        yield from client_workloads.ack_latency(bootstrap, topic("latency"), 1000, 8 * scale, acks)


def _run(start: Callable[[Path, int], System], nodes: int, scale: float) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="raftwerk-bench-") as directory:
        system = start(Path(directory), nodes)
        figures = []
        try:
            for figure in _measure(system, scale):
                figures.append(figure)
                mark = f"  ({figure.bad} errors)" if figure.bad else ""
                print(f"{system.name:9} {figure.name:34} {figure.value:10,.1f} {figure.unit}{mark}", flush=True)
        finally:
            system.stop()
        return figures


def _print_ratios(ours: list[Figure], theirs: list[Figure]) -> None:
    print(f"\n{'':34} {'raftwerk':>12} {'kafka':>12}   better by")
    for mine, other in zip(ours, theirs, strict=True):
        ratio = mine.value / other.value if mine.bigger_is_better else other.value / mine.value
        print(f"{mine.name:34} {mine.value:12,.1f} {other.value:12,.1f}   {ratio:5.2f} x  {mine.unit}")


def main(arguments: list[str]) -> int:
    """Run the command line; the exit code is 1 if a figure has errors."""
    parser = argparse.ArgumentParser(prog="python -m raftwerk.bench", description=__doc__)
    parser.add_argument("-n", "--nodes", type=int, default=3, help="nodes of each cluster (default 3)")
    parser.add_argument("--scale", type=float, default=1.0, help="multiply the amount of work (default 1.0)")
    parser.add_argument("--only", choices=("raftwerk", "kafka"), help="measure one system")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args(arguments)
    systems: dict[str, Callable[[Path, int], System]] = {"raftwerk": System}
    if ApacheKafka.jars() is not None:
        systems["kafka"] = ApacheKafka
    elif options.only != "raftwerk":
        print("Apache Kafka is left out: no jars in $KAFKA_LIBS", file=sys.stderr)
    results = {
        name: _run(start, options.nodes, options.scale)
        for name, start in systems.items()
        if options.only in (None, name)
    }
    if len(results) == 2:
        _print_ratios(results["raftwerk"], results["kafka"])
    if options.json:
        rows = {name: [[f.name, f.value, f.unit, f.bad] for f in figures] for name, figures in results.items()}
        options.json.write_text(json.dumps(rows, indent=1))
    return int(any(figure.bad for figures in results.values() for figure in figures))
