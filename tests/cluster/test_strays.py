"""A log with another topic id than its partition is set aside and never deleted.

No empty log takes its place, nor that of a log which somebody removed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import pytest

from raftwerk.chaos.sim.cluster_config import ClusterConfig
from raftwerk.chaos.sim.kernel.event_loop import ProcessLoop
from raftwerk.chaos.sim.kernel.world import World
from raftwerk.chaos.sim.simulated_cluster import SimulatedCluster
from raftwerk.cluster.client.admin_client import AdminClient, NewTopic
from raftwerk.cluster.client.client_errors import ClientError
from raftwerk.cluster.client.cluster_client import ClusterClient
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.records import encode_batch, iter_headers

TOPIC = "t"
UNCLEAN_ELECTION = {
    "election_type": 1,
    "topic_partitions": [{"topic": TOPIC, "partitions": [0]}],
    "timeout_ms": 5000,
}


@pytest.fixture
def world() -> Iterator[World]:
    world = World(1)
    with world:
        yield world


def started(world: World, nodes: int, controllers: int = 0) -> tuple[SimulatedCluster, ProcessLoop]:
    cluster = SimulatedCluster(world, ClusterConfig(nodes, controllers))
    cluster.start_all()
    world.network.add_host("client")
    process = ProcessLoop(world.scheduler, "client", world.network)
    world.processes.append(process)
    assert world.scheduler.run_until(cluster.is_healthy, 10.0)
    return cluster, process


async def append(client: ClusterClient, number: int) -> None:
    """One Produce request with acks=all, repeated until it succeeds."""
    batch = bytes(encode_batch([(None, b"%d" % number, (), 0)]))
    rows = [{"name": TOPIC, "partition_data": [{"index": 0, "records": batch}]}]
    fields = {"transactional_id": None, "acks": -1, "timeout": 5000, "topic_data": rows}
    for _ in range(500):
        leader = (await client.metadata([TOPIC])).topic(TOPIC).partitions[0].leader
        if leader >= 0:
            try:
                answer = await client.request_node(leader, ApiKey.PRODUCE, 9, fields)
            except (ClientError, OSError):
                answer = None
            if answer is not None and answer.responses[0].partition_responses[0].error_code == 0:
                return
        await asyncio.sleep(0.02)
    raise AssertionError("not appended within 10 s")


async def leader_and_isr(client: ClusterClient) -> tuple[int, list[int]]:
    partition = (await client.metadata([TOPIC])).topic(TOPIC).partitions[0]
    return partition.leader, sorted(partition.isr)


def flip_a_letter_of_the_topic_id(world: World, name: str) -> bytes:
    """The former contents of the file."""
    disk, path = world.hosts[name].disk, f"/data/{TOPIC}-0/partition.metadata"
    content = disk.read_bytes(path)
    at = content.index(b"topic_id: ") + 13
    flipped = bytes([ord("b") if content[at] == ord("a") else ord("a")])
    disk.write_atomic(path, content[:at] + flipped + content[at + 1 :])
    return content


def set_aside(world: World, name: str) -> list[str]:
    disk = world.hosts[name].disk
    return [f"/data/{one}" for one in disk.listdir("/data") if one.startswith(f"{TOPIC}-0.") and one.endswith("-stray")]


def records_in(world: World, name: str, directory: str) -> int:
    disk = world.hosts[name].disk
    files = [f"{directory}/{one}" for one in disk.listdir(directory) if one.endswith(".log")]
    return sum(header.record_count for path in files for _, header in iter_headers(disk.read_bytes(path)))


def stop(world: World, cluster: SimulatedCluster, *names: str) -> None:
    for name in names:
        cluster.stop(name)
    assert world.scheduler.run_until(lambda: not any(world.hosts[name].running for name in names), 30.0)


def restart(world: World, cluster: SimulatedCluster) -> None:
    """Wait until the node serves."""
    cluster.restart("n1")
    assert world.scheduler.run_until(lambda: 1 in cluster.nodes and cluster.nodes[1].broker is not None, 10.0)
    assert world.scheduler.run_until(lambda: cluster.nodes[1].broker.state.name == "RUNNING", 10.0)


def test_a_flipped_letter_of_the_topic_id_costs_no_record(world: World, caplog: pytest.LogCaptureFixture) -> None:
    cluster, process = started(world, 3)

    async def fill() -> None:
        async with ClusterClient(cluster.bootstrap, timeout_s=3.0) as client:
            await AdminClient(client).create_topic(NewTopic(TOPIC, 1, 3, {"min.insync.replicas": "2"}))
            for number in range(10):
                await append(client, number)

    async def check() -> None:
        async with ClusterClient(cluster.bootstrap, timeout_s=3.0) as client:
            await append(client, 10)
            for _ in range(200):
                if (await leader_and_isr(client))[1] == [1, 2, 3]:
                    return
                await asyncio.sleep(0.05)
            raise AssertionError("not in sync again")

    process.run_until_complete(fill(), 60.0)
    assert world.scheduler.run_until(cluster.is_healthy, 10.0)
    stop(world, cluster, "n2")
    flip_a_letter_of_the_topic_id(world, "n2")
    with caplog.at_level(logging.WARNING):
        cluster.restart("n2")
        process.run_until_complete(check(), 60.0)
    (stray,) = set_aside(world, "n2")
    assert records_in(world, "n2", stray) == 10 and records_in(world, "n2", f"/data/{TOPIC}-0") == 11
    assert any("has topic id" in line and stray in line for line in caplog.messages)
    assert world.scheduler.run_until(cluster.is_healthy, 10.0)
    caplog.clear()
    stop(world, cluster, "n2")
    with caplog.at_level(logging.WARNING):
        cluster.restart("n2")
        assert world.scheduler.run_until(cluster.is_healthy, 20.0)
    assert any("were set aside" in line for line in caplog.messages), "it is told at each start"
    assert set_aside(world, "n2") == [stray]


def test_the_only_replica_is_not_replaced_and_can_be_put_back(world: World) -> None:
    """No empty log takes its place: the partition has no leader until a person decides."""
    cluster, process = started(world, 1)

    async def fill() -> None:
        async with ClusterClient(cluster.bootstrap, timeout_s=3.0) as client:
            await AdminClient(client).create_topic(NewTopic(TOPIC, 1, 1))
            for number in range(10):
                await append(client, number)

    async def nobody_leads() -> None:
        async with ClusterClient(cluster.bootstrap, timeout_s=3.0) as client:
            for _ in range(60):
                assert (await leader_and_isr(client))[0] == -1
                await asyncio.sleep(0.05)

    async def decide() -> None:
        async with ClusterClient(cluster.bootstrap, timeout_s=3.0) as client:
            assert (await leader_and_isr(client))[0] == -1
            await client.request_node(1, ApiKey.ELECT_LEADERS, 2, UNCLEAN_ELECTION)
            await append(client, 10)

    process.run_until_complete(fill(), 60.0)
    stop(world, cluster, "n1")
    disk = world.hosts["n1"].disk
    content = flip_a_letter_of_the_topic_id(world, "n1")
    restart(world, cluster)
    process.run_until_complete(nobody_leads(), 60.0)
    (stray,) = set_aside(world, "n1")
    assert records_in(world, "n1", stray) == 10
    stop(world, cluster, "n1")
    if disk.exists(f"/data/{TOPIC}-0"):
        disk.remove_tree(f"/data/{TOPIC}-0")
    disk.rename(stray, f"/data/{TOPIC}-0")
    disk.write_atomic(f"/data/{TOPIC}-0/partition.metadata", content)
    restart(world, cluster)
    process.run_until_complete(decide(), 60.0)
    assert records_in(world, "n1", f"/data/{TOPIC}-0") == 11


def test_a_directory_that_was_removed_by_hand_costs_the_other_replica_no_record(world: World) -> None:
    """The only replica in sync does not lead with an empty log, which the other one would follow."""
    cluster, process = started(world, 2, controllers=1)

    async def fill() -> None:
        async with ClusterClient(cluster.bootstrap, timeout_s=3.0) as client:
            await AdminClient(client).create_topic(NewTopic(TOPIC, 1, 2, {"min.insync.replicas": "1"}))
            for number in range(10):
                await append(client, number)

    async def one_is_in_sync() -> None:
        async with ClusterClient(cluster.bootstrap, timeout_s=3.0) as client:
            for _ in range(200):
                if (await leader_and_isr(client))[1] == [1]:
                    return
                await asyncio.sleep(0.05)
            raise AssertionError("the stopped node is in the ISR")

    async def decide() -> None:
        async with ClusterClient(cluster.bootstrap, timeout_s=3.0) as client:
            for _ in range(60):
                assert (await leader_and_isr(client))[0] == -1
                await asyncio.sleep(0.05)
            await client.request_node(1, ApiKey.ELECT_LEADERS, 2, UNCLEAN_ELECTION)
            await append(client, 10)

    process.run_until_complete(fill(), 60.0)
    stop(world, cluster, "n2")
    process.run_until_complete(one_is_in_sync(), 60.0)
    stop(world, cluster, "n1")
    world.hosts["n1"].disk.remove_tree(f"/data/{TOPIC}-0")
    restart(world, cluster)
    cluster.restart("n2")
    assert world.scheduler.run_until(lambda: 2 in cluster.ready, 10.0)
    process.run_until_complete(decide(), 60.0)
    assert records_in(world, "n2", f"/data/{TOPIC}-0") == 11
