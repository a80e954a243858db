"""`python -m raftwerk.bench`: Raftwerk and Apache Kafka, measured in turn by the same client in one run.

Absolute figures drift from hour to hour on a shared machine; the ratio of two systems that are measured in one run does
not. Both clusters run all the time and are warm before the first turn; each turn measures every row on one and then on
the other, and the table has the medians of all turns. The client and all nodes share the machine's processors. Apache
Kafka is measured if its jars are there; any other cluster that runs is a further column with `--peer`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ..common.client_workloads import Figure
from ..common.results import Results, number
from ..common.systems import ApacheKafka, System
from . import connections, latency, throughput
from .peer import UNREPLICATED, Peer, Replication
from .picture import picture

PARTS = ("start", "idle", "throughput", "latency", "beside", "connections", "partitions")
_STARTS = 3
_IDLE_PARTITIONS = 2_000
_SYSTEMS: dict[str, Callable[[Path, int], System]] = {"raftwerk": System, "kafka": ApacheKafka}
_Choose = Callable[[Peer], Replication]


def _unreplicated(_peer: Peer) -> Replication:
    return UNREPLICATED


def _replicated(peer: Peer) -> Replication:
    return peer.replicated


@dataclass
class Comparison:
    """One run. Work is multiplied by `scale`; each measurement of latency takes `seconds`."""

    peers: Sequence[Peer]
    parts: Sequence[str]
    scale: float
    seconds: float
    results: Results

    def run(self, turns: int) -> None:
        """Measure all rows so many times."""
        for peer in self.peers:
            self._say(f"{peer.name}: warming up")
            throughput.warm_up(peer, self.scale)
        for turn in range(turns):
            order = self.peers if turn % 2 == 0 else [*reversed(self.peers)]
            for measure in self._measurements():
                for peer in order:
                    for figure in measure(peer):
                        self._add(peer.name, figure, f"turn {turn + 1} of {turns}: ")
        if "partitions" in self.parts:
            for peer in self.peers:
                for figure in self._idle_with_partitions(peer):
                    self._add(peer.name, figure)

    def start_figures(self, system: System, directory: Path) -> None:
        """How long this and further clusters of its kind take to start, and what their nodes need after it."""
        self._add(system.name, Figure(f"start of {system.nodes} nodes", system.start_seconds, "s", 0, False))
        for turn in range(1, _STARTS):
            other = type(system)(directory / f"start-{turn}", system.nodes)
            other.stop()
            self._add(system.name, Figure(f"start of {system.nodes} nodes", other.start_seconds, "s", 0, False))

    def _measurements(self) -> Iterator[Callable[[Peer], Iterator[Figure]]]:
        parts = self.parts
        if "idle" in parts:
            yield partial(throughput.idle, seconds=self.seconds, what="without partitions to speak of")
        for choose in (_unreplicated, _replicated):
            if "throughput" in parts:
                yield partial(self._batches, choose=choose)
            if "throughput" in parts or "latency" in parts:
                yield partial(self._one_record_requests, choose=choose)
            if "latency" in parts:
                yield partial(self._at_rates, choose=choose)
        if "beside" in parts:
            yield partial(latency.beside_other_work, seconds=self.seconds)
        if "connections" in parts:
            yield partial(connections.many, seconds=self.seconds)

    def _batches(self, peer: Peer, choose: _Choose) -> Iterator[Figure]:
        return throughput.batches(peer, choose(peer), self.scale)

    def _one_record_requests(self, peer: Peer, choose: _Choose) -> Iterator[Figure]:
        return throughput.one_record_requests(peer, choose(peer), self.scale)

    def _at_rates(self, peer: Peer, choose: _Choose) -> Iterator[Figure]:
        replication = choose(peer)
        maximum = self.results.rows[throughput.one_record_row(replication)].figures[peer.name][-1].value
        return latency.at_rates(peer, replication, self.seconds, maximum)

    def _idle_with_partitions(self, peer: Peer) -> Iterator[Figure]:
        with throughput.topic(peer, "many", UNREPLICATED, _IDLE_PARTITIONS):
            time.sleep(self.seconds)  # what follows from the creation is over
            yield from throughput.idle(peer, 2 * self.seconds, f"with {_IDLE_PARTITIONS:,} partitions")

    def _add(self, system: str, figure: Figure, when: str = "") -> None:
        self.results.add(system, figure)
        mark = f" ({figure.bad} errors)" if figure.bad else ""
        self._say(f"{when}{system:9} {figure.name}: {number(figure.value)} {figure.unit}{mark}")

    @staticmethod
    def _say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)


def _about(nodes: int, turns: int) -> dict[str, str]:
    cpu = next(
        (
            line.partition(":")[2].strip()
            for line in _text("/proc/cpuinfo").splitlines()
            if line.startswith("model name")
        ),
        platform.processor(),
    )
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "date": time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
        "commit": commit.stdout.strip() or "unknown",
        "machine": f"{os.cpu_count()} processors, {cpu}; Python {platform.python_version()}",
        "load before": f"{os.getloadavg()[0]:.1f}",
        "measured": f"{nodes} nodes of each, medians of {turns} turns",
    }


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def _write(results: Results, directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    name = f"{results.about['date'][:10]}-{results.about['commit']}"
    (directory / f"{name}.json").write_text(json.dumps(results.json(), indent=1) + "\n")
    (directory / f"{name}.md").write_text(results.markdown())
    if len(results.systems) > 1:
        (directory / f"{name}.svg").write_text(picture(results))
    print(f"written: {directory / name}.json, .md" + (", .svg" if len(results.systems) > 1 else ""), file=sys.stderr)


def main(arguments: list[str]) -> int:
    """Run the command line; the exit code is 1 if a figure has errors."""
    parser = argparse.ArgumentParser(prog="python -m raftwerk.bench", description=__doc__)
    parser.add_argument("-n", "--nodes", type=int, default=3, help="nodes of each cluster (default 3)")
    parser.add_argument("--scale", type=float, default=1.0, help="multiply the amount of work (default 1.0)")
    parser.add_argument("--turns", type=int, default=5, help="of which the medians are taken (default 5)")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement of latency (default 4)")
    parser.add_argument("--parts", default=",".join(PARTS), help=f"what to measure (default {','.join(PARTS)})")
    parser.add_argument("--only", choices=tuple(_SYSTEMS), help="start one of the systems")
    parser.add_argument(
        "--peer",
        action="append",
        default=[],
        type=Peer.parse,
        metavar="NAME=HOST:PORT[;PID,...]",
        help="measure a cluster that runs, too; with the ids of its processes also their processor time and memory",
    )
    parser.add_argument("--results", type=Path, help="write JSON, Markdown and a picture into this directory")
    options = parser.parse_args(arguments)
    parts = [part for part in options.parts.split(",") if part]
    if unknown := [part for part in parts if part not in PARTS]:
        parser.error(f"there is no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    started = [name for name in _SYSTEMS if options.only in (None, name)]
    if "kafka" in started and ApacheKafka.jars() is None:
        print("Apache Kafka is left out: no jars in $KAFKA_LIBS", file=sys.stderr)
        started.remove("kafka")
    if not started:
        return 1
    with ExitStack() as stack:
        results = Results([*started, *(peer.name for peer in options.peer)], _about(options.nodes, options.turns))
        peers: list[Peer] = []
        comparison = Comparison(peers, parts, options.scale, options.seconds, results)
        for name in started:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="raftwerk-bench-")))
            system = _SYSTEMS[name](directory, options.nodes)
            stack.callback(system.stop)
            if "start" in parts:
                comparison.start_figures(system, directory)
            peers.append(Peer.of(system))
        peers += options.peer
        comparison.run(options.turns)
    print(results.markdown())
    if options.results:
        _write(results, options.results)
    return int(results.is_bad)
