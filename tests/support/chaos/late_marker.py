"""A marker of a former transaction coordinator that arrives in the next transaction, in a simulated cluster.

A client with `transaction.version` 1 keeps its epoch from one transaction to the next. Its coordinator sends a marker
that takes a second, and loses its partition of `__transaction_state` to another broker meanwhile. The other one writes
the marker again and completes the transaction, so the client begins the next one. The first marker arrives in the
middle of that, and only its coordinator epoch tells that it is late (TRANSACTION_COORDINATOR_FENCED). A client with
version 2 has a new epoch by then, which is refused whatever the coordinator epoch.
"""

from __future__ import annotations

import asyncio

from raftwerk.broker.transactions.transaction_config import TRANSACTION_TOPIC
from raftwerk.chaos.sim.cluster_config import ClusterConfig
from raftwerk.chaos.sim.invariants.client_invariants import History
from raftwerk.chaos.sim.invariants.invariant_broken import InvariantBroken
from raftwerk.chaos.sim.invariants.transaction_invariants import Outcome, TransactionHistory
from raftwerk.chaos.sim.kernel.event_loop import ProcessLoop
from raftwerk.chaos.sim.kernel.world import World
from raftwerk.chaos.sim.simulated_cluster import SimulatedCluster
from raftwerk.chaos.sim.workloads.administrator import RetryingAdmin
from raftwerk.chaos.sim.workloads.clients import ClientContext
from raftwerk.chaos.sim.workloads.transactions.committed_reader import CommittedReader
from raftwerk.chaos.sim.workloads.transactions.transactional_producer import ClientStyle, TransactionalProducer
from raftwerk.cluster.client.admin_client import AdminClient, NewTopic
from raftwerk.cluster.client.cluster_client import ClusterClient, PartitionView
from raftwerk.wire.api_keys import ApiKey

_TOPIC = "t"
_LATE_S = 1.0
_SETTINGS = {"transaction.state.log.num.partitions": "1"}


def late_marker(style: ClientStyle) -> str | None:
    """Play it with such a client; returns which invariant of the simulator is broken, None if all hold."""
    with World(1) as world:
        cluster = SimulatedCluster(world, ClusterConfig(nodes=4, controllers=1, properties=_SETTINGS))
        world.network.add_host("client")
        client = ProcessLoop(world.scheduler, "client", world.network)
        world.processes.append(client)
        cluster.start_all()
        if not world.scheduler.run_until(cluster.is_healthy, 10.0):
            raise AssertionError(cluster.why_not_healthy())
        context = ClientContext(
            cluster.bootstrap, _TOPIC, world.rng_for("client"), cluster.partitions, History(), lambda: 1_600_000_000_000
        )
        try:
            client.run_until_complete(_play(world, context, style))
        except InvariantBroken as error:
            return str(error)
        return str(world.errors[0].error) if world.errors else None


async def _play(world: World, context: ClientContext, style: ClientStyle) -> None:
    history = TransactionHistory()
    async with ClusterClient(context.bootstrap, client_id="admin", probe_timeout_s=None) as admin:
        await AdminClient(admin).create_topic(NewTopic(_TOPIC, 4, 1, {}))
        producer = TransactionalProducer(context, "w", "w", style, timeout_ms=60_000)
        await producer.init()
        state, partition, leader = await _placed(admin)
        reader = asyncio.ensure_future(CommittedReader(context, "reader", _TOPIC, history.on_read).run())
        for number in (1, 2):  # the first one opens the connection from the coordinator to the leader
            if number == 2:
                world.network.set_latency(f"n{state.leader}", f"n{leader}", (_LATE_S, _LATE_S))
            transaction = history.begin(f"w/1/{number}")
            await producer.send(_TOPIC, partition, [f"w/1/{number}/0.0"])
            transaction.outcome = Outcome.ASKED
            await producer.end(commit=True)
            transaction.outcome = Outcome.COMMITTED
        await _move_coordinator(context, state)
        history.begin("w/1/3")
        await producer.send(_TOPIC, partition, ["w/1/3/0.0"])
        await asyncio.sleep(2 * _LATE_S)  # the late marker arrives
        await producer.end(commit=False)
        if reader.done():
            await reader
        reader.cancel()


async def _placed(admin: ClusterClient) -> tuple[PartitionView, int, int]:
    """The coordinator's partition; and a partition of the topic with its leader, which does not follow the coordinator.

    So the link between both carries nothing but markers.
    """
    views = {topic.name: topic for topic in (await admin.metadata([_TOPIC, TRANSACTION_TOPIC])).topics}
    [state] = views[TRANSACTION_TOPIC].partitions
    for view in views[_TOPIC].partitions:
        if view.leader not in state.replicas:
            return state, view.partition, view.leader
    raise AssertionError("every broker holds the coordinator's partition")


async def _move_coordinator(context: ClientContext, state: PartitionView) -> None:
    """Have the second replica lead."""
    admin = RetryingAdmin(context, "coordinator election")
    first, second, *others = state.replicas
    row = {"partition_index": state.partition, "replicas": [second, first, *others]}
    moves = {"topics": [{"name": TRANSACTION_TOPIC, "partitions": [row]}]}
    await admin.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, moves, lambda answer: answer.error_code)
    fields = {
        "election_type": 0,
        "topic_partitions": [{"topic": TRANSACTION_TOPIC, "partitions": [state.partition]}],
    }
    await admin.ask(ApiKey.ELECT_LEADERS, 2, fields, lambda answer: answer.error_code)
