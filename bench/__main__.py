"""`python -m raftwerk.bench`: Raftwerk, and Apache Kafka where its jars are, measured in turn by one client.

Absolute figures drift from hour to hour on a shared machine; the ratio of two systems measured in one run does not.
`python -m raftwerk.bench scale` measures what many partitions cost, `groups` many groups, `compaction` what a producer
waits beside a compaction, `recovery` how long logs take to open; `reads`, `cold`, `log-size` and `writes` what
records on the disk cost; `audit` how long a history takes to be judged.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from . import workloads
from .systems import ApacheKafka, System
from .workloads import Figure


def _measure(system: System, scale: float) -> Iterable[Figure]:
    yield Figure(f"start of {system.nodes} nodes", system.start_seconds, "s", 0, False)
    yield Figure("memory a node, idle", statistics.mean(system.memory_mb()), "MB", 0, False)
    replication_factor = min(system.nodes, 3)
    tag, bootstrap = f"bench{int(time.time())}", system.bootstrap
    for acks, copies in ((1, 1), (-1, replication_factor)) if replication_factor > 1 else ((1, 1),):

        def topic(name: str, copies: int = copies) -> str:
            return workloads.create_topic(bootstrap, f"{tag}-{name}-rf{copies}", copies)

        workloads.produce(bootstrap, topic("warm"), int(50_000 * scale), 100, acks)
        for size, count in ((100, int(1_000_000 * scale)), (1024, int(400_000 * scale))):
            name = topic(f"p{size}")
            yield workloads.produce(bootstrap, name, count, size, acks)
            yield workloads.consume(bootstrap, name, count, size)
        yield workloads.produce_single(bootstrap, topic("single"), int(60_000 * scale), acks)
        yield from workloads.ack_latency(bootstrap, topic("latency"), 1000, 8 * scale, acks)


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


_OTHERS = ("scale", "groups", "compaction", "reads", "cold", "log-size", "writes", "recovery", "audit")


def main() -> int:
    if sys.argv[1:2] and sys.argv[1] in _OTHERS:
        other = importlib.import_module(f".{sys.argv[1].replace('-', '_')}", __package__)
        return int(other.main(sys.argv[2:]))
    parser = argparse.ArgumentParser(prog="python -m raftwerk.bench", description=__doc__)
    parser.add_argument("-n", "--nodes", type=int, default=3, help="nodes of each cluster (default 3)")
    parser.add_argument("--scale", type=float, default=1.0, help="multiply the amount of work (default 1.0)")
    parser.add_argument("--only", choices=("raftwerk", "kafka"), help="measure one system")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
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


if __name__ == "__main__":
    sys.exit(main())
