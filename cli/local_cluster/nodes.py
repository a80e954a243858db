"""`raftwerk kill`, `stop`, `start` and `clusters`: the nodes of a local cluster, one by one."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from ...cluster.command_line.cluster_address import missing_cluster, options_of, state_dir
from ...cluster.command_line.text_table import folded
from ..options import (
    Command,
    WrongConfiguration,
    counted,
    directory_option,
    each_once,
    json_option,
    log_options,
    print_json,
    tell_none,
)

if TYPE_CHECKING:
    from ...cluster.local.layout import ClusterPlan, NodePlan
    from ...cluster.local.supervisor import Child

_SIGNALS = ("KILL", "TERM", "STOP", "CONT", "INT", "HUP")
_GONE_TIMEOUT_S = 30.0


def _timeout_option(text: str) -> Callable[[click.decorators.FC], click.decorators.FC]:
    return click.option(
        "--timeout",
        "limit_s",
        type=click.FloatRange(min=0),
        default=30.0,
        show_default=True,
        metavar="SECONDS",
        help=text,
    )


no_progress_option = _timeout_option("How long a node may make no progress in stopping before it is killed.")
"""`--timeout` of commands that stop nodes."""


def nodes_argument(*, required: bool) -> Callable[[click.decorators.FC], click.decorators.FC]:
    """The argument with the ids of nodes."""
    return click.argument(
        "node_ids",
        type=int,
        nargs=-1,
        required=required,
        metavar="NODE..." if required else "[NODE]...",
        callback=each_once,
    )


class _Signal(click.ParamType[str]):
    """A signal as KILL, SIGKILL or 9; its value is the name without SIG."""

    name = "signal"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Called by click."""
        text = str(value).upper().removeprefix("SIG")
        names = {str(int(signal.Signals[f"SIG{name}"])): name for name in _SIGNALS}
        found = names.get(text, text)
        if found not in _SIGNALS:
            known = ", ".join(f"{name} ({number})" for number, name in names.items())
            self.fail(f"{value!r} is none of {known}.", param, ctx)
        return found


@click.command(cls=Command)
@nodes_argument(required=True)
@click.option(
    "-s",
    "--signal",
    "name",
    default="KILL",
    show_default=True,
    type=_Signal(),
    metavar=f"[{'|'.join(_SIGNALS)}]",
    help="The signal, by its name or number.",
)
@directory_option
def kill(node_ids: tuple[int, ...], name: str, directory: str) -> None:
    """Send a signal to nodes of the local cluster in DIR: KILL to crash, STOP and CONT to pause.

    To stop nodes cleanly, use raftwerk stop.

    \b
    Examples:
      raftwerk kill 2                     a crash
      raftwerk kill 2 3                   two at once
      raftwerk kill 2 --signal STOP       a hanging machine; CONT ends it
    """
    for node_id, pid in _sent(directory, node_ids, name):
        click.echo(f"Sent SIG{name} to node {node_id} (process {pid}).")


@click.command(cls=Command)
@nodes_argument(required=True)
@no_progress_option
@directory_option
def stop(node_ids: tuple[int, ...], limit_s: float, directory: str) -> None:
    """Stop nodes of a local cluster cleanly: they hand over what they lead, and end.

    They are waited for as long as they make progress. Exit code 1 if one had to be killed. raftwerk start starts them
    again. To stop all nodes, use raftwerk down.

    \b
    Example:
      raftwerk stop 2;  raftwerk start 2
    """
    from ...cluster.local.progress import killed_sentence
    from ...cluster.local.supervisor import stop_nodes

    stopped = stop_nodes([node for node, _ in _running(directory, node_ids)], limit_s, tell)
    for node_id, pid in stopped.pids.items():
        if node_id not in stopped.killed:
            click.echo(f"Stopped node {node_id} (process {pid}).")
    if stopped.killed:
        raise click.ClickException(killed_sentence(stopped.killed, limit_s))


def tell(sentence: str) -> None:
    """Print what is waited for."""
    click.echo(folded(f"{sentence[0].upper()}{sentence[1:]}.", to=sys.stderr), err=True)


def _running(directory: str, node_ids: tuple[int, ...]) -> list[tuple[NodePlan, int]]:
    """The nodes with their processes; exit code 1 when one of them does not run."""
    from ...cluster.local.supervisor import node_pid

    found = []
    for node in [find_node(directory, one) for one in node_ids]:
        pid = node_pid(node)
        if pid is None:
            raise click.ClickException(
                f"node {node.node_id} is not running; raftwerk start {node.node_id}{options_of(directory)} starts it"
            )
        found.append((node, pid))
    return found


def _sent(directory: str, node_ids: tuple[int, ...], name: str) -> Iterator[tuple[int, int]]:
    """Send the signal to all of the nodes; each node and its process, once it is gone if the signal ends it at once."""
    from ...cluster.local.supervisor import node_pid, send_signal

    found = _running(directory, node_ids)
    sent = signal.Signals[f"SIG{name}"]
    for _, pid in found:
        send_signal(pid, sent)
    deadline = time.monotonic() + _GONE_TIMEOUT_S
    for node, pid in found:
        while sent == signal.SIGKILL and node_pid(node) == pid:
            if time.monotonic() > deadline:
                raise click.ClickException(f"node {node.node_id} (process {pid}) is still running; see {node.log_file}")
            time.sleep(0.01)
        yield node.node_id, pid


@click.command(cls=Command)
@nodes_argument(required=False)
@_timeout_option("How long to wait for nodes that make no progress; they go on starting then.")
@directory_option
@log_options
def start(node_ids: tuple[int, ...], limit_s: float, directory: str, log_level: str, log_format: str) -> None:
    """Start nodes of a local cluster (default: all that are down), and wait until they serve.

    Nodes with many partitions take their time: they are waited for as long as they make progress. Exit code 1 as soon
    as one of them dies, or if they make none. After Ctrl-C those that were started go on: it says which run.

    \b
    Examples:
      raftwerk kill 2;  raftwerk start 2
      raftwerk start
    """
    from ...cluster.local.secured import lost_files
    from ...cluster.local.supervisor import LocalNodeError, Supervisor, node_pid, paused_nodes, paused_sentence
    from ...cluster.local.voters_on_disk import lost_majority_told

    plan = find_plan(directory)
    wanted = [find_node(directory, node_id) for node_id in node_ids]
    paused = paused_nodes(wanted or plan.nodes)
    for node in wanted:
        pid = node_pid(node)
        if pid is not None and node.node_id not in paused:
            raise click.ClickException(f"node {node.node_id} is already running (process {pid})")
    down = [node.node_id for node in wanted or plan.nodes if node_pid(node) is None]
    if paused and (wanted or not down):
        raise click.ClickException(paused_sentence(paused, options_of(directory)))
    if not down:
        raise click.ClickException(f"every node is already running: raftwerk status{options_of(directory)} shows them")
    if paused:
        click.echo(folded(f"Note: {paused_sentence(paused, options_of(directory))}.", to=sys.stderr), err=True)
    lost = lost_files(plan)
    if lost is not None:
        raise click.ClickException(lost)
    supervisor = Supervisor(plan, detach=True, log_options=["--log-level", log_level, "--log-format", log_format])
    began = time.monotonic()
    try:
        for node_id in down:
            supervisor.start_node(node_id)
        if without := missing_majority(plan, started=down):
            click.echo(folded(f"Note: {_nodes(down)} cannot serve yet{without}.", to=sys.stderr), err=True)
        supervisor.wait_ready(down, limit_s, tell)
    except LocalNodeError as error:
        has_died = not all(child.alive for child in supervisor.children.values())
        why = "" if has_died else f"{missing_majority(plan)}{lost_majority_told(plan)}"
        raise click.ClickException(f"{error}{why}") from None
    except KeyboardInterrupt:
        click.echo(_interrupted_told(supervisor.children, down, options_of(directory)), err=True)
        raise click.exceptions.Exit(130) from None
    finally:
        for node_id, child in supervisor.children.items():
            if child.ready_at is not None:
                click.echo(f"Node {node_id} ready in {child.ready_at - began:.2f} s.")
        supervisor.leave_running()


def _interrupted_told(children: Mapping[int, Child], asked: Sequence[int], where: str) -> str:
    """What Ctrl-C has left of the nodes that were to be started: which serve, which start, which do not run."""
    running = [node_id for node_id in asked if node_id in children and children[node_id].alive]
    ready = [node_id for node_id in running if children[node_id].ready_at is not None]
    starting = [node_id for node_id in running if node_id not in ready]
    down = [node_id for node_id in asked if node_id not in running]
    told = []
    if ready:
        told.append(f"{_nodes(ready)} {'serves' if len(ready) == 1 else 'serve'}")
    if starting:
        numbers = " ".join(map(str, starting))
        told.append(
            f"{_nodes(starting)} {'goes' if len(starting) == 1 else 'go'} on starting (raftwerk status{where} shows "
            f"how far, raftwerk kill {numbers}{where} ends {'it' if len(starting) == 1 else 'them'})"
        )
    if down:
        told.append(f"{_nodes(down)} {'does' if len(down) == 1 else 'do'} not run")
    return f"Interrupted: {'; '.join(told)}."


def _nodes(node_ids: Sequence[int]) -> str:
    return f"node{'s' * (len(node_ids) > 1)} {', '.join(map(str, node_ids))}"


def missing_majority(plan: ClusterPlan, *, started: Collection[int] = ()) -> str:
    """What to do when so many controllers are down or paused that there is no majority, to follow another sentence.

    It is empty where there is one. Nodes that were just `started` may not be seen yet, and do not count as down.
    """
    from ...cluster.local.supervisor import node_pid, paused_nodes

    controllers = [node for node in plan.nodes if node.controller_port is not None]
    down = [str(node.node_id) for node in controllers if node.node_id not in started and node_pid(node) is None]
    paused = list(map(str, paused_nodes(controllers)))
    if 2 * len(down + paused) < len(controllers):
        return ""
    where = options_of(plan.directory)
    ways = [f"raftwerk start{where} starts all nodes"] * bool(down)
    ways += [f"raftwerk kill {' '.join(paused)} --signal CONT{where} ends the pause"] * bool(paused)
    missing = down + paused
    which = f"controller{'s' if len(missing) > 1 else ''} {', '.join(missing)}"
    return f"; without {which} there is no majority: {', '.join(ways)}"


@click.command(cls=Command)
@json_option
def clusters(as_json: bool) -> None:
    """List the named local clusters.

    \b
    Examples:
      raftwerk up -n 3 --name orders --port 0 --detach
      raftwerk clusters
      raftwerk down --name orders
    """
    from ...cluster.local.layout import load_plan
    from ...cluster.local.supervisor import node_pid

    base = state_dir()
    names = sorted(os.listdir(base)) if os.path.isdir(base) else []
    for name in names:
        try:
            plan = load_plan(os.path.join(base, name))
        except (OSError, ValueError):
            continue
        running = sum(node_pid(node) is not None for node in plan.nodes)
        if as_json:
            row = {"name": name, "nodes": len(plan.nodes), "running": running, "bootstrap": plan.bootstrap}
            print_json(row | {"directory": plan.directory})
        else:
            click.echo(f"{name:20}  {running} of {counted(len(plan.nodes), 'node')} up  {plan.bootstrap}")
    if not names:
        tell_none("There are no named clusters; raftwerk up --name NAME creates one.")


def find_plan(directory: str) -> ClusterPlan:
    """The plan of the local cluster in `directory`; exit code 2, with what to do, when there is none."""

    from ...cluster.local.layout import load_plan

    try:
        return load_plan(directory)
    except (FileNotFoundError, NotADirectoryError):
        raise WrongConfiguration(missing_cluster(directory)) from None
    except PermissionError as error:
        raise WrongConfiguration(
            f"the cluster in {os.path.abspath(directory)} cannot be read: permission denied for {error.filename}; "
            "run the command as the user who started the cluster"
        ) from None
    except ValueError as error:
        raise WrongConfiguration(str(error)) from None


def find_node(directory: str, node_id: int) -> NodePlan:
    """The plan of one node; exit code 2, with the known nodes, when there is no such node."""
    plan = find_plan(directory)
    try:
        return plan.node(node_id)
    except KeyError:
        known = ", ".join(str(node.node_id) for node in plan.nodes)
        raise WrongConfiguration(f"there is no node {node_id}; the cluster in {plan.directory} has {known}") from None
