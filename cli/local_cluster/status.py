"""`raftwerk status`: the nodes of a cluster, what they lead, and what is out of sync."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from ...cluster.command_line.cluster_address import options_of
from ...cluster.command_line.cluster_options import choose_address, cluster_options
from ...cluster.command_line.text_table import folded
from ..options import Command, counted, json_option, print_json, run_client, sentence_of
from .nodes import find_plan, missing_majority

if TYPE_CHECKING:
    from ...cluster.client.admin_client import BrokerState
    from ...cluster.client.client_errors import OtherClusterError
    from ...cluster.client.cluster_client import ClusterClient, ClusterView
    from ...cluster.client.quorum_client import DownVoter, SilentVoter
    from ...cluster.local.layout import ClusterPlan, NodePlan

_UNKNOWN = dict.fromkeys(("leads", "replicas", "in_sync"))
"""What a node leads and has while no broker tells it: null, which is not 0."""
_LEADER_TIMEOUT_S = 3.0
"""How long `status` waits for the quorum's leader; brokers wait longer for it."""
_DOWN, _NOT_SERVING = "down", "not serving"
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
    from ...cluster.doctor.silent_nodes import led_without

    asked = _not_paused(plan)
    view, leader, fenced, why = _ask(asked)
    if view is None:
        leader = _leader_among_controllers(asked)
    if isinstance(leader, _Leader) and missing_majority(plan):
        leader = replace(leader, is_confirmed=False)
    controller = leader.node_id if isinstance(leader, _Leader) and leader.is_confirmed else None
    states = _states(plan, fenced)
    if view is not None:
        view = led_without(view, [one for one, state in states.items() if state in (_DOWN, _NOT_SERVING)])
    rows = [_row(node, states[node.node_id], view, controller) for node in plan.nodes]
    for row in rows:
        if as_json:
            print_json(row)
    if not as_json:
        _print_table(rows)
        for sentence in _hindered(plan, rows):
            click.echo(folded(sentence))
        click.echo(cluster_line(plan.bootstrap, plan.cluster_id))
        if view is None:
            _tell_silence(plan, rows, why)
        elif controller is None:
            click.echo(folded(f"{_no_controller(leader)}{missing_majority(plan)}."))
            if not isinstance(leader, _Unseen):
                click.echo("Who leads and is in sync is what the brokers heard last.")
            _tell_lost_majority(plan)
    is_in_sync = view is not None and _show_partitions(view, as_json)
    is_led = controller is not None or isinstance(leader, _Unseen)
    return is_in_sync and is_led and all(row["state"] == "up" for row in rows)


def _not_paused(plan: ClusterPlan) -> ClusterPlan:
    """The nodes that may answer: a process that is paused takes connections, and answers nothing."""
    from ...cluster.local.supervisor import paused_nodes

    paused = paused_nodes(plan.nodes)
    return replace(plan, nodes=tuple(node for node in plan.nodes if node.node_id not in paused))


def _hindered(plan: ClusterPlan, rows: list[dict[str, Any]]) -> Iterator[str]:
    """Sentences on nodes that are paused, do not serve or are fenced, and on those of which the disk is full."""
    from ...cluster.local.supervisor import full_disk, paused_nodes, paused_sentence

    paused = paused_nodes(plan.nodes)
    if paused:
        sentence = paused_sentence(paused, options_of(plan.directory))
        yield f"{sentence[0].upper()}{sentence[1:]}."
    full = {row["node"]: told for row in rows if (told := full_disk(plan.node(row["node"])))}
    silent = [str(row["node"]) for row in rows if row["state"] == _NOT_SERVING and row["node"] not in full]
    if silent:
        they = f"Node {silent[0]} does not listen for clients, though its process runs: it starts, stops, or waits"
        if len(silent) > 1:
            they = f"Nodes {', '.join(silent)} do not listen for clients, though they run: they start, stop, or wait"
        logs = f"raftwerk logs {' '.join(silent)}{options_of(plan.directory)}"
        yield f"{they} for the quorum's leader; {logs} shows which."
    for row in rows:
        if row["state"] not in ("up", "fenced", _NOT_SERVING):
            continue
        who, is_fenced = f"Node {row['node']}", row["state"] == "fenced"
        if row["node"] in full:
            yield f"{_fenced(who) if is_fenced else f'{who} takes no records'}{full[row['node']]}."
        elif is_fenced:
            yield f"{_fenced(who)}: raftwerk doctor{options_of(plan.directory)} shows why."


def _fenced(who: str) -> str:
    return f"{who} is fenced, so that it leads nothing and is in no ISR"


def _tell_silence(plan: ClusterPlan, rows: list[dict[str, Any]], why: str | OtherClusterError) -> None:
    """Say what to do where no broker of a local cluster answers."""
    from ...cluster.local.running_up import running_up

    if not isinstance(why, str):
        click.echo(folded(f"{str(why)[0].upper()}{str(why)[1:]}."))
        _tell_lost_majority(plan)
    elif _tell_lost_majority(plan, "No broker answers."):
        return  # to start nodes would be of no use
    else:
        is_up = running_up(plan.directory) is not None
        click.echo(folded(_no_broker_answers(rows, why, options_of(plan.directory), is_up=is_up)))


def _tell_lost_majority(plan: ClusterPlan, before: str | None = None) -> bool:
    """Whether the quorum has lost its majority for good; if so, say that after a first sentence, and what to do."""
    from ...cluster.local.voters_on_disk import lost_majority

    found = lost_majority(plan)
    if found is None:
        return False
    for sentence in (before, found.what, found.way_out):
        if sentence is not None:
            click.echo(folded(f"{sentence[0].upper()}{sentence[1:].rstrip('.')}."))
    return True


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


def _no_broker_answers(rows: list[dict[str, Any]], why: str, where: str, *, is_up: bool = False) -> str:
    """What to do when the nodes of a local cluster give no answer; `is_up`: a raftwerk up stays with it."""
    if all(row["state"] == "down" for row in rows):
        if is_up:
            return f"No broker answers: raftwerk start{where} starts all nodes, raftwerk start N{where} one node."
        return f"No broker answers: raftwerk up{where} starts the cluster, raftwerk start N{where} one node."
    brokers = [row for row in rows if "broker" in row["roles"]]
    up, down, paused, silent = (
        [str(row["node"]) for row in brokers if row["state"] == one] for one in ("up", _DOWN, "paused", _NOT_SERVING)
    )
    if silent and not up:
        rest = f"; raftwerk start{where} starts all nodes that are down" if down else ""
        return f"No broker answers, since none listens: {why}{rest}."
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
            "may_lack_topics": view.may_lack_topics,
            **view.counts_of(node_id),
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
        for node_id in (node_id for node_id, one in known.items() if one.state == "fenced"):
            click.echo(folded(f"{_fenced(f'Broker {node_id}')}: raftwerk doctor -b {bootstrap} shows why."))
        click.echo(cluster_line(bootstrap, view.cluster_id))
        if controller is None:
            click.echo(folded(f"{_no_controller(leader)}."))
    is_in_sync = _show_partitions(view, as_json) and all(one in known for p in partitions for one in p.replicas)
    is_led = controller is not None or isinstance(leader, _Unseen)
    return is_in_sync and is_led and not silent and all(one.state == "up" for one in states)


def _show_partitions(view: ClusterView, as_json: bool) -> bool:
    """Print how many partitions are out of sync or without a leader; whether none is."""
    from ...cluster.doctor.hidden_topics import WHO_SEES_ALL

    partitions = [one for topic in view.topics for one in topic.partitions]
    behind = sum(one.is_under_replicated for one in partitions)
    leaderless = sum(one.leader < 0 for one in partitions)
    if not as_json:
        click.echo(f"{counted(len(partitions), 'partition')}, {behind} under-replicated, {leaderless} without a leader")
        if view.may_lack_topics:
            click.echo(folded(f"Topics that this user may not describe are not counted: {WHO_SEES_ALL}."))
    return not behind and not leaderless


def _ask(
    plan: ClusterPlan,
) -> tuple[ClusterView | None, _Leader | _Unseen | None, set[int], str | OtherClusterError]:
    """The cluster as clients see it, the leader of its quorum, the fenced brokers, and why there is no answer."""
    import asyncio

    from ...cluster.client.admin_client import AdminClient
    from ...cluster.client.client_errors import ClientError, NotLoggedInError, OtherClusterError, UnreachableError
    from ...cluster.client.cluster_client import ClusterClient
    from ...cluster.local.secured import lost_login

    if not plan.brokers:
        return None, None, set(), "they are paused"

    async def ask() -> tuple[ClusterView, _Leader | _Unseen | None, set[int]]:
        async with ClusterClient(plan.bootstrap, timeout_s=2.0) as client:
            view, leader = await _view_of(client)
            brokers = await AdminClient(client).registered_brokers()
            return view, leader, {one.node_id for one in brokers if one.is_fenced}

    try:
        return (*asyncio.run(ask()), "")
    except OtherClusterError as error:
        return None, None, set(), error
    except (ClientError, OSError) as error:
        lost = lost_login(plan)
        if lost is not None:
            return None, None, set(), lost
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

    endpoints = controller_endpoints(plan)
    node_id = asyncio.run(followed_leader(endpoints)) if endpoints else None
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
    from ...cluster.doctor.hidden_topics import may_miss_topics

    view = await client.metadata()
    view = replace(view, may_lack_topics=await may_miss_topics(client))
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


def _states(plan: ClusterPlan, fenced: Collection[int]) -> dict[int, str]:
    """What each node does: the first of these words that is true of it."""
    from ...cluster.local.supervisor import brokers_that_do_not_listen, node_pid, paused_nodes

    paused, silent = paused_nodes(plan.nodes), brokers_that_do_not_listen(plan.nodes)
    states = {}
    for node in plan.nodes:
        one = node.node_id
        words = {_DOWN: node_pid(node) is None, "paused": one in paused, _NOT_SERVING: one in silent}
        states[one] = next((word for word, holds in (words | {"fenced": one in fenced}).items() if holds), "up")
    return states


def _row(node: NodePlan, state: str, view: ClusterView | None, controller: int | None) -> dict[str, Any]:
    from ...cluster.local.processes import memory_bytes
    from ...cluster.local.supervisor import node_pid

    pid = None if state == _DOWN else node_pid(node)
    return {
        "node": node.node_id,
        "roles": node.roles,
        "port": node.port or node.controller_port,
        "pid": pid,
        "state": state,
        "controller": node.node_id == controller,
        "memory_bytes": None if pid is None else memory_bytes(pid),
        "may_lack_topics": None if view is None else view.may_lack_topics,
        **(_UNKNOWN if view is None else view.counts_of(node.node_id)),
    }


def _print_table(rows: list[dict[str, Any]]) -> None:
    click.echo(
        f"{'node':>4}  {'roles':17}  {'port':>5}  {'pid':>5}  {'memory':>6}  {'leads':>5}  {'in sync':>7}  state"
    )
    for row in rows:
        memory = f"{row['memory_bytes'] / 2**20:.0f} MiB" if row["memory_bytes"] else "-"
        states = {"up": "active controller"} | {one: f"active controller, {one}" for one in ("fenced", _NOT_SERVING)}
        state = states.get(row["state"], row["state"]) if row["controller"] else row["state"]
        usual = "green" if row["controller"] else None
        colours = {_DOWN: "red"} | dict.fromkeys(("paused", "fenced", _NOT_SERVING), "yellow")
        colour = colours.get(row["state"], usual)
        leads, in_sync = "-", "-"
        if row["leads"] is not None:
            leads, in_sync = str(row["leads"]), f"{row['in_sync']}/{row['replicas']}"
        click.echo(
            f"{row['node']:>4}  {row['roles']:17}  {row['port']:>5}  {row['pid'] or '-':>5}  {memory:>6}  "
            f"{leads:>5}  {in_sync:>7}  {click.style(state, fg=colour)}"
        )
