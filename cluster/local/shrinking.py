"""Takes the last nodes out of a local cluster that is running, with everything that holds them there.

Replicas move to the nodes that stay. A controller leaves the quorum while it runs, since its vote may be needed for
that (of two voters, both); it is started without `controller.quorum.auto.join.enable` first, or it would join again.
Then the node is stopped, its broker unregistered, and its files are deleted. Each step is left out where it has been
done, so that a shrink that was interrupted can be repeated; what it left of a node that is no longer in the plan is
found by the new name of its settings.

Clients create topics meanwhile, and the controller puts replicas on each broker that is registered. So what is to be
moved is computed again before a node is stopped, and again once its broker is unregistered and gets no more replicas.
If it has got one in between, it is started again, since it may have the only one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from ...wire.errors import ErrorCode
from ..client.admin_client import AdminClient
from ..client.client_errors import ClientError, RefusedError
from ..client.cluster_client import ClusterClient, ClusterView
from ..client.quorum_client import QuorumClient
from ..client.reassignment import Move, ProgressMeter, reassign, wait_for_moves
from ..command_line.cluster_address import options_of
from ..command_line.plural import counted, some_of
from .layout import (
    AUTO_JOIN_KEY,
    STATIC_VOTERS_KEY,
    ClusterPlan,
    NodePlan,
    controllers_of,
    nodes_left_behind,
    plan_cluster,
    remove_remains,
    shape_of,
    write_node_properties,
    write_properties,
)
from .progress import NO_PROGRESS_LIMIT_S, Tell
from .secured import remove_certificate
from .supervisor import Supervisor, node_pid, paused_nodes, paused_sentence, stop_nodes

_MOVE_TIMEOUT_S = 3600.0
_TELL_EVERY_S = 5.0
_LOOK_AGAIN_S = 0.1
NAMED = 5
"""So many partitions are named in one sentence."""


class CannotShrinkError(Exception):
    """The cluster cannot be made smaller as it is; the text says what to do first."""


@dataclass(frozen=True, slots=True)
class Shrink:
    """What is to be done. The partitions `fewer` lose replicas, since fewer brokers stay than they have replicas."""

    former: ClusterPlan
    smaller: ClusterPlan
    moves: tuple[Move, ...]
    fewer: tuple[str, ...]

    remains: tuple[NodePlan, ...] = ()
    """What an interrupted shrink left of nodes that are no longer in the plan."""

    @property
    def leaving(self) -> list[NodePlan]:
        """The nodes that are taken out."""
        staying = {node.node_id for node in self.smaller.nodes}
        return [node for node in self.former.nodes if node.node_id not in staying]


async def plan_shrink(former: ClusterPlan, brokers: int) -> Shrink:
    """Find out what has to be moved so that the first `brokers` brokers stay.

    Raises `CannotShrinkError`, and ValueError where there are not so many.
    """
    if not 1 <= brokers <= len(former.brokers):
        raise ValueError(f"the cluster has {counted(len(former.brokers), 'broker')}: -n is less, and at least 1")
    if STATIC_VOTERS_KEY in former.nodes[0].properties:
        raise CannotShrinkError(f"its voters are static ({STATIC_VOTERS_KEY}): they cannot be removed")
    smaller = plan_cluster(former.directory, replace(shape_of(former), brokers=brokers), may_shrink=True)
    staying = {node.node_id for node in smaller.brokers}
    for node in smaller.nodes:
        if node_pid(node) is None:
            start = f"raftwerk start {node.node_id}{options_of(former.directory)}"
            raise CannotShrinkError(f"node {node.node_id} is down, and is to stay: {start}")
    paused = paused_nodes(smaller.nodes)
    if paused:
        raise CannotShrinkError(paused_sentence(paused, options_of(former.directory)))
    async with ClusterClient(former.bootstrap) as client:
        view = await client.metadata()
    for topic in view.topics:
        for one in topic.partitions:
            if one.leader < 0:
                name = f"{topic.name}-{one.partition}"
                raise CannotShrinkError(f"{name} has no leader, and cannot move: raftwerk doctor says what to do")
    return Shrink(former, smaller, *moves_to(view, staying), remains=tuple(nodes_left_behind(former.directory)))


def lost_tolerance(former: ClusterPlan, smaller: ClusterPlan) -> str:
    """What to say of the quorum where it will survive the loss of fewer voters than now; otherwise empty."""
    before, after = len(controllers_of(former)), len(controllers_of(smaller))
    if (after - 1) // 2 >= (before - 1) // 2:
        return ""
    spare, former_spare = (after - 1) // 2 or "none", (before - 1) // 2
    voters = counted(after, "voter")
    what = f"The quorum will have {voters} instead of {before}"
    return f"{what}, and survive the loss of {spare} instead of {former_spare}."


def moves_to(view: ClusterView, staying: Collection[int]) -> tuple[tuple[Move, ...], tuple[str, ...]]:
    """The moves after which only the brokers `staying` have replicas, and the partitions that have fewer then.

    A replica goes to the broker that has the fewest of those that do not have one of this partition.
    """
    partitions = [(topic.name, one) for topic in view.topics for one in topic.partitions]
    load = Counter(dict.fromkeys(staying, 0))
    load.update(broker for _, one in partitions for broker in one.replicas if broker in staying)
    moves, fewer = [], []
    for topic, one in partitions:
        kept = [broker for broker in one.replicas if broker in staying]
        if len(kept) == len(one.replicas):
            continue
        while len(kept) < min(len(one.replicas), len(staying)):
            _, chosen = min((load[broker], broker) for broker in staying if broker not in kept)
            kept.append(chosen)
            load[chosen] += 1
        moves.append(Move(topic, one.partition, tuple(kept)))
        if len(kept) < len(one.replicas):
            fewer.append(f"{topic}-{one.partition}")
    return tuple(moves), tuple(fewer)


def changed_defaults(planned: Shrink) -> dict[str, str]:
    """The replication factors that follow the number of brokers, where they are other ones than before."""
    before, after = planned.former.brokers[0].properties, planned.smaller.brokers[0].properties
    return {name: value for name, value in after.items() if "replication.factor" in name and before.get(name) != value}


async def shrink(planned: Shrink, tell: Tell) -> None:
    """Take the nodes out, and tell each step. Raises `ClientError`, `CannotShrinkError` and `LocalNodeError`."""
    staying = [node.node_id for node in planned.smaller.brokers]
    async with ClusterClient(planned.smaller.bootstrap) as client:
        await _move_replicas(client, staying, tell)
        for node in reversed(planned.leaving):
            if node.controller_port is not None:
                await _leave_quorum(client, planned.former, node, tell)
            await _stop_without_replicas(client, planned.former, node, staying, tell)
            _forget_process(node)
            _delete_data(node, tell)
        for node in planned.remains:
            named = [] if node.port is None else await _unregister(client, node.node_id)
            if named:
                what = f"node {node.node_id} is stopped and has replicas of {some_of(named, NAMED)}"
                start = f"rename {node.leaving_file} to {node.properties_file}, and start it with raftwerk up"
                raise CannotShrinkError(f"{what}: {start}")
            _delete_data(node, tell)
    write_properties(planned.smaller)


async def _move_replicas(client: ClusterClient, staying: Collection[int], tell: Tell) -> None:
    """Move what is on other brokers now, until there is nothing."""
    while moves := moves_to(await client.metadata(), staying)[0]:
        tell(f"moving {counted(len(moves), 'partition')} to the nodes that stay")
        await reassign(client, moves)
        await _wait_for_moves(client, moves, tell)


async def _stop_without_replicas(
    client: ClusterClient, former: ClusterPlan, node: NodePlan, staying: Collection[int], tell: Tell
) -> None:
    """Stop a node and unregister its broker, at a time when it has no replicas."""
    while True:
        await _move_replicas(client, staying, tell)
        tell(f"stopping node {node.node_id}")
        stop_nodes([node], NO_PROGRESS_LIMIT_S, tell)
        named = [] if node.port is None else await _unregister(client, node.node_id)
        if not named:
            return
        tell(f"starting node {node.node_id} again, since it has got replicas of {some_of(named, NAMED)} meanwhile")
        _start(former, node, tell)


async def _wait_for_moves(client: ClusterClient, moves: Sequence[Move], tell: Tell) -> None:
    """Wait, and tell now and then how far it is."""
    meter, loop = ProgressMeter(moves), asyncio.get_running_loop()
    told_at = loop.time()

    async def tell_progress() -> None:
        nonlocal told_at
        if loop.time() - told_at >= _TELL_EVERY_S:
            told_at = loop.time()
            tell(str(await meter.measure(client)))

    await wait_for_moves(client, moves, _MOVE_TIMEOUT_S, tell_progress)


def _delete_data(node: NodePlan, tell: Tell) -> None:
    """Delete what is left of a node that nobody starts again."""
    remove_remains(node)
    tell(f"node {node.node_id} is out of the cluster")


async def _leave_quorum(client: ClusterClient, former: ClusterPlan, node: NodePlan, tell: Tell) -> None:
    quorum = QuorumClient(client)
    voter = next((one for one in (await quorum.describe()).voters if one.node_id == node.node_id), None)
    if node_pid(node) is not None:
        tell(f"starting node {node.node_id} again, so that it does not join the quorum by itself")
        stop_nodes([node], NO_PROGRESS_LIMIT_S, tell)
        write_node_properties(replace(node, properties={**node.properties, AUTO_JOIN_KEY: "false"}))
        _start(former, node, tell)
    if voter is not None:
        tell(f"taking controller {node.node_id} out of the quorum")
        await quorum.remove_voter(node.node_id, voter.directory_id)


def _start(former: ClusterPlan, node: NodePlan, tell: Tell) -> None:
    supervisor = Supervisor(former, detach=True)
    try:
        supervisor.start_node(node.node_id)
        supervisor.wait_ready(tell=tell)
    finally:
        supervisor.leave_running()


async def _unregister(client: ClusterClient, broker_id: int) -> list[str]:
    """Unregister a broker; returns the partitions of which it has replicas, and there will be no others."""
    admin = AdminClient(client)
    try:
        await admin.unregister_broker(broker_id)
    except RefusedError as error:
        if error.code != ErrorCode.BROKER_ID_NOT_REGISTERED:
            raise
    # A broker that still shows the registration may not know yet what the controller put there before.
    loop = asyncio.get_running_loop()
    deadline = loop.time() + client.timeout_s
    while any(one.node_id == broker_id for one in await admin.registered_brokers()):
        if loop.time() > deadline:
            raise ClientError(f"broker {broker_id} is unregistered, and still shown after {client.timeout_s:g} s")
        await asyncio.sleep(_LOOK_AGAIN_S)
    topics = (await client.metadata()).topics
    return [
        f"{topic.name}-{one.partition}" for topic in topics for one in topic.partitions if broker_id in one.replicas
    ]


def _forget_process(node: NodePlan) -> None:
    """Remove what makes the node one of the cluster's: first the file without which nobody starts it again."""
    os.replace(node.properties_file, node.leaving_file)
    for path in (node.pid_file, node.log_file, node.progress_file):
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)
    remove_certificate(node)
