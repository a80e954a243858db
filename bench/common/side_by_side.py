"""Runs the same measurements on Raftwerk and on Apache Kafka, one after the other, and prints one table."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

from .client_workloads import Figure
from .results import Results, number
from .systems import ApacheKafka, System

NODES = REPLICAS = 3
Start: TypeAlias = Callable[[Path, int], System]
"""Starts a cluster with so many nodes in a directory."""
Measure: TypeAlias = Callable[[System, float], Iterator[Figure]]
"""Measures the rows on a running system; each measurement takes so many seconds."""


def _run(start: Start, measure: Measure, seconds: float) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="raftwerk-bench-") as directory:
        system = start(Path(directory), NODES)
        figures = []
        try:
            for figure in measure(system, seconds):
                figures.append(figure)
                print(
                    f"{system.name}: {figure.name}: {number(figure.value)} {figure.unit}", file=sys.stderr, flush=True
                )
        finally:
            system.stop()
        return figures


def run(
    arguments: list[str], name: str, description: str | None, measure: Measure, *, ours: Start, theirs: Start
) -> int:
    """Run the command line of the benchmark `name`; the exit code is 1 if a figure has errors."""
    parser = argparse.ArgumentParser(prog=f"python -m raftwerk.bench {name}", description=description)
    parser.add_argument("--seconds", type=float, default=5.0, help="length of each measurement (default 5)")
    parser.add_argument("--only", choices=("raftwerk", "kafka"), help="measure one system")
    options = parser.parse_args(arguments)
    systems = {"raftwerk": ours}
    if ApacheKafka.jars() is not None:
        systems["kafka"] = theirs
    elif options.only != "raftwerk":
        print("Apache Kafka is left out: no jars in $KAFKA_LIBS", file=sys.stderr)
    chosen = {one: start for one, start in systems.items() if options.only in (None, one)}
    results = Results(list(chosen))
    for one, start in chosen.items():
        for figure in _run(start, measure, options.seconds):
            results.add(one, figure)
    print(results.table("RF3, three nodes"))
    return int(results.is_bad)
