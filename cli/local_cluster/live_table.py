"""The table that `raftwerk up` shows on a terminal."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass

from rich.live import Live
from rich.table import Table

from ...cluster.client.client_errors import ClientError
from ...cluster.client.cluster_client import ClusterClient, ClusterView
from ...cluster.client.quorum_client import QuorumClient
from ...cluster.local.supervisor import Child, Supervisor, cpu_seconds, is_paused, memory_bytes, node_pid


@dataclass
class _Usage:
    at: float
    cpu_s: float


class LiveTable:
    """One row for each node: roles, port, process, memory, processor, partitions that it leads and that are in sync."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._usage: dict[int, _Usage] = {}
        self._runner = asyncio.Runner()
        self._client = ClusterClient(supervisor.plan.bootstrap, timeout_s=1.0)
        self._live = Live(auto_refresh=False, transient=True)
        self._live.start()

    def refresh(self) -> None:
        """Ask the cluster once, and draw the table."""
        view: ClusterView | None = None
        controller: int | None = None
        with contextlib.suppress(ClientError, OSError):
            view, controller = self._runner.run(self._ask())
        self._live.update(self._table(view, controller), refresh=True)

    def stop(self) -> None:
        """Restore the terminal."""
        self._live.stop()
        self._runner.run(self._client.__aexit__())
        self._runner.close()

    async def _ask(self) -> tuple[ClusterView, int | None]:
        view = await self._client.metadata()
        with contextlib.suppress(ClientError, OSError):
            return view, await QuorumClient(self._client).leader_id()
        return view, None

    def _table(self, view: ClusterView | None, controller: int | None) -> Table:
        table = Table()
        for column in ("node", "roles", "port", "pid", "memory", "cpu", "leads", "in sync", "state"):
            right = column in ("memory", "cpu", "leads", "in sync", "pid")
            table.add_column(column, justify="right" if right else "left")
        for child in list(self._supervisor.children.values()):
            table.add_row(*self._row(child, view, controller))
        return table

    def _row(self, child: Child, view: ClusterView | None, controller: int | None) -> list[str]:
        node_id = child.plan.node_id
        pid = child.pid if child.alive else node_pid(child.plan)  # `raftwerk start` may have started it again
        partitions = [one for topic in view.topics for one in topic.partitions] if view else []
        leads = sum(one.leader == node_id for one in partitions)
        replicas = sum(node_id in one.replicas for one in partitions)
        in_sync = sum(node_id in one.isr for one in partitions)
        memory = memory_bytes(pid) if pid else None
        return [
            str(node_id),
            child.plan.roles,
            str(child.plan.port or child.plan.controller_port),
            str(pid) if pid else "-",
            f"{memory / 1e6:.0f} MB" if memory else "-",
            self._cpu(pid),
            str(leads) if child.plan.port else "-",
            f"{in_sync}/{replicas}" if child.plan.port else "-",
            self._state(node_id, pid, controller),
        ]

    def _state(self, node_id: int, pid: int | None, controller: int | None) -> str:
        if pid is None:
            return f"[red]{self._supervisor.notes.get(node_id, 'down')}[/red]"
        if is_paused(pid):
            return "[yellow]paused[/yellow]"
        return "[green]active controller[/green]" if node_id == controller else "up"

    def _cpu(self, pid: int | None) -> str:
        used, now = cpu_seconds(pid) if pid else None, time.monotonic()
        if pid is None or used is None:
            return "-"
        before = self._usage.get(pid)
        self._usage[pid] = _Usage(now, used)
        return "-" if before is None else f"{100 * (used - before.cpu_s) / (now - before.at):.0f} %"
