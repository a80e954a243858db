"""A chaos run with its verdict, from the page: `raftwerk chaos run` as a process of its own, one at a time.

The process ends with the console, and heals what it has done. Its directory, below that of the cluster, stays.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from ...runtime.ports import Clock
from ..errors import RequestRefusedError
from ..fields import Fields, number, texts

RAFTWERK_CHAOS = (sys.executable, "-P", "-m", "raftwerk", "chaos")
"""The command that runs the chaos."""
REPORT, VERDICT = "report.html", "verdict.json"
_LINES_MAX = 200
_LINE_MAX = 4_000
_READ = 65_536
_MINUTES_MAX = 60
_RATE_MAX = 5_000
_END_LIMIT_S = 20.0
_SHOWN = 5
"""Pieces of evidence of each kind of anomaly that the page shows."""


class ChaosRuns:
    """The run of one console, and the last one's verdict. `tell` gets a sentence when one begins and when it ends."""

    def __init__(
        self, directory: str, clock: Clock, tell: Callable[[str], None], command: Sequence[str] = RAFTWERK_CHAOS
    ) -> None:
        self._command = command
        self._directory = directory
        self._clock = clock
        self._tell = tell
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._starting: dict[str, Any] | None = None
        """What was asked for of a run that is being checked, and whose process is being started."""
        self._is_asked_to_stop = False
        self._lines: deque[str] = deque(maxlen=_LINES_MAX)
        self._faults: list[dict[str, Any]] | None = None
        self._trying = asyncio.Lock()
        self._row: dict[str, Any] = {}
        self.version = 0
        """Grows with each change of what `as_row` tells."""

    @property
    def is_running(self) -> bool:
        """Whether a run goes on, to its verdict."""
        return self._starting is not None or self._task is not None

    @property
    def injects_here(self) -> bool:
        """Whether a run injects faults into the console's own cluster."""
        run = self._row if self._starting is None else self._starting
        return self.is_running and not run["own_cluster"]

    @property
    def output(self) -> str | None:
        """The directory of the last run."""
        return self._row.get("output")

    def as_row(self) -> dict[str, Any]:
        """The run that goes on, or the last one: what it was asked for, its lines, and its verdict at the end."""
        if not self._row:
            return {"running": False}
        running = self._task is not None
        stopping = self._is_asked_to_stop and running
        return {**self._row, "running": running, "stopping": stopping, "lines": list(self._lines)}

    async def faults(self) -> list[dict[str, Any]]:
        """The faults with what they need; whether this machine can inject one is tried once."""
        async with self._trying:
            if self._faults is None:
                self._faults = await self._try_faults()
        return self._faults

    async def start(self, fields: Fields, who: str) -> dict[str, Any]:
        """Begin a run for `who`: these `faults`, so many `minutes`, `rate` records a second of each of two producers.

        With `own_cluster` it starts a cluster of `nodes` nodes for itself.
        """
        if self.is_running:
            raise RequestRefusedError(409, "a chaos run goes on: one at a time; stop it, or wait for its verdict")
        is_own = fields.get("own_cluster") is True
        chosen, minutes = texts(fields, "faults"), number(fields, "minutes", 1)
        rate, nodes = number(fields, "rate", 200), number(fields, "nodes", 3)
        if not 1 <= minutes <= _MINUTES_MAX or not 1 <= rate <= _RATE_MAX or not 1 <= nodes <= 9:
            told = f"minutes are 1 to {_MINUTES_MAX}, records a second 1 to {_RATE_MAX}, nodes 1 to 9"
            raise RequestRefusedError(400, told)
        asked = {"faults": chosen, "minutes": minutes, "rate": rate, "own_cluster": is_own}
        self._starting = asked
        try:
            await self._check(chosen, is_own=is_own)
            output = os.path.join(self._directory, f"chaos-{time.strftime('%Y%m%d-%H%M%S')}")
            began_ms = self._clock.wall_ms()
            self._row = {**asked, "output": output, "began_ms": began_ms, "verdict": None, "error": None}
            self._lines.clear()
            self._is_asked_to_stop = False
            where = ["--nodes", str(nodes)] if is_own else ["--dir", self._directory]
            options = [
                "--nemesis",
                ",".join(chosen),
                "--minutes",
                str(minutes),
                "--rate",
                str(rate),
                "--output",
                output,
            ]
            self._process = await asyncio.create_subprocess_exec(
                *[*self._command, "run", *options, "--stop-at-eof", *where],
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
            )
            self._task = asyncio.create_task(self._follow(self._process))
            self.version += 1
        finally:
            self._starting = None
        self._tell(f"a chaos run of {minutes} min with {', '.join(chosen)} has begun, by {who}")
        return {"done": "the chaos run has begun"}

    def ask_to_stop(self) -> dict[str, Any]:
        """End the faults: the run heals what it has done, and judges what it has seen. The second time: end at once."""
        if self._process is None or self._task is None:
            raise RequestRefusedError(409, "no chaos run goes on")
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGINT)
        self.version += 1
        again, self._is_asked_to_stop = self._is_asked_to_stop, True
        return {"done": "the run ends at once" if again else "the run heals the cluster, and is judged"}

    async def close(self) -> None:
        """End a run that goes on, and wait until it has healed what it has done."""
        if self._process is None or self._task is None:
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        done, _ = await asyncio.wait([self._task], timeout=_END_LIMIT_S)
        if not done:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    async def _try_faults(self) -> list[dict[str, Any]]:
        command = [*self._command, "faults", "--json"]
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, stderr=None)
        try:
            told, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
        if process.returncode:
            raise RequestRefusedError(500, "raftwerk chaos faults failed; the console's log says why")
        return [json.loads(line) for line in told.splitlines()]

    async def _check(self, chosen: list[str], *, is_own: bool) -> None:
        known = {one["fault"]: one for one in await self.faults()}
        for name in chosen:
            fault = known.get(name)
            if fault is None:
                raise RequestRefusedError(400, f"there is no fault {name}; there are {', '.join(known)}")
            if fault["left_out"]:
                raise RequestRefusedError(409, f"{name} cannot be injected here: {'; '.join(fault['left_out'])}")
            if fault["needs_own_cluster"] and not is_own:
                raise RequestRefusedError(409, f"{name} works in a cluster that the run starts itself only")

    async def _follow(self, process: asyncio.subprocess.Process) -> None:
        """Take the lines of the process until it ends, then its verdict."""
        if process.stdout is not None:
            async for line in _lines_of(process.stdout):
                self._lines.append(line)
                self.version += 1
        code = await process.wait()
        self._row["verdict"] = found = await asyncio.to_thread(_verdict_in, self._row["output"])
        if found is None:
            self._row["error"] = self._lines[-1] if self._lines else f"it ended with exit code {code}"
        self._task = self._process = None
        self.version += 1
        self._tell(f"the chaos run has ended: {found['verdict'] if found else self._row['error']}")


async def _lines_of(stream: asyncio.StreamReader) -> AsyncIterator[str]:
    """The lines of a process as they come; the beginning of one that is very long."""
    rest = b""
    while data := await stream.read(_READ):
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            yield line[:_LINE_MAX].decode(errors="replace").rstrip()
        rest = rest[:_LINE_MAX]
    if rest:
        yield rest.decode(errors="replace").rstrip()


def _verdict_in(output: str) -> dict[str, Any] | None:
    """What the page shows of a verdict; None where there is none."""
    try:
        with open(os.path.join(output, VERDICT), encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):
        return None
    anomalies = [
        {"kind": kind, "count": one["count"], "meaning": one["meaning"], "evidence": _texts(one["evidence"])}
        for kind, one in found["anomalies"].items()
        if one["count"]
    ]
    shown = ("verdict", "totals", "transactions", "notes", "inflicted", "not_injected", "left_out", "errors")
    return {**{name: found[name] for name in shown}, "anomalies": anomalies}


def _texts(evidence: list[dict[str, Any]]) -> list[str]:
    return [one["text"] for one in evidence[:_SHOWN]]
