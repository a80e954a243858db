"""`raftwerk status`, `kill`, `start` and `clusters`: the nodes of a local cluster, one by one."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from ...cluster.command_line.cluster_address import missing_cluster, options_of, state_dir
from ...cluster.command_line.cluster_options import choose_address, cluster_options
from ...cluster.command_line.text_table import folded
from ..options import (
    Command,
    WrongConfiguration,
    counted,
    directory_option,
    json_option,
    print_json,
    run_client,
    sentence_of,
    tell_none,
)

if TYPE_CHECKING:
    from ...cluster.client.admin_client import BrokerState
    from ...cluster.client.cluster_client import ClusterClient, ClusterView
    from ...cluster.client.quorum_client import DownVoter, SilentVoter
    from ...cluster.local.layout import ClusterPlan, NodePlan

_SIGNALS = ("KILL", "TERM", "STOP", "CONT", "INT", "HUP")
_GONE_TIMEOUT_S = 30.0
_LEADER_TIMEOUT_S = 3.0
"""How long `status` waits for the quorum's leader; brokers wait longer for it."""
_NO_LEADER = "The quorum has no leader: topics and leaders cannot change until a majority of the controllers runs"


@click.command(cls=Command)
@cluster_options
@json_option
@click.pass_context
def status(
    ctx: click.Context, bootstrap_server: str | None, cluster_name: str | None, cluster_dir: str | None, as_json: bool
) -> None:
    """Show the nodes of a cluster: which are up, what they lead, what is out of sync.

    Of a cluster elsewhere it shows the brokers, as clients see them. Exit code 0 if every node is up and every replica
    is in sync, 1 otherwise.

    \b
    Examples:
      raftwerk status
      raftwerk status -d /tmp/c1 --json | jq -r 'select(.state == "down") | .node'
      raftwerk status -b broker-1:9092
    """
    address = choose_address(bootstrap_server, cluster_name, cluster_dir)
    if address.directory is None:
        is_well = _show_brokers(address.bootstrap, as_json)
    else:
        is_well = _show_nodes(find_plan(address.directory), as_json)
    ctx.exit(0 if is_well else 1)


def _show_nodes(plan: ClusterPlan, as_json: bool) -> bool:
    """Print the nodes of a local cluster; whether all is well."""
    view, leader, fenced, why = _ask(plan)
    if view is None:
        leader = _leader_among_controllers(plan)
    if isinstance(leader, _Leader) and _missing_majority(plan):
        leader = replace(leader, is_confirmed=False)
    controller = leader.node_id if isinstance(leader, _Leader) and leader.is_confirmed else None
    rows = [_row(node, view, controller, fenced) for node in plan.nodes]
    for row in rows:
        if as_json:
            print_json(row)
    if not as_json:
        _print_table(rows)
        click.echo(cluster_line(plan.bootstrap, plan.cluster_id))
        if view is None:
            click.echo(folded(_no_broker_answers(rows, why, options_of(plan.directory))))
        elif controller is None:
            click.echo(folded(f"{_no_controller(leader)}{_missing_majority(plan)}."))
            if not isinstance(leader, _Unseen):
                click.echo("Who leads and is in sync is what the brokers heard last.")
    is_in_sync = view is not None and _show_partitions(view, as_json)
    is_led = controller is not None or isinstance(leader, _Unseen)
    return is_in_sync and is_led and all(row["state"] == "up" for row in rows)


def cluster_line(bootstrap: str, cluster_id: str | None) -> str:
    """The addresses of a cluster, and its id, which has a line of its own on a terminal that is too narrow for both."""
    servers, id_ = f"bootstrap.servers={bootstrap}", f"cluster id {cluster_id}"
    line = f"{servers}  {id_}"
    return line if folded(line) == line else f"{servers}\n{id_}"


@dataclass(frozen=True, slots=True)
class _Leader:
    """The leader of the quorum, by its own account, and whether a majority of the voters follows it or answers."""

    node_id: int
    is_confirmed: bool


@dataclass(frozen=True, slots=True)
class _Unseen:
    """Who leads the quorum is not told to this user."""

    why: str


def _no_controller(leader: _Leader | _Unseen | None) -> str:
    """What to say where no controller is active that a majority follows, or none can be seen."""
    if leader is None:
        return _NO_LEADER
    if isinstance(leader, _Unseen):
        return f"Who is the active controller cannot be seen: {leader.why}"
    return (
        f"That node {leader.node_id} is the active controller is not confirmed: no majority of the controllers follows "
        "it; topics and leaders cannot change until a majority of the controllers runs"
    )


def _no_broker_answers(rows: list[dict[str, Any]], why: str, where: str) -> str:
    """What to do when the nodes of a local cluster give no answer."""
    if all(row["state"] == "down" for row in rows):
        return f"No broker answers: raftwerk up{where} starts the cluster, raftwerk start N{where} one node."
    brokers = [row for row in rows if "broker" in row["roles"]]
    up, down, paused = (
        [str(row["node"]) for row in brokers if row["state"] == one] for one in ("up", "down", "paused")
    )
    if not up:
        ways = [f"raftwerk start{where} starts all nodes that are down"] * bool(down)
        ways += [f"raftwerk kill {' '.join(paused)} --signal CONT{where} ends the pause"] * bool(paused)
        return f"No broker answers, since none is up: {', '.join(ways)}."
    those = f"node {up[0]} is up" if len(up) == 1 else f"nodes {', '.join(up)} are up"
    return f"No broker answers, although {those}: {why}."


def _show_brokers(bootstrap: str, as_json: bool) -> bool:
    """Print the brokers of a cluster elsewhere; whether all is well."""
    from ...cluster.client.quorum_client import SilentVoter

    view, leader, states, silent = run_client(_cluster_of(bootstrap))
    controller = leader.node_id if isinstance(leader, _Leader) and leader.is_confirmed else None
    known = {one.node_id: one for one in states}
    partitions = [one for topic in view.topics for one in topic.partitions]
    addresses = {one.node_id: f"{one.host}:{one.port}" for one in states}
    width = max([7, *map(len, addresses.values())])
    if not as_json:
        click.echo(f"{'node':>4}  {'address':{width}}  {'leads':>5}  {'in sync':>9}  state")
    for node_id in sorted({*addresses, *(replica for one in partitions for replica in one.replicas)}):
        state = known[node_id].state if node_id in known else "down"
        row = {
            "node": node_id,
            "address": addresses.get(node_id),
            "state": state,
            "why_down": known[node_id].why_down if node_id in known else None,
            "controller": node_id == controller,
            **_counts(node_id, view),
        }
        if as_json:
            print_json(row)
            continue
        told = click.style("active controller", fg="green") if row["controller"] else state
        if row["controller"] and state != "up":
            told = f"{told}, {state}"
        in_sync = f"{row['in_sync']}/{row['replicas']}"
        click.echo(f"{node_id:>4}  {row['address'] or '-':{width}}  {row['leads']:>5}  {in_sync:>9}  {told}")
    for one in silent:
        if as_json:
            silent_ms = one.silent_ms if isinstance(one, SilentVoter) else None
            print_json({"node": one.node_id, "voter": True, "state": "down", "silent_ms": silent_ms})
        else:
            click.echo(f"{one.node_id:>4}  a voter of the quorum that {one.since}")
    if not as_json:
        click.echo(cluster_line(bootstrap, view.cluster_id))
        if controller is None:
            click.echo(folded(f"{_no_controller(leader)}."))
    is_in_sync = _show_partitions(view, as_json) and all(one in known for p in partitions for one in p.replicas)
    is_led = controller is not None or isinstance(leader, _Unseen)
    return is_in_sync and is_led and not silent and all(one.state == "up" for one in states)


def _show_partitions(view: ClusterView, as_json: bool) -> bool:
    """Print how many partitions are out of sync or without a leader; whether none is."""
    partitions = [one for topic in view.topics for one in topic.partitions]
    behind = sum(one.is_under_replicated for one in partitions)
    leaderless = sum(one.leader < 0 for one in partitions)
    if not as_json:
        click.echo(f"{counted(len(partitions), 'partition')}, {behind} under-replicated, {leaderless} without a leader")
    return not behind and not leaderless


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
@click.argument("node_ids", type=int, nargs=-1, required=True, metavar="NODE...")
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
@click.argument("node_ids", type=int, nargs=-1, required=True, metavar="NODE...")
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
    click.echo(f"{sentence[0].upper()}{sentence[1:]}.", err=True)


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
    from ...cluster.local.supervisor import node_pid

    found = _running(directory, node_ids)
    sent = signal.Signals[f"SIG{name}"]
    for _, pid in found:
        os.kill(pid, sent)
    deadline = time.monotonic() + _GONE_TIMEOUT_S
    for node, pid in found:
        while sent == signal.SIGKILL and node_pid(node) == pid:
            if time.monotonic() > deadline:
                raise click.ClickException(f"node {node.node_id} (process {pid}) is still running; see {node.log_file}")
            time.sleep(0.01)
        yield node.node_id, pid


@click.command(cls=Command)
@click.argument("node_ids", type=int, nargs=-1, metavar="[NODE]...")
@_timeout_option("How long to wait for nodes that make no progress; they go on starting then.")
@directory_option
def start(node_ids: tuple[int, ...], limit_s: float, directory: str) -> None:
    """Start nodes of a local cluster (default: all that are down), and wait until they serve.

    Nodes with many partitions take their time: they are waited for as long as they make progress. Exit code 1 as soon
    as one of them dies, or if they make none.

    \b
    Examples:
      raftwerk kill 2;  raftwerk start 2
      raftwerk start
    """
    from ...cluster.local.supervisor import LocalNodeError, Supervisor, node_pid, paused_nodes, paused_sentence

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
        click.echo(f"Note: {paused_sentence(paused, options_of(directory))}.", err=True)
    supervisor = Supervisor(plan, detach=True)
    began = time.monotonic()
    try:
        for node_id in down:
            supervisor.start_node(node_id)
        supervisor.wait_ready(down, limit_s, tell)
    except LocalNodeError as error:
        has_died = not all(child.alive for child in supervisor.children.values())
        raise click.ClickException(f"{error}{'' if has_died else _missing_majority(plan)}") from None
    finally:
        for node_id, child in supervisor.children.items():
            if child.ready_at is not None:
                click.echo(f"Node {node_id} ready in {child.ready_at - began:.2f} s.")
        supervisor.leave_running()


def _missing_majority(plan: ClusterPlan) -> str:
    """What to do when so many controllers are down or paused that there is no majority; otherwise empty."""
    from ...cluster.local.supervisor import node_pid, paused_nodes

    controllers = [node for node in plan.nodes if node.controller_port is not None]
    down = [str(node.node_id) for node in controllers if node_pid(node) is None]
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


def _ask(plan: ClusterPlan) -> tuple[ClusterView | None, _Leader | _Unseen | None, set[int], str]:
    """The cluster as clients see it, the leader of its quorum, the fenced brokers, and why there is no answer."""
    import asyncio

    from ...cluster.client.admin_client import AdminClient
    from ...cluster.client.client_errors import ClientError, NotLoggedInError, UnreachableError
    from ...cluster.client.cluster_client import ClusterClient

    async def ask() -> tuple[ClusterView, _Leader | _Unseen | None, set[int]]:
        async with ClusterClient(plan.bootstrap, timeout_s=2.0) as client:
            view, leader = await _view_of(client)
            brokers = await AdminClient(client).registered_brokers()
            return view, leader, {one.node_id for one in brokers if one.is_fenced}

    try:
        return (*asyncio.run(ask()), "")
    except (ClientError, OSError) as error:
        told, explained = sentence_of(error)
        is_login = isinstance(explained, NotLoggedInError)
        is_clear = is_login or (isinstance(explained, UnreachableError) and explained.is_explained)
        why = told.removeprefix("no broker answers: ") if is_clear else "raftwerk logs shows what they do"
        return None, None, set(), why


def _leader_among_controllers(plan: ClusterPlan) -> _Leader | None:
    """The leader of the quorum as the controllers say that run, where no broker answers."""
    import asyncio

    from ...cluster.client.quorum_client import followed_leader
    from ...cluster.local.layout import controller_endpoints

    node_id = asyncio.run(followed_leader(controller_endpoints(plan)))
    return None if node_id is None else _Leader(node_id, is_confirmed=True)


async def _cluster_of(
    bootstrap: str,
) -> tuple[ClusterView, _Leader | _Unseen | None, list[BrokerState], list[SilentVoter | DownVoter]]:
    """The cluster as clients see it, the leader of its quorum, its brokers, and silent voters of the quorum."""
    from ...cluster.client.admin_client import AdminClient
    from ...cluster.client.cluster_client import ClusterClient
    from ...cluster.client.quorum_client import QuorumClient

    async with ClusterClient(bootstrap, timeout_s=2.0) as client:
        view, leader = await _view_of(client)
        silent: list[SilentVoter | DownVoter] = []
        if isinstance(leader, _Leader) and leader.is_confirmed:
            quorum = QuorumClient(client)
            silent += await quorum.silent_voters()
            late = {one.node_id for one in silent}
            down = await quorum.down_voters(await quorum.describe())
            silent += [one for one in down if one.node_id not in late]
        states = await AdminClient(client).broker_states()
    known = {one.node_id for one in states}
    return view, leader, states, [one for one in silent if one.node_id not in known]


async def _view_of(client: ClusterClient) -> tuple[ClusterView, _Leader | _Unseen | None]:
    """The cluster as clients see it, and the leader of its quorum if there is one."""
    import asyncio

    from ...cluster.client.client_errors import ClientError, RefusedError
    from ...cluster.client.quorum_client import QuorumClient
    from ...cluster.client.reassignment import with_reassignments

    view = await client.metadata()
    quorum = QuorumClient(client)
    try:
        async with asyncio.timeout(_LEADER_TIMEOUT_S):
            leader_id = await quorum.leader_id()
            if leader_id is None:
                return view, None
            found = await quorum.describe()
        view = await with_reassignments(client, view)
        return view, _Leader(found.leader_id, found.has_majority(await quorum.down_voters(found)))
    except RefusedError as error:
        return view, _Unseen(str(error)) if error.is_of_rights else None
    except (ClientError, OSError):
        return view, None


def _row(node: NodePlan, view: ClusterView | None, controller: int | None, fenced: set[int]) -> dict[str, Any]:
    from ...cluster.local.processes import is_paused, memory_bytes
    from ...cluster.local.supervisor import node_pid

    pid = node_pid(node)
    state = "down" if pid is None else "paused" if is_paused(pid) else "fenced" if node.node_id in fenced else "up"
    return {
        "node": node.node_id,
        "roles": node.roles,
        "port": node.port or node.controller_port,
        "pid": pid,
        "state": state,
        "controller": node.node_id == controller,
        "memory_bytes": None if pid is None else memory_bytes(pid),
        **_counts(node.node_id, view),
    }


def _counts(node_id: int, view: ClusterView | None) -> dict[str, int]:
    """How many partitions a node leads, has, and has in sync."""
    partitions = [one for topic in view.topics for one in topic.partitions] if view else []
    return {
        "leads": sum(one.leader == node_id for one in partitions),
        "replicas": sum(node_id in one.replicas for one in partitions),
        "in_sync": sum(node_id in one.isr for one in partitions),
    }


def _print_table(rows: list[dict[str, Any]]) -> None:
    click.echo(
        f"{'node':>4}  {'roles':17}  {'port':>5}  {'pid':>5}  {'memory':>6}  {'leads':>5}  {'in sync':>7}  state"
    )
    for row in rows:
        memory = f"{row['memory_bytes'] / 2**20:.0f} MiB" if row["memory_bytes"] else "-"
        up = {"up": "active controller", "fenced": "active controller, fenced"}
        state = up.get(row["state"], row["state"]) if row["controller"] else row["state"]
        usual = "green" if row["controller"] else None
        colour = {"down": "red", "paused": "yellow", "fenced": "yellow"}.get(row["state"], usual)
        in_sync = f"{row['in_sync']}/{row['replicas']}"
        click.echo(
            f"{row['node']:>4}  {row['roles']:17}  {row['port']:>5}  {row['pid'] or '-':>5}  {memory:>6}  "
            f"{row['leads']:>5}  {in_sync:>7}  {click.style(state, fg=colour)}"
        )
