"""Runs the same measurements on Raftwerk and on Apache Kafka, one after the other, and prints one table."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

from .client_workloads import Figure
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
                print(f"{system.name}: {figure.name}: {_cell(figure)}", file=sys.stderr, flush=True)
        finally:
            system.stop()
        return figures


def _cell(figure: Figure) -> str:
    mark = f" ({figure.bad} errors)" if figure.bad else ""
    return f"{figure.value:,.1f} {figure.unit}{mark}"


def _ratio(mine: Figure, other: Figure) -> str:
    if min(mine.value, other.value) <= 0 or mine.unit == "%":
        return ""
    ratio = mine.value / other.value if mine.bigger_is_better else other.value / mine.value
    return f"{ratio:.2f} x"


def table(results: dict[str, list[Figure]]) -> str:
    """The figures as a Markdown table; with both systems, its last column is how often Raftwerk's is better."""
    both = len(results) == 2
    heads = ["RF3, three nodes", *results, *(["better by"] if both else [])]
    lines = ["| " + " | ".join(heads) + " |", "|---" + "|---:" * (len(heads) - 1) + "|"]
    for row in zip(*results.values(), strict=True):
        cells = [row[0].name, *(_cell(figure) for figure in row), *([_ratio(*row)] if both else [])]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


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
    results = {one: _run(start, measure, options.seconds) for one, start in chosen.items()}
    print(table(results))
    return int(any(figure.bad for figures in results.values() for figure in figures))
