"""The table that `raftwerk up` shows on a terminal."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import textwrap
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

import click

from ...cluster.client.client_errors import ClientError
from ...cluster.client.cluster_client import ClusterClient, ClusterView
from ...cluster.client.quorum_client import QuorumClient
from ...cluster.command_line.text_table import Cell, boxed
from ...cluster.local.processes import cpu_seconds, is_paused, memory_bytes
from ...cluster.local.supervisor import Child, Supervisor, node_pid
from .node_deaths import next_step

_CLEAR_BELOW = "\x1b[J"
_NO_WRAP, _WRAP = "\x1b[?7l", "\x1b[?7h"
_COLUMNS = ("node", "roles", "port", "pid", "memory", "cpu", "leads", "in sync", "state")
_GIVE_WAY = [_COLUMNS.index(name) for name in ("roles", "cpu", "memory", "port", "pid")]
"""What a narrow terminal does not show, the first one first."""
_RIGHT = [_COLUMNS.index(name) for name in ("pid", "memory", "cpu", "leads", "in sync")]


class _Screen:
    """Lines at the cursor that are drawn again and again, on a terminal that may change its width or go away."""

    def __init__(self) -> None:
        self._drawn: list[int] = []
        """The length of each line that is drawn."""
        self.is_stale = True
        """Whether the lines have to be drawn again at once."""
        self._previous: dict[signal.Signals, Any] = {
            signal.SIGWINCH: signal.signal(signal.SIGWINCH, self._on_resized),
            signal.SIGTSTP: signal.signal(signal.SIGTSTP, self._on_paused),
            signal.SIGCONT: signal.signal(signal.SIGCONT, self._on_continued),
        }

    @property
    def width(self) -> int:
        """The terminal's columns; those of the environment where the terminal does not know."""
        return os.get_terminal_size(sys.stdout.fileno()).columns or shutil.get_terminal_size().columns

    def draw(self, lines: list[str]) -> None:
        """Replace what was drawn. In the background nothing is drawn, since the terminal is the shell's then."""
        self.is_stale = False
        if os.tcgetpgrp(sys.stdout.fileno()) != os.getpgrp():
            return
        width = self.width
        text = "".join(f"{line}\n" for line in lines)
        sys.stdout.write(f"{self._to_first_line()}{_CLEAR_BELOW}{_NO_WRAP}{text}{_WRAP}")
        sys.stdout.flush()
        self._drawn = [min(width, len(click.unstyle(line))) for line in lines]

    def stop(self) -> None:
        """Remove what was drawn, and give the signals back."""
        self._erase()
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _to_first_line(self) -> str:
        """Move the cursor up. A terminal that has become narrower has folded the lines meanwhile."""
        width = max(1, self.width)
        rows = sum(max(1, -(-length // width)) for length in self._drawn)
        return f"\r\x1b[{rows}A" if rows else "\r"

    def _erase(self) -> None:
        if self._drawn and os.tcgetpgrp(sys.stdout.fileno()) == os.getpgrp():
            sys.stdout.write(self._to_first_line() + _CLEAR_BELOW)
            sys.stdout.flush()
        self._drawn = []

    def _on_resized(self, _number: int, _frame: FrameType | None) -> None:
        self.is_stale = True

    def _on_paused(self, _number: int, _frame: FrameType | None) -> None:
        """Ctrl-Z: leave the shell a clean terminal."""
        self._erase()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)  # stops here until SIGCONT
        signal.signal(signal.SIGTSTP, self._on_paused)

    def _on_continued(self, _number: int, _frame: FrameType | None) -> None:
        self._drawn = []  # the shell has written below it
        self.is_stale = True


@dataclass
class _Usage:
    at: float
    cpu_s: float


class LiveTable:
    """One row for each node: roles, port, process, memory, processor, partitions that it leads and that are in sync."""

    def __init__(self, supervisor: Supervisor, *, restarts: bool) -> None:
        """With `restarts`, nodes that die are started again."""
        self._supervisor = supervisor
        self._restarts = restarts
        self._usage: dict[int, _Usage] = {}
        self._runner = asyncio.Runner()
        self._client = ClusterClient(supervisor.plan.bootstrap, timeout_s=1.0)
        self._screen = _Screen()

    @property
    def is_stale(self) -> bool:
        """Whether the table has to be drawn again at once, since the terminal has changed."""
        return self._screen.is_stale

    def refresh(self) -> None:
        """Ask the cluster once, and draw the table."""
        view: ClusterView | None = None
        controller: int | None = None
        with contextlib.suppress(ClientError, OSError):
            view, controller = self._runner.run(self._ask())
        rows = [self._row(child, view, controller) for child in list(self._supervisor.children.values())]
        self._screen.draw(table_lines(rows, self._screen.width))

    def stop(self) -> None:
        """Restore the terminal."""
        self._screen.stop()
        self._runner.run(self._client.__aexit__())
        self._runner.close()

    async def _ask(self) -> tuple[ClusterView, int | None]:
        view = await self._client.metadata()
        with contextlib.suppress(ClientError, OSError):
            return view, await QuorumClient(self._client).leader_id()
        return view, None

    def _row(self, child: Child, view: ClusterView | None, controller: int | None) -> list[Cell]:
        node_id = child.plan.node_id
        pid = child.pid if child.alive else node_pid(child.plan)  # `raftwerk start` may have started it again
        partitions = [one for topic in view.topics for one in topic.partitions] if view else []
        leads = sum(one.leader == node_id for one in partitions)
        replicas = sum(node_id in one.replicas for one in partitions)
        in_sync = sum(node_id in one.isr for one in partitions)
        memory = memory_bytes(pid) if pid else None
        texts = [
            str(node_id),
            child.plan.roles,
            str(child.plan.port or child.plan.controller_port),
            str(pid) if pid else "-",
            f"{memory / 2**20:.0f} MiB" if memory else "-",
            self._cpu(pid),
            str(leads) if child.plan.port else "-",
            f"{in_sync}/{replicas}" if child.plan.port else "-",
        ]
        is_controller = node_id == controller
        return [*map(Cell, texts), node_state(child, pid, is_controller=is_controller, restarts=self._restarts)]

    def _cpu(self, pid: int | None) -> str:
        used, now = cpu_seconds(pid) if pid else None, time.monotonic()
        if pid is None or used is None:
            return "-"
        before = self._usage.get(pid)
        self._usage[pid] = _Usage(now, used)
        return "-" if before is None else f"{100 * (used - before.cpu_s) / (now - before.at):.0f} %"


def table_lines(rows: Sequence[Sequence[Cell]], width: int) -> list[str]:
    """The lines of the table, and below it, whole, what does not fit into it: the way out must not be cut."""
    lines = boxed(rows, header=_COLUMNS, right=_RIGHT, width=width, give_way=_GIVE_WAY)
    shown = "\n".join(map(click.unstyle, lines))
    for row in rows:
        if row[-1].text not in shown:
            lines += textwrap.wrap(
                f"node {row[0].text}: {row[-1].text}", width, break_long_words=False, break_on_hyphens=False
            )
    return lines


def node_state(child: Child, pid: int | None, *, is_controller: bool, restarts: bool = False) -> Cell:
    """What the table says of a node whose process is `pid`, None if it does not run.

    With `restarts`, nodes that die are started again.
    """
    if pid is None:
        return Cell(f"{(child.is_newest and child.ending) or 'down'}; {next_step(child, restarts=restarts)}", "red")
    if is_paused(pid):
        return Cell("paused", "yellow")
    return Cell("active controller", "green") if is_controller else Cell("up")
