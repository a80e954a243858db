"""Watches the nodes from outside: whether they run, how much memory they take, and what they log."""

from __future__ import annotations

import os
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ...cluster.local.processes import memory_bytes
from ...cluster.local.supervisor import LocalNodeError, Supervisor

_SAMPLE_EVERY_S = 0.25
FENCED = "fenced"
_PATTERNS = (
    ("broken-invariant", re.compile(r"broken invariant|InvariantViolation")),
    ("traceback", re.compile(r"Traceback \(most recent call last\)")),
    (FENCED, re.compile(r"\bbroker-fenced broker=[123]\b")),
    ("unclean-election", re.compile(r"\bunclean-election topic=(?!fuzz-)")),
)
LOGGED_KINDS = ("broken-invariant", "traceback")
"""Kinds of trouble that are found once for each cause, since they may go on in the time of later attacks."""
_PLACE = re.compile(r'File "[^"]*?(\w+/\w+\.py)", line (\d+)')
_TEXT_CHARACTERS_MAX = 600


class Trouble(NamedTuple):
    """What a node logged or did that it must not. Two troubles with the same `key` have one cause."""

    kind: str
    key: str
    text: str


@dataclass
class NodeFigures:
    """The figures of all nodes since the last `NodeWatch.begin`."""

    rss_peak_mb: dict[int, float] = field(default_factory=dict)
    log_lines: Counter[int] = field(default_factory=Counter)


class NodeWatch:
    """Reads what the nodes have logged since the last look; a thread measures their memory."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._positions: dict[int, int] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._measure, daemon=True)
        self.figures = NodeFigures()

    def __enter__(self) -> NodeWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def begin(self) -> None:
        """Begin new figures."""
        self.figures = NodeFigures()

    def look(self) -> list[Trouble]:
        """The troubles since the last look. A node that has ended is started again."""
        found = [trouble for node in self._supervisor.plan.nodes for trouble in self._read(node.node_id)]
        for node_id, child in list(self._supervisor.children.items()):
            if not child.alive:
                found.append(Trouble("node-ended", "node-ended", f"node {node_id} ended: {child.process.returncode}"))
                found += self._start_again(node_id)
        return found

    def skip(self) -> None:
        """Pass over what the nodes have logged until now."""
        for node in self._supervisor.plan.nodes:
            self._positions[node.node_id] = os.path.getsize(node.log_file)

    def _start_again(self, node_id: int) -> list[Trouble]:
        try:
            self._supervisor.restart_node(node_id)
        except LocalNodeError as error:
            return [Trouble("node-ended", "not-restarted", f"node {node_id} does not start again: {error}")]
        return []

    def _read(self, node_id: int) -> Iterator[Trouble]:
        path, position = self._supervisor.plan.node(node_id).log_file, self._positions.get(node_id, 0)
        if os.path.getsize(path) <= position:
            return
        with open(path, "rb") as file:
            file.seek(position)
            data = file.read()
        data = data[: data.rfind(b"\n") + 1]
        self._positions[node_id] = position + len(data)
        for line in data.decode(errors="replace").splitlines():
            self.figures.log_lines[node_id] += 1
            for kind, pattern in _PATTERNS:
                if pattern.search(line):
                    yield Trouble(kind, _cause(kind, line), f"node {node_id}: {_shortened(line)}")
                    break

    def _measure(self) -> None:
        while not self._stop.wait(_SAMPLE_EVERY_S):
            peaks = self.figures.rss_peak_mb
            for node_id, child in list(self._supervisor.children.items()):
                size_bytes = memory_bytes(child.pid)
                if size_bytes is not None:
                    peaks[node_id] = max(peaks.get(node_id, 0.0), size_bytes / 1e6)


def _cause(kind: str, line: str) -> str:
    """The kind with the innermost place of the traceback."""
    places = _PLACE.findall(line)
    return f"{kind} {places[-1][0]}:{places[-1][1]}" if places else kind


def _shortened(line: str) -> str:
    half = _TEXT_CHARACTERS_MAX // 2
    return line if len(line) <= _TEXT_CHARACTERS_MAX else f"{line[:half]} ... {line[-half:]}"


def wait_until_quiet(watch: NodeWatch, seconds: float) -> list[Trouble]:
    """Look for some seconds, so that what an attack leaves behind is counted for it."""
    found: list[Trouble] = []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        time.sleep(0.1)
        found += watch.look()
    return found
