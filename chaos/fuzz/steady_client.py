"""The well-behaved client beside the attackers: a producer with acks=all and a consumer, each a process of its own.

They are the load processes of chaos runs, and their history is judged by the same checker.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from ...cluster.client.client_errors import ClientError
from ...cluster.local.supervisor import last_line
from ..live.checker.checker import check_paths
from ..live.checker.findings import Verdict
from ..live.history import read_lines
from ..live.load.load_task import Task

TOPIC, PARTITIONS = "steady", 6
RATE_PER_S = 200
_DRAIN_LIMIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Latencies:
    """Times from send to ack, in milliseconds; NaN without acks."""

    acked: int
    p50_ms: float
    p99_ms: float
    max_ms: float


class SteadyClient:
    """Starts and stops the processes, and reads their history."""

    def __init__(self, directory: str, bootstrap: str) -> None:
        self._directory = directory
        self._bootstrap = bootstrap
        self._running: list[tuple[str, subprocess.Popen[bytes]]] = []
        self._acks: list[tuple[int, int]] = []
        os.makedirs(os.path.join(directory, "history"), exist_ok=True)

    def __enter__(self) -> SteadyClient:
        for role in ("consumer", "producer"):
            self._running.append((role, self._start(role, self._task(role, RATE_PER_S))))
        return self

    def __exit__(self, *_: object) -> None:
        for _role, process in self._running:
            if process.poll() is None:
                process.kill()
            process.wait()

    def check(self) -> None:
        """Raise `ClientError` if a process has ended."""
        for role, process in self._running:
            if process.poll() is not None:
                log = os.path.join(self._directory, f"{role}.log")
                raise ClientError(f"the {role} ended with exit code {process.returncode}: {last_line(log)}")

    def stop(self) -> list[str]:
        """Wait until all sends are answered, and read all partitions to their ends; returns what went wrong."""
        wrong = []
        for role, process in reversed(self._running):
            if process.stdin is not None:
                process.stdin.close()
            try:
                code = process.wait(_DRAIN_LIMIT_S + 15)
            except subprocess.TimeoutExpired:
                code = -1
            if code:
                wrong.append(f"the {role} ended with exit code {code}")
        final = self._start("consumer", self._task("final", 0))
        try:
            if final.wait(_DRAIN_LIMIT_S + 30):
                wrong.append("the final read did not come to the end of every partition")
        except subprocess.TimeoutExpired:
            final.kill()
            wrong.append("the final read did not end")
        self._acks = sorted(self._read_acks())
        return wrong

    def verdict(self) -> Verdict:
        """Whether what was acked is there, once and in order."""
        return check_paths([self._directory]).verdict

    def latencies(self, *windows_ns: tuple[int, int]) -> Latencies:
        """The latencies of records that were sent in windows of the monotonic clock. Call it after `stop`."""
        values_ms = [
            (end - start) / 1e6
            for first, last in windows_ns
            for start, end in self._acks[bisect_left(self._acks, (first, 0)) : bisect_left(self._acks, (last, 0))]
        ]
        return summarize(values_ms)

    def _read_acks(self) -> list[tuple[int, int]]:
        return [
            (line["start"], line["end"])
            for line in read_lines(self._history("producer"))
            if line["f"] == "send" and line["type"] == "ok"
        ]

    def _history(self, role: str) -> str:
        return os.path.join(self._directory, "history", f"{role}-0.jsonl")

    def _task(self, role: str, rate: int) -> Task:
        place = (self._bootstrap, TOPIC, PARTITIONS, self._history(role))
        return Task(role, 0, *place, rate=rate, limit_s=_DRAIN_LIMIT_S)

    def _start(self, module: str, task: Task) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-P", "-m", f"raftwerk.chaos.live.load.{module}", task.to_argument()]
        with open(os.path.join(self._directory, f"{task.role}.log"), "wb") as log:
            return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)


def summarize(values_ms: Sequence[float]) -> Latencies:
    """The count, the median, the 99th percentile and the maximum."""
    if not values_ms:
        nan = float("nan")
        return Latencies(0, nan, nan, nan)
    ordered = sorted(values_ms)
    return Latencies(
        len(ordered), ordered[len(ordered) // 2], ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)], ordered[-1]
    )


def now_ns() -> int:
    """The clock of the history."""
    return time.monotonic_ns()
