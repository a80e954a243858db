"""`raftwerk status`, `kill`, `start` and `clusters`: the nodes of a local cluster, one by one."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING, Any

import click

from ...cluster.command_line.cluster_address import state_dir
from ..options import Command, counted, directory_option, json_option, print_json

if TYPE_CHECKING:
    from ...cluster.client.cluster_client import ClusterView
    from ...cluster.local.layout import ClusterPlan, NodePlan

_SIGNALS = ("KILL", "TERM", "STOP", "CONT", "INT", "HUP")
_GONE_TIMEOUT_S = 30.0


@click.command(cls=Command)
@directory_option
@json_option
@click.pass_context
def status(ctx: click.Context, directory: str, as_json: bool) -> None:
    """Show the nodes of the local cluster in DIR: which are up, what they lead, what is out of sync.

    Exit code 0 if every node is up and every replica is in sync, 1 otherwise.

    \b
    Examples:
      raftwerk status
      raftwerk status -d /tmp/c1 --json | jq -r 'select(.state == "down") | .node'
    """
    plan = find_plan(directory)
    view, controller = _ask(plan)
    rows = [_row(node, view, controller) for node in plan.nodes]
    for row in rows:
        if as_json:
            print_json(row)
    partitions = [one for topic in view.topics for one in topic.partitions] if view else []
    behind = sum(len(one.isr) < len(one.replicas) for one in partitions)
    leaderless = sum(one.leader < 0 for one in partitions)
    if not as_json:
        _print_table(rows)
        click.echo(f"bootstrap.servers={plan.bootstrap}  cluster id {plan.cluster_id}")
        if view is None:
            click.echo("No broker answers: raftwerk up starts the cluster, raftwerk start N one node.")
        else:
            click.echo(
                f"{counted(len(partitions), 'partition')}, {behind} under-replicated, {leaderless} without a leader"
            )
    ctx.exit(0 if view and not behind and not leaderless and all(row["state"] == "up" for row in rows) else 1)


@click.command(cls=Command)
@click.argument("node_id", type=int, metavar="NODE")
@click.option(
    "-s",
    "--signal",
    "name",
    default="KILL",
    show_default=True,
    type=click.Choice(_SIGNALS, case_sensitive=False),
    help="The signal.",
)
@directory_option
def kill(node_id: int, name: str, directory: str) -> None:
    """Send a signal to a node of the local cluster in DIR: KILL to crash, TERM to stop, STOP and CONT to pause it.

    \b
    Examples:
      raftwerk kill 2                     a crash
      raftwerk kill 2 --signal STOP       a hanging machine; CONT ends it
    """
    from ...cluster.local.supervisor import node_pid

    node = find_node(directory, node_id)
    pid = node_pid(node)
    if pid is None:
        raise click.ClickException(f"node {node_id} is not running; raftwerk start {node_id} starts it")
    sent = signal.Signals[f"SIG{name.upper()}"]
    os.kill(pid, sent)
    deadline = time.monotonic() + _GONE_TIMEOUT_S
    while sent in (signal.SIGKILL, signal.SIGTERM) and node_pid(node) == pid:
        if time.monotonic() > deadline:
            raise click.ClickException(f"node {node_id} (process {pid}) is still running; see {node.log_file}")
        time.sleep(0.01)
    click.echo(f"Sent SIG{name.upper()} to node {node_id} (process {pid}).")


@click.command(cls=Command)
@click.argument("node_ids", type=int, nargs=-1, metavar="[NODE]...")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait; nodes that are not ready then go on starting.",
)
@directory_option
def start(node_ids: tuple[int, ...], timeout_s: float, directory: str) -> None:
    """Start nodes of a local cluster (default: all that are down), and wait until they serve.

    Exit code 1 as soon as one of them dies, or if one is not ready in time.

    \b
    Examples:
      raftwerk kill 2;  raftwerk start 2
      raftwerk start
    """
    from ...cluster.local.supervisor import LocalNodeError, Supervisor, is_paused, node_pid

    plan = find_plan(directory)
    wanted = [find_node(directory, node_id) for node_id in node_ids]
    for node in wanted:
        pid = node_pid(node)
        if pid is not None and is_paused(pid):
            way_out = f"raftwerk kill {node.node_id} --signal CONT lets it go on"
            raise click.ClickException(f"node {node.node_id} is paused (process {pid}): {way_out}")
        if pid is not None:
            raise click.ClickException(f"node {node.node_id} is already running (process {pid})")
    down = [node.node_id for node in wanted or plan.nodes if node_pid(node) is None]
    if not down:
        raise click.ClickException("every node is already running: raftwerk status shows them")
    supervisor = Supervisor(plan, detach=True)
    began = time.monotonic()
    try:
        for node_id in down:
            supervisor.start_node(node_id)
        supervisor.wait_ready(down, timeout_s)
    except LocalNodeError as error:
        has_died = not all(child.alive for child in supervisor.children.values())
        raise click.ClickException(f"{error}{'' if has_died else _missing_majority(plan)}") from None
    finally:
        for node_id, child in supervisor.children.items():
            if child.ready_at is not None:
                click.echo(f"Node {node_id} ready in {child.ready_at - began:.2f} s.")
        supervisor.leave_running()


def _missing_majority(plan: ClusterPlan) -> str:
    """What to do when so many controllers are down that no node can become ready; otherwise empty."""
    from ...cluster.local.supervisor import node_pid

    controllers = [node for node in plan.nodes if node.controller_port is not None]
    down = [str(node.node_id) for node in controllers if node_pid(node) is None]
    if 2 * len(down) < len(controllers):
        return ""
    return f"; without the controllers {', '.join(down)} there is no majority: raftwerk start starts all nodes"


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
    if not names and not as_json:
        click.echo("There are no named clusters; raftwerk up --name NAME creates one.")


def find_plan(directory: str) -> ClusterPlan:
    """The plan of the local cluster in `directory`; exit code 1, with what to do, when there is none."""

    from ...cluster.local.layout import load_plan

    try:
        return load_plan(directory)
    except FileNotFoundError:
        raise click.ClickException(
            f"there is no cluster in {directory}: name one with --dir or --name, or start one with raftwerk up"
        ) from None
    except ValueError as error:
        raise click.ClickException(str(error)) from None


def find_node(directory: str, node_id: int) -> NodePlan:
    """The plan of one node; exit code 1, with the known nodes, when there is no such node."""
    plan = find_plan(directory)
    try:
        return plan.node(node_id)
    except KeyError:
        known = ", ".join(str(node.node_id) for node in plan.nodes)
        raise click.ClickException(f"there is no node {node_id}; the cluster in {directory} has {known}") from None


def _ask(plan: ClusterPlan) -> tuple[ClusterView | None, int | None]:
    import asyncio

    from ...cluster.client.client_errors import ClientError
    from ...cluster.client.cluster_client import ClusterClient
    from ...cluster.client.quorum_client import QuorumClient

    async def run() -> tuple[ClusterView | None, int | None]:
        async with ClusterClient(plan.bootstrap, timeout_s=2.0) as client:
            try:
                view = await client.metadata()
                return view, await QuorumClient(client).leader_id()
            except (ClientError, OSError):
                return None, None

    return asyncio.run(run())


def _row(node: NodePlan, view: ClusterView | None, controller: int | None) -> dict[str, Any]:
    from ...cluster.local.supervisor import is_paused, memory_bytes, node_pid

    pid = node_pid(node)
    partitions = [one for topic in view.topics for one in topic.partitions] if view else []
    state = "down" if pid is None else "paused" if is_paused(pid) else "up"
    return {
        "node": node.node_id,
        "roles": node.roles,
        "port": node.port or node.controller_port,
        "pid": pid,
        "state": state,
        "controller": node.node_id == controller,
        "memory_bytes": None if pid is None else memory_bytes(pid),
        "leads": sum(one.leader == node.node_id for one in partitions),
        "replicas": sum(node.node_id in one.replicas for one in partitions),
        "in_sync": sum(node.node_id in one.isr for one in partitions),
    }


def _print_table(rows: list[dict[str, Any]]) -> None:
    click.echo(
        f"{'node':>4}  {'roles':17}  {'port':>5}  {'pid':>7}  {'memory':>7}  {'leads':>5}  {'in sync':>9}  state"
    )
    for row in rows:
        memory = f"{row['memory_bytes'] / 1e6:.0f} MB" if row["memory_bytes"] else "-"
        state = "active controller" if row["controller"] and row["state"] == "up" else row["state"]
        colour = {"down": "red", "paused": "yellow"}.get(row["state"], "green" if row["controller"] else None)
        in_sync = f"{row['in_sync']}/{row['replicas']}"
        click.echo(
            f"{row['node']:>4}  {row['roles']:17}  {row['port']:>5}  {row['pid'] or '-':>7}  {memory:>7}  "
            f"{row['leads']:>5}  {in_sync:>9}  {click.style(state, fg=colour)}"
        )
