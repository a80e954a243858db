"""`python -m raftwerk.bench audit`: how fast `audit` judges a history with planted anomalies.

Half of the rows are sends, and half are records of the final read. The job must find exactly the anomalies of each kind
that were planted. Memory is the largest sum of the resident memory of Spark's JVM and the Python processes at one
moment (sampled; pages that processes share are counted for each). Needs Java 17 and Linux's /proc.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from ..pipeline.errors import PipelineError

KINDS = (
    "lost", "corrupt", "failed-seen", "unanswered", "phantom", "duplicate", "reordered", "inconsistent-offset",
    "seen-before-send", "unseen", "vanished", "nonmonotonic-poll", "skipped-poll",
)  # fmt: skip
_PRODUCERS = 16
_KEYS = 60
_POLLED = 500
_LINES_AT_ONCE = 20_000
_STEP_NS = 100_000
_LATENCY_NS = 700_000
_SAMPLE_S = 0.25
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Plan:
    """The sends of one producer to its own partition. A record's offset is its number, except for planted anomalies."""

    producer: int
    records: int
    planted: int

    @property
    def read_ns(self) -> int:
        """The time at which the final read begins."""
        return (self.records + 10_000_000) * _STEP_NS

    def spots(self) -> dict[int, str]:
        """The numbers of the planted anomalies. They are far enough apart that none is part of another."""
        count = self.planted * len(KINDS)
        step = max(1, self.records // (count + 1))
        if count and step < 3 * _KEYS:
            raise PipelineError(f"{self.records} records a producer have no room for {count} anomalies: plant fewer.")
        return {step * (number + 1): KINDS[number % len(KINDS)] for number in range(count)}

    @property
    def name(self) -> str:
        """The fields at the begin of all lines of the partition."""
        return f'"topic":"t","partition":{self.producer}'


@dataclass
class _Planted:
    """The effects of the planted anomalies on sends and reads, by number or offset."""

    sends: dict[int, tuple[str, int | None, int]] = field(default_factory=dict)
    reads: dict[int, tuple[int, int] | None] = field(default_factory=dict)
    beyond: list[tuple[int, int]] = field(default_factory=list)
    consumer: list[tuple[str, list[tuple[int, int]]]] = field(default_factory=list)


def _plant(plan: Plan) -> _Planted:
    made = _Planted()
    far = plan.records + 2 * plan.planted  # after phantoms and duplicates
    for number, kind in plan.spots().items():
        start, key = number * _STEP_NS, number % _KEYS
        if kind == "lost":
            made.reads[number] = None
        elif kind == "corrupt":
            made.reads[number] = (number, key + 1000)
        elif kind == "failed-seen":
            made.sends[number] = ("fail", None, start)
        elif kind == "unanswered":
            made.sends[number] = ("invoke", None, start)
        elif kind == "phantom":
            made.beyond.append((plan.records + number, key))
        elif kind == "duplicate":
            made.beyond.append((number, key))
        elif kind == "reordered":
            other = number + 1
            made.sends |= {number: ("ok", other, start), other: ("ok", number, start + _STEP_NS)}
            made.reads |= {number: (other, other % _KEYS), other: (number, key)}
        elif kind == "inconsistent-offset":
            made.sends[number], far = ("ok", far, start), far + 1
        elif kind == "seen-before-send":
            made.sends[number] = ("ok", number, 2 * plan.read_ns)
        elif kind == "unseen":
            made.sends[number], far = ("ok", far, start), far + 1
            made.reads[number] = None
        elif kind == "vanished":
            made.sends[number] = ("info", None, start)
            made.reads[number] = None
            made.consumer.append((kind, [(number, number)]))
        elif kind == "nonmonotonic-poll":
            made.consumer.append((kind, [(number, number), (number, number)]))
        elif kind == "skipped-poll":
            made.consumer.append((kind, [(number, number), (number + 2, number + 2)]))
    return made


def _send_lines(plan: Plan, planted: _Planted) -> Iterator[str]:
    p = plan.producer
    yield (
        f'{{"process":"producer-{p}","type":"info","f":"history","version":1,"start":0,"producer":{p},'
        '"idempotent":true}\n'
    )
    for number in range(plan.records):
        kind, offset, start = planted.sends.get(number) or ("ok", number, number * _STEP_NS)
        told = "" if offset is None else f',"offset":{offset}'
        yield (
            f'{{"process":"producer-{p}","type":"{kind}","f":"send",{plan.name},"producer":{p},"number":{number},'
            f'"key":{number % _KEYS},"start":{start}{told},"end":{start + _LATENCY_NS}}}\n'
        )


def _read_lines(plan: Plan, planted: _Planted) -> Iterator[str]:
    p, at_ns = plan.producer, plan.read_ns
    head = f'{{"process":"final-{p}","type":"ok"'
    yield f'{head},"f":"assign",{plan.name},"offset":0,"start":{at_ns}}}\n'
    total = plan.records + len(planted.beyond)
    for begin in range(0, total, _POLLED):
        records = []
        for offset in range(begin, min(total, begin + _POLLED)):
            if offset >= plan.records:
                read: tuple[int, int] | None = planted.beyond[offset - plan.records]
            else:
                read = planted.reads.get(offset, (offset, offset % _KEYS))
            if read is not None:
                records.append(f"[{offset},{p},{read[0]},{read[1]}]")
        rows = ",".join(records)
        yield f'{head},"f":"poll",{plan.name},"records":[{rows}],"start":{at_ns},"end":{at_ns + 5},"final":true}}\n'


def _consumer_lines(plan: Plan, planted: _Planted) -> Iterator[str]:
    """Polls with an anomaly, each with an assignment of its own, after its send was done."""
    p = plan.producer
    head = f'{{"process":"consumer-{p}","type":"ok"'
    for _, polls in planted.consumer:
        end = polls[-1][0] * _STEP_NS + 2 * _LATENCY_NS
        yield f'{head},"f":"assign",{plan.name},"offset":{polls[0][0]},"start":{end}}}\n'
        for offset, number in polls:
            record = f"[{offset},{p},{number},{number % _KEYS}]"
            yield f'{head},"f":"poll",{plan.name},"records":[{record}],"start":{end},"end":{end}}}\n'


def write_history(directory: Path, plan: Plan) -> int:
    """Write the files of one producer, of its partition's final read and of a consumer; the number of rows."""
    planted = _plant(plan)
    for name, lines in (("producer", _send_lines), ("final", _read_lines), ("consumer", _consumer_lines)):
        with gzip.open(directory / f"{name}-{plan.producer}.jsonl.gz", "wt", compresslevel=1) as file:
            held: list[str] = []
            for line in lines(plan, planted):
                held.append(line)
                if len(held) == _LINES_AT_ONCE:
                    file.write("".join(held))
                    held = []
            file.write("".join(held))
    return 2 * plan.records


@dataclass
class Watched:
    """The processor time and memory of a command and all its descendants."""

    seconds: float = 0.0
    cpu_s: float = 0.0
    jvm_bytes: int = 0
    python_bytes: int = 0
    total_bytes: int = 0

    def sample(self, pid: int) -> None:
        """Sample the processes that run now."""
        jvm = python = ticks = 0
        for name, used, memory in _family(pid):
            ticks += used
            if name == "java":
                jvm += memory
            else:
                python += memory
        self.cpu_s = max(self.cpu_s, ticks / _TICKS)
        self.jvm_bytes, self.python_bytes = max(self.jvm_bytes, jvm), max(self.python_bytes, python)
        self.total_bytes = max(self.total_bytes, jvm + python)


def _family(root: int) -> list[tuple[str, int, int]]:
    """The name, the CPU ticks (with dead children) and the resident bytes of a process and its descendants."""
    parents: dict[int, int] = {}
    found: dict[int, tuple[str, int, int]] = {}
    page = os.sysconf("SC_PAGE_SIZE")
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                head, _, rest = (entry / "stat").read_text().rpartition(")")
            except OSError:
                continue
            fields = rest.split()
            pid = int(entry.name)
            parents[pid] = int(fields[1])
            found[pid] = (head.partition("(")[2], sum(map(int, fields[11:15])), int(fields[21]) * page)
    return [one for pid, one in found.items() if _descends(pid, root, parents)]


def _descends(pid: int, root: int, parents: dict[int, int]) -> bool:
    while pid > 0:
        if pid == root:
            return True
        pid = parents.get(pid, 0)
    return False


def run_audit(directory: Path, cores: int) -> tuple[dict[str, int], dict[str, int], Watched]:
    """Run the command as a user does: counts by kind, totals, and its cost."""
    command = [sys.executable, "-m", "raftwerk", "pipeline", "run", "audit", str(directory), "--json"]
    watched = Watched()
    began = time.monotonic()
    environment = {**os.environ, "TMPDIR": str(directory)}
    with subprocess.Popen(
        [*command, "--master", f"local[{cores}]"], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        while True:
            watched.sample(process.pid)
            try:
                output, _ = process.communicate(timeout=_SAMPLE_S)
                break
            except subprocess.TimeoutExpired:
                continue
    watched.seconds = time.monotonic() - began
    try:
        verdict = json.loads(output.strip().splitlines()[-1])
    except (ValueError, IndexError):
        raise PipelineError(f"the audit ended with code {process.returncode} and told no verdict.") from None
    return {kind: row["count"] for kind, row in verdict["anomalies"].items()}, verdict["totals"], watched


def _check(directory: Path) -> tuple[dict[str, int], dict[str, int], float]:
    from ..chaos.live.checker.checker import check_paths

    began = time.monotonic()
    verdict = check_paths([str(directory)]).verdict
    return dict(verdict.findings.counts), dict(verdict.totals), time.monotonic() - began


def _measure(directory: Path, options: argparse.Namespace) -> bool:
    records = max(1, options.rows // (2 * _PRODUCERS))
    plans = [Plan(producer, records, options.planted) for producer in range(_PRODUCERS)]
    history = directory / "history"
    history.mkdir()
    began = time.monotonic()
    with ProcessPoolExecutor(options.cores) as pool:
        rows = sum(pool.map(partial(write_history, history), plans))
    size = sum(path.stat().st_size for path in history.iterdir())
    print(f"{rows:,} rows, {size / 1e6:,.0f} MB compressed, written in {time.monotonic() - began:,.0f} s", flush=True)
    counts, totals, watched = run_audit(directory, options.cores)
    print(
        f"audited in {watched.seconds:,.0f} s on {options.cores} cores: {rows / watched.seconds:,.0f} rows/s, "
        f"{watched.cpu_s:,.0f} s of CPU, peak memory {watched.total_bytes / 1e6:,.0f} MB "
        f"(JVM {watched.jvm_bytes / 1e6:,.0f}, Python {watched.python_bytes / 1e6:,.0f})",
        flush=True,
    )
    expected = dict.fromkeys(KINDS, options.planted * _PRODUCERS)
    expected["skipped-poll"] += expected["vanished"]  # the final read passes over what has vanished
    found = {kind: count for kind, count in counts.items() if count}
    exact = found == {kind: count for kind, count in expected.items() if count}
    print(f"planted {expected}\nfound   {found}: {'exactly these' if exact else 'NOT THESE'}", flush=True)
    if options.check:
        theirs, their_totals, seconds = _check(directory)
        agree = {kind: count for kind, count in theirs.items() if count} == found and their_totals == totals
        print(f"chaos check says {'the same' if agree else f'OTHERWISE: {theirs} {their_totals}'} in {seconds:,.0f} s")
        exact = exact and agree
    return exact


def main(arguments: list[str]) -> int:
    """Run the command line; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m raftwerk.bench audit", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="sends and reads together (default 1000000)")
    parser.add_argument("--cores", type=int, default=2, help="cores of Spark (default 2)")
    parser.add_argument("--planted", type=int, default=3, help="anomalies of each kind and producer (default 3)")
    parser.add_argument("--check", action="store_true", help="compare with `raftwerk chaos check`, which takes longer")
    parser.add_argument("--directory", help="where to write; about 7 GB for 10^8 rows (default: a temporary one)")
    options = parser.parse_args(arguments)
    directory = Path(tempfile.mkdtemp(prefix="raftwerk-bench-", dir=options.directory))
    try:
        return 0 if _measure(directory, options) else 1
    except PipelineError as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(directory, ignore_errors=True)
