"""The processes of the nodes: those of a local supervisor, or those of any cluster with pid files."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from dataclasses import dataclass
from typing import Protocol

from ....cluster.local.layout import ClusterPlan, NodePlan
from ....cluster.local.processes import command_line, environment, is_running, working_directory
from ....cluster.local.supervisor import LocalNodeError, Supervisor, last_line, node_pid

_POLL_S = 0.02
_TIME = re.compile(r"^\d{4}-\d\d-\d\d[T ][\d:.,]+Z? +")


class Nodes(Protocol):
    """What faults do with the processes of nodes. Every wait has a time limit."""

    @property
    def ids(self) -> list[int]:
        """The ids of all nodes."""

    def pid(self, node_id: int) -> int:
        """The process id of a node."""

    def alive(self, node_id: int) -> bool:
        """Whether the node's process runs."""

    def exit_code(self, node_id: int) -> int | None:
        """How the node's last process ended: negative for a signal; None if it runs, or if nobody knows."""

    def signal(self, node_id: int, sent: signal.Signals) -> None:
        """Send a signal; wait for the end of the process if the signal ends it."""

    def last_log_line(self, node_id: int) -> str:
        """The last line of the node's log without its time; empty if it is not known."""

    def start(self, node_id: int) -> None:
        """Start a dead node and wait until it is ready. Raises `LocalNodeError` if it ends, or is not ready in time."""


class PrefixedSupervisor(Supervisor):
    """A supervisor that runs nodes with a command prefix, such as `ip netns exec NAME`."""

    def __init__(self, plan: ClusterPlan, prefixes: dict[int, list[str]]) -> None:
        super().__init__(plan)
        self._prefixes = prefixes

    def _command(self, plan: NodePlan, ready_fd: int) -> list[str]:
        return [*self._prefixes.get(plan.node_id, []), *super()._command(plan, ready_fd)]


class SupervisedNodes:
    """The nodes of a cluster that the run has started."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    @property
    def ids(self) -> list[int]:
        """See `Nodes`."""
        return [node.node_id for node in self._supervisor.plan.nodes]

    def pid(self, node_id: int) -> int:
        """See `Nodes`."""
        return self._supervisor.children[node_id].pid

    def alive(self, node_id: int) -> bool:
        """See `Nodes`."""
        return self._supervisor.children[node_id].alive

    def exit_code(self, node_id: int) -> int | None:
        """See `Nodes`."""
        return self._supervisor.children[node_id].process.poll()

    def signal(self, node_id: int, sent: signal.Signals) -> None:
        """See `Nodes`."""
        self._supervisor.kill(node_id, sent)
        if sent is signal.SIGTERM:
            _wait(lambda: not self.alive(node_id), 30.0)

    def last_log_line(self, node_id: int) -> str:
        """See `Nodes`."""
        return _last_line(self._supervisor.plan.node(node_id).log_file)

    def start(self, node_id: int, timeout_s: float = 20.0) -> None:
        """See `Nodes`."""
        self._supervisor.start_node(node_id)
        self._supervisor.wait_ready([node_id], timeout_s)


class LocalNodes:
    """The nodes of a local cluster that is already running, with or without its `raftwerk up`. They outlive the run."""

    def __init__(self, plan: ClusterPlan) -> None:
        self._plan = plan
        self._supervisor = Supervisor(plan, detach=True)

    def close(self) -> None:
        """Leave the nodes running."""
        self._supervisor.leave_running()

    @property
    def ids(self) -> list[int]:
        """See `Nodes`."""
        return [node.node_id for node in self._plan.nodes]

    def pid(self, node_id: int) -> int:
        """See `Nodes`. Raises `LocalNodeError` for a node that does not run."""
        pid = node_pid(self._plan.node(node_id))
        if pid is None:
            raise LocalNodeError(f"node {node_id} does not run")
        return pid

    def alive(self, node_id: int) -> bool:
        """See `Nodes`."""
        return node_pid(self._plan.node(node_id)) is not None

    def exit_code(self, node_id: int) -> int | None:
        """See `Nodes`. Nobody knows: it is not a child of the run."""

    def signal(self, node_id: int, sent: signal.Signals) -> None:
        """See `Nodes`."""
        pid = node_pid(self._plan.node(node_id))
        if pid is None:
            return
        os.kill(pid, sent)
        if sent in (signal.SIGKILL, signal.SIGTERM):
            _wait(lambda: node_pid(self._plan.node(node_id)) != pid, 30.0)

    def last_log_line(self, node_id: int) -> str:
        """See `Nodes`."""
        return _last_line(self._plan.node(node_id).log_file)

    def start(self, node_id: int, timeout_s: float = 20.0) -> None:
        """See `Nodes`. `raftwerk up --restart` may have started it already."""
        if not self.alive(node_id):
            self._supervisor.restart_node(node_id, timeout_s)


@dataclass(frozen=True, slots=True)
class _Origin:
    command: list[str]
    environment: dict[str, str]
    directory: str


class AdoptedNodes:
    """Nodes of a cluster that is already running, of any software. `pid_files` names each node's pid file with `%d`.

    A killed node is started again with the command line, environment and directory that it had.
    """

    def __init__(self, pid_files: str, node_ids: list[int]) -> None:
        self._ids = node_ids
        self._pid_files = pid_files
        self._pids: dict[int, int] = {}
        self._origins: dict[int, _Origin] = {}
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        for node_id in node_ids:
            with open(pid_files % node_id, encoding="ascii") as file:
                pid = self._pids[node_id] = int(file.read())
            self._origins[node_id] = _origin_of(pid)

    @property
    def ids(self) -> list[int]:
        """See `Nodes`."""
        return list(self._ids)

    def pid(self, node_id: int) -> int:
        """See `Nodes`."""
        return self._pids[node_id]

    def alive(self, node_id: int) -> bool:
        """See `Nodes`."""
        child = self._children.get(node_id)
        return child.poll() is None if child is not None else is_running(self._pids[node_id])

    def exit_code(self, node_id: int) -> int | None:
        """See `Nodes`. It is known of those that the run has started."""
        child = self._children.get(node_id)
        return None if child is None else child.poll()

    def signal(self, node_id: int, sent: signal.Signals) -> None:
        """See `Nodes`."""
        if self.alive(node_id):
            os.kill(self._pids[node_id], sent)
        if sent in (signal.SIGKILL, signal.SIGTERM):
            _wait(lambda: not self.alive(node_id), 30.0)

    def last_log_line(self, node_id: int) -> str:
        """See `Nodes`."""
        return _last_line(self._pid_files % node_id + ".log")

    def start(self, node_id: int) -> None:
        """See `Nodes`."""
        if self.alive(node_id):
            return
        origin = self._origins[node_id]
        with open(self._pid_files % node_id + ".log", "ab") as log:
            child = subprocess.Popen(
                origin.command, env=origin.environment, cwd=origin.directory, stdout=log, stderr=log
            )
        self._children[node_id] = child
        self._pids[node_id] = child.pid
        with open(self._pid_files % node_id, "w", encoding="ascii") as file:
            file.write(f"{child.pid}\n")


def _last_line(log_file: str) -> str:
    """Without the time of day: what a run says counts from its own begin."""
    return _TIME.sub("", last_line(log_file))


def _origin_of(pid: int) -> _Origin:
    return _Origin(command_line(pid), environment(pid), working_directory(pid))


def _wait(condition: object, limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    while callable(condition) and not condition() and time.monotonic() < deadline:
        time.sleep(_POLL_S)
