"""Three nodes, controllers included, are replaced by three others with empty disks, one by one, under load."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.e2e import helpers
from support.e2e.dynamic_nodes import TIMEOUT_S, Nodes, run, view_of

from raftwerk.cluster.client.admin_client import AdminClient
from raftwerk.cluster.client.cluster_client import ClusterClient
from raftwerk.cluster.client.reassignment import Move, reassign, wait_for_moves

GAP_LIMIT_S = 2.0
OLD, NEW = (1, 2, 3), (4, 5, 6)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    """1, 2 and 3 run and vote."""
    nodes = Nodes(tmp_path)
    try:
        nodes.form_quorum(OLD)
        yield nodes
    finally:
        nodes.kill_all()


async def move_all(bootstrap: str, old: int, new: int) -> None:
    """Every replica on `old` goes to `new`."""
    async with ClusterClient(bootstrap) as client:
        view = await client.metadata()
        moves = [
            Move(topic.name, one.partition, tuple(new if replica == old else replica for replica in one.replicas))
            for topic in view.topics
            for one in topic.partitions
            if old in one.replicas
        ]
        await reassign(client, moves)
        await wait_for_moves(client, moves, TIMEOUT_S)


async def unregister(bootstrap: str, node_id: int) -> None:
    async with ClusterClient(bootstrap) as client:
        await AdminClient(client).unregister_broker(node_id)


async def brokers(bootstrap: str) -> list[int]:
    async with ClusterClient(bootstrap) as client:
        return [broker.node_id for broker in (await client.metadata()).brokers]


def replace_node(nodes: Nodes, old: int, new: int) -> None:
    """What an operator does, step by step."""
    nodes.format(new, "--no-initial-controllers")
    nodes.wait_ready(new, nodes.start(new))
    bootstrap = nodes.broker(new)
    run("quorum", "add-controller", "-b", bootstrap, "-c", str(nodes.properties(new)))
    asyncio.run(move_all(bootstrap, old, new))
    run("quorum", "remove-controller", str(old), "-b", bootstrap)
    nodes.stop(old)
    asyncio.run(unregister(bootstrap, old))


@pytest.mark.long
def test_three_nodes_are_replaced_by_three_others(nodes: Nodes) -> None:
    bootstrap = nodes.bootstrap(OLD)
    helpers.create_topic(bootstrap, "cold", 6, min_insync_replicas="2")
    run("perf", "produce", "cold", "-b", bootstrap, "--records", "30000", "--record-size", "200")
    before = [len(values) for values in helpers.read_all(bootstrap, "cold", 6)]
    helpers.create_topic(bootstrap, "hot", min_insync_replicas="2")
    stream = helpers.Load(bootstrap, "hot", rate=300)
    failures: list[BaseException] = []

    def replace_all() -> None:
        try:
            for old, new in zip(OLD, NEW, strict=True):
                replace_node(nodes, old, new)
        except BaseException as error:
            failures.append(error)

    operator = threading.Thread(target=replace_all)
    stream.run(1)
    operator.start()
    while operator.is_alive():
        stream.run(0.2)
    stream.run(1)
    stream.finish()
    assert not failures, failures
    bootstrap = nodes.bootstrap(NEW)
    assert asyncio.run(brokers(bootstrap)) == list(NEW)
    assert sorted(voter.node_id for voter in view_of(bootstrap).voters) == list(NEW)
    stream.check(bootstrap)
    assert sum(before) >= 30000
    assert [len(values) for values in helpers.read_all(bootstrap, "cold", 6)] == before
    print(f"{len(stream.acked)} acked, longest gap {stream.longest_gap_s():.2f} s")
    assert stream.longest_gap_s() <= GAP_LIMIT_S
