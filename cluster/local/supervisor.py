"""Runs the nodes of a local cluster as child processes: starts them, waits until they serve, kills and stops them.

A child writes a line to a pipe when it serves. It stops when its standard input ends, so that no node outlives a
supervisor that was killed; a detached child does not.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from ...runtime.faults.fault_socket import FaultConnection, FaultSocketError, NodeFaults
from ...runtime.files.real_disk import LOCK_FILE
from ..command_line.cluster_address import options_of
from ..node.exit_codes import EXIT_BAD_CONFIG
from .layout import STATIC_VOTERS_KEY, ClusterPlan, NodePlan, may_be_first_voter, write_properties
from .processes import command_line, is_paused, is_running, lock_holders, process_ids, working_directory
from .progress import NO_PROGRESS_LIMIT_S, Progress, StoppingNode, Tell, forget_progress, silent, wait_stopped
from .secured import make_users, prepare_security

STOPPED_CLEANLY = "stopped cleanly"
_LOOK_EVERY_S = 0.5
_CONNECT_S = 1.0


class LocalNodeError(Exception):
    """A node did not start, or did not do what it was asked; the message says where to look."""


class RefusedSettingsError(LocalNodeError):
    """A node ended at its start because it refuses its settings."""


@dataclass
class Child:
    """One node's process, running or ended."""

    plan: NodePlan
    process: subprocess.Popen[bytes]
    ready_pipe: int | None
    log_start: int = 0
    """The size in bytes that its log file had when the process was started."""
    started_at: float = field(default_factory=time.monotonic)
    ready_at: float | None = None
    newest_pid: int | None = None
    """The newest process of the node that is known, if it is another one, as `raftwerk start` starts it.

    0 if it has stopped cleanly, and with it its number has gone, before it was seen.
    """
    others_ending: str = ""
    """How that process ended."""

    @property
    def ending(self) -> str:
        """How the newest process that is known ended, such as "killed by signal 9"; empty while ours runs."""
        if self.newest_pid is not None:
            return self.others_ending
        code = self.process.poll()
        if not code:
            return "" if code is None else STOPPED_CLEANLY
        return f"killed by signal {-code}" if code < 0 else f"ended with exit code {code}"

    @property
    def ending_told(self) -> str:
        """The same as what is said of the node: "was killed by signal 9", "ended with exit code 1"."""
        return self.ending if self.ending.startswith("ended") else f"was {self.ending}"

    @property
    def has_died(self) -> bool:
        """Whether the newest process that is known has ended, and not cleanly."""
        return self.ending not in ("", STOPPED_CLEANLY)

    @property
    def is_newest(self) -> bool:
        """Whether nobody has started the node again since its newest process that is known."""
        if has_stopped(self.plan):
            return not self.has_died
        return _read_pid(self.plan.pid_file) == (self.newest_pid or self.pid)

    @property
    def unseen_ended_pid(self) -> int | None:
        """What `newest_pid` becomes when a process that another command started has ended before it was seen."""
        if self.is_newest:
            return None
        if has_stopped(self.plan):
            return 0
        pid = _read_pid(self.plan.pid_file)
        return None if pid is None or is_running(pid) else pid

    @property
    def alive(self) -> bool:
        """Whether the process runs, paused or not."""
        return self.process.poll() is None

    @property
    def pid(self) -> int:
        """The process id."""
        return self.process.pid


@dataclass(frozen=True, slots=True)
class Stopped:
    """The nodes that were running, with their process ids, and those of them that had to be killed."""

    pids: Mapping[int, int]
    killed: list[int]


class Supervisor:
    """The processes of one local cluster. Its methods block; every wait has a limit in seconds."""

    def __init__(
        self,
        plan: ClusterPlan,
        *,
        detach: bool = False,
        log_options: Sequence[str] = (),
    ) -> None:
        """`log_options` are options of `raftwerk node`; without them the environment says what nodes log, and how."""
        self.plan = plan
        self.detach = detach
        self._options = list(log_options)
        self._faults: dict[int, FaultConnection] = {}
        self.children: dict[int, Child] = {}

    def __enter__(self) -> Supervisor:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, limit_s: float = NO_PROGRESS_LIMIT_S, tell: Tell = silent) -> float:
        """Write the settings, start every node, wait until all are ready; returns the seconds it took.

        A secured cluster gets its certificates before, and at the first start its users afterwards. Raises
        `LocalNodeError` where a node of the directory runs, before anything is written.
        """
        began = time.monotonic()
        refuse_running_nodes(self.plan.directory)
        prepare_security(self.plan)
        write_properties(self.plan)
        for node in self.plan.nodes:
            self.start_node(node.node_id)
        try:
            self.wait_ready(limit_s=limit_s, tell=tell)
            self._make_users()
        except LocalNodeError:
            self.stop()
            raise
        self._forget_first_voters()
        return time.monotonic() - began

    def start_node(self, node_id: int) -> Child:
        """Start one node's process, unless it runs, without waiting until it serves."""
        running = self.children.get(node_id)
        if running is not None and running.alive:
            return running
        plan = self.plan.node(node_id)
        forget_progress(plan.progress_file)
        process, ready_pipe, log_start = spawn(partial(self._command, plan), plan.log_file, detach=self.detach)
        with open(plan.pid_file, "w", encoding="ascii") as file:
            file.write(f"{process.pid}\n")
        self._forget_pipe(running)
        child = self.children[node_id] = Child(plan, process, ready_pipe, log_start)
        return child

    def wait_ready(
        self, node_ids: list[int] | None = None, limit_s: float = NO_PROGRESS_LIMIT_S, tell: Tell = silent
    ) -> None:
        """Wait until these nodes (default: all) serve.

        Raises `LocalNodeError` as soon as one has died, or when none of those left has shown progress for `limit_s`
        and no other has begun to serve meanwhile.
        """
        waiting = [self.children[node_id] for node_id in (node_ids or list(self.children))]
        waiting = [child for child in waiting if child.ready_at is None]
        progress = Progress({child.plan.node_id: child.plan.progress_file for child in waiting}, tell)
        while waiting:
            pipes = {child.ready_pipe: child for child in waiting if child.ready_pipe is not None}
            readable, _, _ = select.select(list(pipes), [], [], min(_LOOK_EVERY_S, limit_s))
            silent_s = progress.look(child.plan.node_id for child in waiting)
            if not readable and min(silent_s.values()) >= limit_s:
                raise LocalNodeError(_not_ready(waiting, limit_s))
            dead = []
            for pipe in readable:
                child = pipes[pipe]
                said = os.read(pipe, 64)
                self._forget_pipe(child)
                if said:
                    child.ready_at = time.monotonic()
                    waiting.remove(child)
                    progress.begin_anew()  # the others may have waited for this one: a quorum needs a majority
                else:
                    dead.append(child)
            if dead:
                why = "; ".join(self._why_it_died(child) for child in dead)
                refuses = any(child.process.returncode == EXIT_BAD_CONFIG for child in dead)
                raise RefusedSettingsError(why) if refuses else LocalNodeError(why)

    def kill(self, node_id: int, sent: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to a node; SIGKILL waits until the process is gone."""
        child = self.children[node_id]
        if child.alive:
            child.process.send_signal(sent)
        if sent is signal.SIGKILL:
            child.process.wait()

    def cut(self, node_id: int, others: Iterable[int]) -> None:
        """Cut the connections that a node opens to `others`, and no other connections, until this process ends.

        Returns when the node has done it. It needs the setting `fault.injection.enable`.
        """
        child = self.children[node_id]
        addresses = tuple(address for other in others for address in self.plan.node(other).addresses)
        try:
            connection = self._faults.get(node_id)
            if connection is None or connection.pid != child.pid:
                self._close_faults(node_id)
                connection = self._faults[node_id] = FaultConnection(child.pid)
            connection.inject(NodeFaults(addresses))
        except FaultSocketError as error:
            self._close_faults(node_id)  # a late answer would be taken for that to the next command
            raise LocalNodeError(f"node {node_id} {error}; see {child.plan.log_file}") from None

    def _close_faults(self, node_id: int) -> None:
        connection = self._faults.pop(node_id, None)
        if connection is not None:
            connection.close()

    def restart_node(self, node_id: int, timeout_s: float = 30.0) -> None:
        """Start a dead node and wait until it is ready."""
        self.start_node(node_id)
        self.wait_ready([node_id], timeout_s)

    def stop(self, limit_s: float = NO_PROGRESS_LIMIT_S, tell: Tell = silent) -> list[int]:
        """Stop every node cleanly, and by force one that makes no progress for `limit_s`; see `wait_stopped`.

        Returns the ids of those that had to be forced.
        """
        alive = [child for child in self.children.values() if child.alive]
        for child in alive:
            ask_to_stop(child.pid)
        stopping = [
            StoppingNode(one.plan.node_id, one.plan.progress_file, partial(_is_alive, one), one.process.kill)
            for one in alive
        ]
        forced = wait_stopped(stopping, limit_s, tell)
        for node_id, child in self.children.items():
            self._forget_pipe(child)
            self._close_faults(node_id)
            if child.process.stdin is not None:
                child.process.stdin.close()
        return forced

    def leave_running(self) -> None:
        """Stop supervising the nodes of a detached cluster; they go on."""
        for child in self.children.values():
            self._forget_pipe(child)
        self.children.clear()

    def leave_out(self, node_id: int) -> None:
        """Supervise a node that has ended no more."""
        child = self.children[node_id]
        if not child.alive:
            self._forget_pipe(child)
            del self.children[node_id]

    def _forget_first_voters(self) -> None:
        if self.plan.first_voters is not None:
            self.plan = replace(self.plan, first_voters=None)
            os.remove(self.plan.initial_controllers_file)

    def _make_users(self) -> None:
        from ..client.client_errors import ClientError

        try:
            make_users(self.plan)
        except (ClientError, OSError) as error:
            raise LocalNodeError(f"the users of the secured cluster cannot be made: {error}") from error

    def _command(self, plan: NodePlan, ready_fd: int) -> list[str]:
        command = [sys.executable, "-P", "-m", "raftwerk", "node", plan.properties_file]
        command += ["--format", self.plan.cluster_id, "--ready-fd", str(ready_fd), *self._options]
        command += ["--progress-file", plan.progress_file, "--pid-file", plan.pid_file]
        if plan.controller_port is not None and STATIC_VOTERS_KEY not in plan.properties:
            first = self.plan.first_voters if may_be_first_voter(self.plan, plan) else None
            command += ["--no-initial-controllers"] if first is None else ["--initial-controllers", first]
        return command if self.detach else [*command, "--stop-at-eof"]

    def _why_it_died(self, child: Child) -> str:
        child.process.wait()
        other = node_pid(child.plan)
        if other is not None:
            return f"node {child.plan.node_id} is already running (process {other}): another command has started it"
        why = last_line(child.plan.log_file, child.log_start) or "it logged nothing"
        return f"node {child.plan.node_id} {child.ending_told}: {why}{full_disk(child.plan)}"

    @staticmethod
    def _forget_pipe(child: Child | None) -> None:
        if child is not None and child.ready_pipe is not None:
            os.close(child.ready_pipe)
            child.ready_pipe = None


class Spawned(NamedTuple):
    """A process that was started, the pipe by which it says that it serves, and the size that its log file had."""

    process: subprocess.Popen[bytes]
    ready_pipe: int
    log_start: int


def spawn(command: Callable[[int], list[str]], log_file: str, *, detach: bool) -> Spawned:
    """Start the command, which gets the number of its end of the pipe; what it writes goes to the end of `log_file`.

    Unless `detach`, its standard input is a pipe that ends with this process.
    """
    read_end, write_end = os.pipe()
    try:
        with open(log_file, "ab") as log:
            log_start = log.tell()
            process = subprocess.Popen(
                command(write_end),
                stdin=subprocess.DEVNULL if detach else subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=(write_end,),
                start_new_session=True,
            )
    finally:
        os.close(write_end)
    return Spawned(process, read_end, log_start)


def _is_alive(child: Child) -> bool:
    return child.alive


def _not_ready(waiting: list[Child], limit_s: float) -> str:
    ids = ", ".join(str(child.plan.node_id) for child in waiting)
    who = f"node {ids} is" if len(waiting) == 1 else f"nodes {ids} are"
    full = "".join(full_disk(child.plan) for child in waiting)
    logs = " and ".join(child.plan.log_file for child in waiting)
    return f"{who} not ready after {limit_s:g} s without progress; see {logs}{full}"


def full_disk(plan: NodePlan) -> str:
    """That the disk of a node is full, and what to do, to follow another sentence; empty if it is not.

    The node itself may not have been able to log it.
    """
    from ..doctor.disk_checks import RESERVE, RESERVE_DEFAULT_BYTES, space_problem
    from ..doctor.findings import FAILURE
    from .secured import properties_in

    try:
        reserve_bytes = int(properties_in(plan.properties_file).get(RESERVE, RESERVE_DEFAULT_BYTES))
        found = space_problem(plan.data_dir, shutil.disk_usage(plan.data_dir).free, reserve_bytes)
    except (OSError, ValueError):
        return ""
    return f"; {found.what}: {found.way_out}" if found is not None and found.level == FAILURE else ""


def stop_nodes_in(directory: str, limit_s: float = NO_PROGRESS_LIMIT_S, tell: Tell = silent) -> Stopped:
    """Stop the nodes that run in `directory`; see `stop_nodes`."""
    return stop_nodes(_nodes_in(directory), limit_s, tell)


def has_running_nodes(directory: str) -> bool:
    """Whether a node in `directory` runs."""
    return any(node_pid(node) is not None for node in _nodes_in(directory))


def refuse_running_nodes(directory: str) -> None:
    """Raise `LocalNodeError` where nodes in `directory` run, with the way out."""
    nodes = _nodes_in(directory)
    running = [str(node.node_id) for node in nodes if node_pid(node) is not None]
    if running:
        where = options_of(directory)
        start = f"raftwerk start{where} starts those that are down, " if len(running) < len(nodes) else ""
        those = (
            f"node {running[0]} of {directory} is"
            if len(running) == 1
            else f"nodes {', '.join(running)} of {directory} are"
        )
        raise LocalNodeError(f"{those} already running: {start}raftwerk down{where} stops the cluster")


def _nodes_in(directory: str) -> list[NodePlan]:
    """The nodes with a pid file or settings, even if these cannot be read."""
    found = set()
    for name in os.listdir(directory) if os.path.isdir(directory) else []:
        stem, _, suffix = name.partition(".")
        if stem[1:].isdigit() and (stem[:1], suffix) in (("n", "pid"), ("s", "properties")):
            found.add(int(stem[1:]))
    return [NodePlan(node_id, None, None, directory, {}) for node_id in sorted(found)]


def stop_nodes(nodes: Iterable[NodePlan], limit_s: float = NO_PROGRESS_LIMIT_S, tell: Tell = silent) -> Stopped:
    """Stop those of the nodes that run by their pid files, and wait until they have ended; see `wait_stopped`."""
    running = {node.node_id: (node, pid) for node in nodes if (pid := node_pid(node)) is not None}
    for _, pid in running.values():
        ask_to_stop(pid)
    killed = wait_stopped([_stopping(*one) for one in running.values()], limit_s, tell)
    return Stopped({node_id: pid for node_id, (_, pid) in running.items()}, killed)


def has_stopped(node: NodePlan) -> bool:
    """Whether a node that has ended was stopped cleanly, so that it has emptied its pid file, and has not died."""
    try:
        return os.path.getsize(node.pid_file) == 0
    except OSError:
        return False


def _stopping(node: NodePlan, pid: int) -> StoppingNode:
    return StoppingNode(
        node.node_id, node.progress_file, lambda: node_pid(node) == pid, lambda: send_signal(pid, signal.SIGKILL)
    )


def ask_to_stop(pid: int) -> None:
    """Send SIGTERM to a process, paused or not; nothing happens if it has ended."""
    send_signal(pid, signal.SIGTERM)
    send_signal(pid, signal.SIGCONT)  # a paused process takes the signal only then


def send_signal(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process, unless it has ended. Raises PermissionError where it is another user's."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass
    except PermissionError as error:
        reason = f"process {pid} belongs to another user; run the command as the user who started the cluster"
        raise PermissionError(error.errno, reason) from None


def node_pid(plan: NodePlan) -> int | None:
    """The process id of a node, also if another supervisor started it; None when it does not run.

    Its pid file says it; if that was lost, the command lines of all processes; if it names another process, the lock
    on the node's data.
    """
    pid = _read_pid(plan.pid_file)
    if pid is not None and _is_node(pid, plan.properties_file):
        return pid
    if not os.path.exists(plan.properties_file):
        return None
    is_lost = pid is None and not os.path.exists(plan.pid_file)
    candidates = process_ids() if is_lost else lock_holders(os.path.join(plan.data_dir, LOCK_FILE))
    return next((one for one in candidates if _runs_node(one, plan.properties_file)), None)


def paused_nodes(nodes: Iterable[NodePlan]) -> dict[int, int]:
    """The nodes of which a signal has paused the process, with the number of that process."""
    pids = {node.node_id: node_pid(node) for node in nodes}
    return {node_id: pid for node_id, pid in pids.items() if pid is not None and is_paused(pid)}


def brokers_that_do_not_listen(nodes: Iterable[NodePlan]) -> dict[int, int]:
    """The brokers of which the process runs, and is not paused, and the port is closed: the number of each process.

    A broker listens from when it knows the metadata, which it has from the quorum's leader, until it stops.
    """
    found = {}
    for node in nodes:
        pid = None if node.port is None else node_pid(node)
        if pid is not None and not is_paused(pid) and _is_closed(node):
            found[node.node_id] = pid
    return found


def _is_closed(node: NodePlan) -> bool:
    """Whether nothing listens at the broker's port."""
    own = next((at for at in node.addresses if at.endswith(f":{node.port}")), f"127.0.0.1:{node.port}")
    try:
        with socket.create_connection((own.rpartition(":")[0].strip("[]") or "127.0.0.1", node.port or 0), _CONNECT_S):
            return False
    except ConnectionRefusedError:
        return True
    except OSError:
        return False  # who asks the broker hears the reason


def paused_sentence(paused: Mapping[int, int], options: str) -> str:
    """That nodes are paused, and how they go on. Commands have these `options` behind them to find the cluster."""
    ids = [str(node_id) for node_id in paused]
    processes = ", ".join(map(str, paused.values()))
    way_out = f"raftwerk kill {' '.join(ids)} --signal CONT{options} lets"
    if len(ids) == 1:
        return f"node {ids[0]} is paused (process {processes}): {way_out} it go on"
    return f"nodes {', '.join(ids)} are paused (processes {processes}): {way_out} them go on"


def why_no_broker_can_answer(plan: ClusterPlan, options: str) -> str | None:
    """The sentence where no broker can answer since those that run are paused; None where one can."""
    running = [node for node in plan.brokers if node_pid(node) is not None]
    paused = paused_nodes(running)
    return paused_sentence(paused, options) if running and len(paused) == len(running) else None


def _read_pid(path: str) -> int | None:
    try:
        with open(path, encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return None


def _is_node(pid: int, properties_file: str) -> bool:
    """Whether this process runs the node with this server.properties.

    The number in a pid file may have been given to another process, even to a node of another cluster.
    """
    try:
        os.kill(pid, 0)
    except OSError:
        return False  # there is no such process, or it is another user's
    wanted = os.path.realpath(properties_file)
    return any(os.path.realpath(argument) == wanted for argument in command_line(pid))


def _runs_node(pid: int, properties_file: str) -> bool:
    """Whether the command of this process is `raftwerk node` with this server.properties, by a relative path, too."""
    words = command_line(pid)
    named = words[words.index("node") + 1 :][:1] if "node" in words else []
    if not named:
        return False
    try:
        path = named[0] if os.path.isabs(named[0]) else os.path.join(working_directory(pid), named[0])
    except OSError:
        return False  # it has ended, or another user's process tells nobody where it works
    return os.path.realpath(path) == os.path.realpath(properties_file)


def last_line(path: str, start: int = 0) -> str:
    """The last line of a log after byte `start`, at most 400 characters; empty when there is none."""
    try:
        with open(path, "rb") as file:
            file.seek(max(start, os.path.getsize(path) - 4000))
            lines = file.read().decode(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1][-400:] if lines else ""
