"""A broker whose only disk fails stops, so that other brokers lead; it does not stay in the ISR without serving."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from raftwerk.chaos.sim.cluster_config import ClusterConfig
from raftwerk.chaos.sim.kernel.event_loop import ProcessLoop
from raftwerk.chaos.sim.kernel.world import World
from raftwerk.chaos.sim.simulated_cluster import SimulatedCluster
from raftwerk.cluster.client.admin_client import AdminClient, NewTopic
from raftwerk.cluster.client.cluster_client import ClusterClient
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.records import encode_batch

TOPIC = "t"


@pytest.fixture
def world() -> Iterator[World]:
    world = World(1)
    with world:
        yield world


async def append(client: ClusterClient, leader: int, size: int) -> int:
    """The error code of one Produce request with acks=all."""
    batch = bytes(encode_batch([(None, b"x" * size, (), 0)]))
    fields = {
        "transactional_id": None,
        "acks": -1,
        "timeout": 5000,
        "topic_data": [{"name": TOPIC, "partition_data": [{"index": 0, "records": batch}]}],
    }
    answer = await client.request_node(leader, ApiKey.PRODUCE, 9, fields)
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


def test_a_full_disk_ends_the_node_and_writes_go_on(world: World) -> None:
    cluster = SimulatedCluster(world, ClusterConfig(3))
    cluster.start_all()
    world.network.add_host("client")
    process = ProcessLoop(world.scheduler, "client", world.network)
    world.processes.append(process)
    assert world.scheduler.run_until(cluster.is_healthy, 10.0)

    async def scenario() -> tuple[int, float]:
        loop = asyncio.get_running_loop()
        async with ClusterClient(cluster.bootstrap, timeout_s=3.0) as client:
            await AdminClient(client).create_topic(NewTopic(TOPIC, 1, 3, {"min.insync.replicas": "2"}))
            leader = (await client.metadata([TOPIC])).topic(TOPIC).partitions[0].leader
            assert await append(client, leader, 100) == ErrorCode.NONE
            world.hosts[f"n{leader}"].disk.set_capacity(0)
            assert await append(client, leader, 100) == ErrorCode.KAFKA_STORAGE_ERROR
            began = loop.time()
            await until_failed(world)
            cluster.crash(f"n{leader}", power_loss=False)
            while True:
                new = (await client.metadata([TOPIC])).topic(TOPIC).partitions[0].leader
                if new not in (-1, leader) and await append(client, new, 100) == ErrorCode.NONE:
                    return leader, loop.time() - began
                await asyncio.sleep(0.05)

    leader, took_s = process.run_until_complete(scenario(), 30.0)
    assert leader in cluster.ids
    assert took_s < 2.0


async def until_failed(world: World) -> None:
    """Wait until the node has stopped by itself, with a reason."""
    for _ in range(300):
        ended = [line for line in world.trace.timeline(100) if "ended:" in line]
        if ended:
            break
        await asyncio.sleep(0.01)
    assert "no space" in ended[0]
