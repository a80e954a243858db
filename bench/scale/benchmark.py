"""`python -m raftwerk.bench scale`: many partitions on three nodes: created, idle, described, failed over.

Each number of partitions has a cluster of its own, of Raftwerk or, with `--system kafka`, of Apache Kafka. Times are by
the clock of a client that asks some 50 times a second for what is missing, so they include the cost of its requests. A
hold is a time for which the event loop of a node of Raftwerk was held, by the clock and by the processor time of its
thread (`event.loop.stall.log.ms`); the two differ on a machine that is shared with others.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from .client import Client
from .nodes import KafkaNodes, Nodes, RaftwerkNodes
from .phases import PHASES, TIMEOUT_S, Bench, Row

_SYSTEMS: dict[str, Callable[[Path], Nodes]] = {"raftwerk": RaftwerkNodes, "kafka": KafkaNodes}


def _measure(options: argparse.Namespace, partitions: int) -> list[Row]:
    directory = tempfile.mkdtemp(prefix="raftwerk-scale-")
    nodes = _SYSTEMS[options.system](Path(directory))
    bench = Bench(nodes, Client(nodes.ports), partitions, options.request)
    phases = [name for name in PHASES if name == "create" or name in options.phases]
    try:
        asyncio.run(_run(bench, phases))
    finally:
        began = time.monotonic()
        nodes.stop(TIMEOUT_S)
        bench.put("stop of the whole cluster", time.monotonic() - began, "s")
        if options.keep:
            print(f"kept: {directory}")
        else:
            shutil.rmtree(directory, ignore_errors=True)
    return bench.rows


async def _run(bench: Bench, phases: list[str]) -> None:
    try:
        for phase in phases:
            await PHASES[phase](bench)
    finally:
        bench.client.close()


def _print_table(results: Mapping[int, list[Row]]) -> None:
    units = {row.name: row.unit for rows in results.values() for row in rows}
    print(f"\n| {'':64} |" + "".join(f"{count:>11,} |" for count in results))
    print(f"|{'-' * 66}|" + f"{'-' * 11}:|" * len(results))
    for name, unit in units.items():
        values = [next((row.value for row in rows if row.name == name), None) for rows in results.values()]
        cells = "".join(f"{'-':>11} |" if value is None else f"{value:11,.2f} |" for value in values)
        print(f"| {name + (', ' + unit if unit else ''):64} |{cells}")


def main(arguments: list[str]) -> int:
    """Run the command line; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m raftwerk.bench scale", description=__doc__)
    parser.add_argument("--system", choices=tuple(_SYSTEMS), default="raftwerk", help="default raftwerk")
    parser.add_argument("--partitions", type=int, nargs="+", default=[1000, 3000, 7000, 20000])
    parser.add_argument("--phases", nargs="+", choices=tuple(PHASES), default=list(PHASES), help="default all")
    parser.add_argument("--request", type=int, default=1000, help="partitions a CreateTopics request (default 1000)")
    parser.add_argument("--keep", action="store_true", help="leave the nodes' logs and data where they are")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args(arguments)
    if options.system == "kafka" and KafkaNodes.jars() is None:
        parser.error("no jars of Apache Kafka: name their directory in KAFKA_LIBS")
    results = {}
    for count in options.partitions:
        print(f"load of the machine: {', '.join(f'{load:.1f}' for load in os.getloadavg())}")
        results[count] = _measure(options, count)
    _print_table(results)
    if options.json:
        rows = {count: [[row.name, row.value, row.unit] for row in found] for count, found in results.items()}
        options.json.write_text(json.dumps(rows, indent=1))
    return 0
