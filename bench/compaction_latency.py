"""`python -m raftwerk.bench compaction`: how long a producer waits with a compaction and without one, in turn.

There are one node and one client. The client writes keys into a topic all the time, and measures the time from send to
ack of a small record of another topic. In every other round the first topic is compacted all the time; everything else
is the same, so other work on the machine affects both kinds of rounds alike. A hold is the time for which the node's
event loop was held, by the clock.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..cluster.local.layout import ClusterShape, plan_cluster
from ..cluster.local.supervisor import Supervisor

STALL_MS = 10
_SETTINGS = {
    "event.loop.stall.log.ms": str(STALL_MS),
    "log.cleaner.backoff.ms": "100",
    "log.segment.delete.delay.ms": "1000",
}
_HELD = re.compile(r"event loop held for (\d+) ms")
_CLEANED = re.compile(r"clean up to \d+, \d+ of (\d+) bytes left")
_SETTLE_S = 2.0


@dataclass
class Turns:
    """The figures of all rounds of one kind."""

    name: str
    times_s: list[float] = field(default_factory=list)
    holds_ms: list[int] = field(default_factory=list)
    cleaned_bytes: int = 0
    failed: int = 0

    def figures(self) -> dict[str, float]:
        """The figures by name."""
        times = sorted(self.times_s)
        at = {name: times[min(int(len(times) * q), len(times) - 1)] * 1e3 for name, q in _QUANTILES.items()}
        return {
            **{f"ack {name}, ms": value for name, value in at.items()},
            f"holds of the loop over {STALL_MS} ms": len(self.holds_ms),
            "longest hold, ms": max(self.holds_ms, default=0),
            "compacted, MB": self.cleaned_bytes / 1e6,
            "acks": len(times),
            "errors": self.failed,
        }


_QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999, "max": 1.0}


class _Load:
    """Writes keys into `compacted` at a steady rate, and timed records into `plain`."""

    def __init__(self, bootstrap: str, rate: int, mb_per_s: float, keys: int) -> None:
        from confluent_kafka import Producer

        self._probe = Producer({"bootstrap.servers": bootstrap, "acks": -1, "linger.ms": 0, "log_level": 0})
        self._filler = Producer({"bootstrap.servers": bootstrap, "acks": 1, "linger.ms": 20, "log_level": 0})
        self._rate = rate
        self._per_probe = mb_per_s * 1e6 / 1024 / rate
        self._keys = [b"key-%d" % number for number in range(keys)]
        self._value = os.urandom(1024)
        self._written = 0.0
        self._key = 0

    def run(self, seconds: float, turns: Turns) -> None:
        def timed(sent: float) -> Any:
            def delivered(error: Any, _message: Any) -> None:
                if error is not None:
                    turns.failed += 1
                elif sent > begin + _SETTLE_S:
                    turns.times_s.append(time.perf_counter() - sent)

            return delivered

        begin, sent_count = time.perf_counter(), 0
        while (now := time.perf_counter()) < begin + _SETTLE_S + seconds:
            due = begin + sent_count / self._rate
            if now < due:
                self._probe.poll(due - now)
                continue
            self._probe.produce("plain", b"x" * 100, on_delivery=timed(now))
            sent_count += 1
            self._fill()
        self._probe.flush(20)
        self._filler.flush(20)

    def _fill(self) -> None:
        self._written += self._per_probe
        while self._written >= 1:
            self._written -= 1
            self._key = (self._key * 48271 + 11) % 2147483647
            try:
                self._filler.produce("compacted", self._value, self._keys[self._key % len(self._keys)])
            except BufferError:
                self._filler.poll(0.001)
        self._filler.poll(0)


def _alter(admin: Any, policy: str) -> None:
    from confluent_kafka import admin as kinds

    kind: Any = kinds
    entry = kind.ConfigEntry("cleanup.policy", policy, incremental_operation=kind.AlterConfigOpType.SET)
    resource = kind.ConfigResource(kind.ResourceType.TOPIC, "compacted", incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result()


def _create(admin: Any) -> None:
    from confluent_kafka.cimpl import NewTopic

    often = {"segment.bytes": str(4 << 20), "min.cleanable.dirty.ratio": "0.01", "file.delete.delay.ms": "1000"}
    for future in admin.create_topics([NewTopic("plain", 3, 1), NewTopic("compacted", 3, 1, config=often)]).values():
        future.result()


def _measure(supervisor: Supervisor, options: argparse.Namespace) -> list[Turns]:
    from confluent_kafka.admin import AdminClient

    plan = supervisor.plan.nodes[0]
    bootstrap = f"127.0.0.1:{plan.port}"
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    _create(admin)
    load = _Load(bootstrap, options.rate, options.mb_per_s, options.keys)
    kinds = [Turns("without"), Turns("with")]
    load.run(1.0, Turns("warm"))
    for _ in range(options.rounds):
        for turns, policy in zip(kinds, ("delete", "compact"), strict=True):
            _alter(admin, policy)
            size = Path(plan.log_file).stat().st_size
            load.run(options.seconds, turns)
            text = Path(plan.log_file).read_bytes()[size:].decode(errors="replace")
            turns.holds_ms += [int(found[1]) for found in _HELD.finditer(text)]
            turns.cleaned_bytes += sum(int(found[1]) for found in _CLEANED.finditer(text))
    return kinds


def main(arguments: list[str]) -> int:
    """Run the command line; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m raftwerk.bench compaction", description=__doc__)
    parser.add_argument("--rounds", type=int, default=4, help="turns of each kind (default 4)")
    parser.add_argument("--seconds", type=float, default=8.0, help="of a turn, after two to settle (default 8)")
    parser.add_argument("--rate", type=int, default=500, help="timed records a second (default 500)")
    parser.add_argument("--mb-per-s", type=float, default=5.0, help="written into the compacted topic (default 5)")
    parser.add_argument("--keys", type=int, default=20_000, help="different keys of it (default 20,000)")
    parser.add_argument("--dir", help="put the data below this directory: which disk is measured")
    parser.add_argument("--keep", action="store_true", help="leave the node's log and data where they are")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args(arguments)
    directory = tempfile.mkdtemp(prefix="raftwerk-compaction-", dir=options.dir)
    supervisor = Supervisor(plan_cluster(directory, ClusterShape(1, port=0, overrides=_SETTINGS)))
    try:
        supervisor.start()
        kinds = _measure(supervisor, options)
    finally:
        supervisor.stop(60)
        if options.keep:
            print(f"kept: {directory}")
        else:
            shutil.rmtree(directory, ignore_errors=True)
    rows = [turns.figures() for turns in kinds]
    print(f"{'':32}" + "".join(f"{turns.name:>12}" for turns in kinds) + "   compaction")
    for name in rows[0]:
        print(f"{name:32}" + "".join(f"{row[name]:12,.1f}" for row in rows))
    if options.json:
        options.json.write_text(json.dumps({turns.name: row for turns, row in zip(kinds, rows, strict=True)}, indent=1))
    return int(any(turns.failed for turns in kinds))
