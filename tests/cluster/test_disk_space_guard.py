"""A full disk: the broker serves what it has, other brokers lead, errors name the reason; with space it takes records
again."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterator

import pytest

from raftwerk.chaos.sim.cluster_config import ClusterConfig
from raftwerk.chaos.sim.faults.target_cluster import LOG_DIR
from raftwerk.chaos.sim.kernel.event_loop import ProcessLoop
from raftwerk.chaos.sim.kernel.world import World
from raftwerk.chaos.sim.simulated_cluster import SimulatedCluster
from raftwerk.cluster.client.admin_client import BROKER, AdminClient, NewTopic
from raftwerk.cluster.client.client_errors import ClientError, RefusedError
from raftwerk.cluster.client.cluster_client import ClusterClient
from raftwerk.cluster.client.producer import Producer
from raftwerk.cluster.doctor.disk_checks import RESERVE, examine_disks
from raftwerk.cluster.doctor.findings import FAILURE, OK
from raftwerk.cluster.node.disk_space_guard import DiskSpaceGuard, is_full_now, next_look_s
from raftwerk.raft.replication.spare_space import SPARE_FILE
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.codec import Struct
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.records import encode_batch

TOPIC = "t"
MB = 1 << 20
SPARE_BYTES = 65536


@pytest.fixture
def cluster() -> Iterator[tuple[SimulatedCluster, ProcessLoop]]:
    """Three simulated nodes that keep 16 MB free, and the process of a client."""
    world = World(1)
    with world:
        cluster = SimulatedCluster(world, ClusterConfig(3, properties={"metadata.log.spare.bytes": str(SPARE_BYTES)}))
        cluster.start_all()
        world.network.add_host("client")
        process = ProcessLoop(world.scheduler, "client", world.network)
        world.processes.append(process)
        assert world.scheduler.run_until(cluster.is_healthy, 10.0)
        yield cluster, process


async def append(client: ClusterClient) -> Struct:
    """The leader's answer to one Produce request with acks=all."""
    leader = (await client.metadata([TOPIC])).topic(TOPIC).partitions[0].leader
    batch = bytes(encode_batch([(None, b"x" * 100, (), 0)]))
    rows = [{"name": TOPIC, "partition_data": [{"index": 0, "records": batch}]}]
    fields = {"transactional_id": None, "acks": -1, "timeout": 5000, "topic_data": rows}
    answer = await client.request_node(leader, ApiKey.PRODUCE, 9, fields)
    row: Struct = answer.responses[0].partition_responses[0]
    return row


async def append_until(client: ClusterClient, *codes: ErrorCode) -> Struct:
    for _ in range(2_000):
        try:
            row = await append(client)
        except (ClientError, OSError):
            row = None
        if row is not None and row.error_code in codes:
            return row
        await asyncio.sleep(0.01)
    raise AssertionError(f"none of {codes} within 20 s")


async def isr_of(client: ClusterClient) -> list[int]:
    return sorted((await client.metadata([TOPIC])).topic(TOPIC).partitions[0].isr)


async def until_isr(client: ClusterClient, isr: list[int], limit_s: float) -> None:
    for _ in range(int(limit_s / 0.05)):
        if await isr_of(client) == isr:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"the ISR is not {isr} within {limit_s} s")


def starts(cluster: SimulatedCluster) -> list[int]:
    return [cluster.world.hosts[name].starts for name in cluster.names]


def test_other_brokers_lead_when_one_disk_is_full(cluster: tuple[SimulatedCluster, ProcessLoop]) -> None:
    sim, process = cluster
    assert sim.world.scheduler.run_until(sim.is_healthy, 10.0)

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        async with ClusterClient(sim.bootstrap, timeout_s=3.0) as client:
            await AdminClient(client).create_topic(NewTopic(TOPIC, 1, 3, {"min.insync.replicas": "2"}))
            leader = (await client.metadata([TOPIC])).topic(TOPIC).partitions[0].leader
            disk = sim.world.hosts[f"n{leader}"].disk
            disk.fill(8 * MB)
            others = [node_id for node_id in sim.ids if node_id != leader]
            await until_isr(client, others, 6.0)
            began = loop.time()
            await append_until(client, ErrorCode.NONE)
            assert loop.time() - began < 1.0
            await asyncio.sleep(5.0)
            assert await isr_of(client) == others
            brokers = await AdminClient(client).registered_brokers()
            assert [one.node_id for one in brokers if one.is_fenced] == [leader]
            for wanted in ((), (leader,)):
                shown = (await AdminClient(client).describe_log_dirs(wanted)).whole()
                assert {one.broker: one.usable_bytes for one in shown}[leader] <= 8 * MB
            settings = await AdminClient(client).describe_configs(BROKER, str(leader), everything=True)
            assert RESERVE in [one.name for one in settings]
            states = await AdminClient(client).broker_states()
            assert {one.node_id: one.state for one in states} == dict.fromkeys(others, "up") | {leader: "fenced"}
            addresses = {one.node_id: (one.host, one.port) for one in brokers}
            (found,), full = await examine_disks(client, addresses)
            assert full == {leader}
            assert found.level == FAILURE and found.what.startswith(f"broker {leader}, ")
            assert "the disk is full: 8.0 MiB free, and log.dirs.reserve.bytes keeps 16.0 MiB" in found.what
            assert "writing goes on by itself when 32.0 MiB are free" in found.way_out
            disk.set_capacity()
            await until_isr(client, [1, 2, 3], 3.0)
            (found,), full = await examine_disks(client, addresses)
            assert not full
            assert found.level == OK
            await append_until(client, ErrorCode.NONE)

    process.run_until_complete(scenario(), 60.0)
    assert starts(sim) == [1, 1, 1]
    assert sim.world.scheduler.run_until(sim.is_healthy, 10.0)


def test_no_broker_is_fenced_when_all_disks_are_full(cluster: tuple[SimulatedCluster, ProcessLoop]) -> None:
    sim, process = cluster

    async def scenario() -> None:
        async with ClusterClient(sim.bootstrap, timeout_s=3.0) as client:
            await AdminClient(client).create_topic(NewTopic(TOPIC, 1, 3, {"min.insync.replicas": "1"}))
            await append_until(client, ErrorCode.NONE)
            for name in sim.names:
                sim.world.hosts[name].disk.fill(8 * MB)
            refused = await append_until(client, ErrorCode.KAFKA_STORAGE_ERROR)
            assert refused.error_message == "the log directory of t-0 is full: it takes no records for now"
            producer = Producer(client, TOPIC, timeout_s=5.0)  # all ask at once to be fenced: no leader for a moment
            await producer.start()
            with pytest.raises(
                RefusedError, match=r"not acked after 5 s by broker \d .*: the log directory .* is full"
            ):
                await producer.send([(None, b"x")])
            await asyncio.sleep(5.0)
            view = (await client.metadata([TOPIC])).topic(TOPIC).partitions[0]
            assert view.leader >= 0  # reads go on
            for name in sim.names:
                sim.world.hosts[name].disk.set_capacity()
            await append_until(client, ErrorCode.NONE)

    process.run_until_complete(scenario(), 90.0)
    assert starts(sim) == [1, 1, 1]
    assert sim.world.scheduler.run_until(sim.is_healthy, 10.0)


def test_disks_without_any_space_end_no_node(cluster: tuple[SimulatedCluster, ProcessLoop]) -> None:
    """The metadata log takes its spare space; logs that cannot be created are created when there is space."""
    sim, process = cluster
    disks = [sim.world.hosts[name].disk for name in sim.names]
    spare = f"{LOG_DIR}/{SPARE_FILE}"

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        async with ClusterClient(sim.bootstrap, timeout_s=3.0) as client:
            admin = AdminClient(client)
            assert all(disk.exists(spare) for disk in disks)
            for disk in disks:
                disk.fill(0)
            for number in range(5):
                await admin.create_topic(NewTopic(f"later-{number}", 2, 3))
            await admin.create_topic(NewTopic(TOPIC, 1, 3, {"min.insync.replicas": "2"}))
            assert not any(disk.exists(spare) for disk in disks)
            await append_until(client, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            assert starts(sim) == [1, 1, 1]
            for disk in disks:
                disk.set_capacity()
            began = loop.time()
            await append_until(client, ErrorCode.NONE)
            await until_isr(client, [1, 2, 3], 5.0)
            assert loop.time() - began < 5.0
            await asyncio.sleep(11.0)
            assert all(disk.exists(spare) for disk in disks), "there is spare space for the next time"

    process.run_until_complete(scenario(), 60.0)
    assert starts(sim) == [1, 1, 1]
    assert sim.world.scheduler.run_until(sim.is_healthy, 10.0)


def test_a_broker_stays_fenced_while_the_logs_that_wait_find_no_space(
    cluster: tuple[SimulatedCluster, ProcessLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where all inodes or a quota are used up: the system tells of free space, and refuses new files."""
    sim, process = cluster
    disk = sim.world.hosts["n3"].disk
    makedirs = disk.makedirs

    def refusing(path: str) -> None:
        if TOPIC in path.rpartition("/")[2].split("-"):
            raise disk.fault_error(errno.ENOSPC, "no space left on device", path)
        makedirs(path)

    async def scenario() -> None:
        async with ClusterClient(sim.bootstrap, timeout_s=3.0) as client:
            admin = AdminClient(client)

            async def fenced() -> list[int]:
                return [one.node_id for one in await admin.registered_brokers() if one.is_fenced]

            monkeypatch.setattr(disk, "makedirs", refusing)
            await admin.create_topic(NewTopic(TOPIC, 1, 3))
            while await fenced() != [3]:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            for _ in range(200):
                assert await fenced() == [3]
                await asyncio.sleep(0.05)
            monkeypatch.undo()
            await until_isr(client, [1, 2, 3], 5.0)
            assert await fenced() == []

    process.run_until_complete(scenario(), 60.0)
    assert starts(sim) == [1, 1, 1]


def test_a_directory_is_looked_at_soon_after_a_write_found_no_space() -> None:
    """Such a write may be the only one, as where the process had too many open files for a moment."""
    world = World(1)
    with world:
        world.network.add_host("client")
        process = ProcessLoop(world.scheduler, "client", world.network)
        world.processes.append(process)
        told: list[tuple[float, list[str]]] = []

        async def scenario() -> None:
            loop = asyncio.get_running_loop()
            guard = DiskSpaceGuard(1, lambda: ["/d"], lambda _: 1 << 40, lambda full: told.append((loop.time(), full)))
            guard.on_no_space("/d")
            guard.start()
            await asyncio.sleep(6.0)
            told.clear()
            guard.on_no_space("/d")
            await asyncio.sleep(0.6)
            guard.stop()
            guard.on_no_space("/d")
            await asyncio.sleep(20.0)

        process.run_until_complete(scenario(), 60.0)
    (refused_at, first), (looked_at, second), (_, last) = told
    assert (first, second, last) == (["/d"], [], ["/d"]), "nothing is looked at after the end"
    assert looked_at - refused_at == pytest.approx(0.5, abs=0.01)


def test_the_less_space_is_left_the_more_often_it_is_checked() -> None:
    assert next_look_s([100 << 30], 16 * MB, is_full=False) == 5.0
    assert 0.9 < next_look_s([100 << 30, 1 << 30], 16 * MB, is_full=False) < 1.1
    assert next_look_s([16 * MB], 16 * MB, is_full=False) == 0.01
    assert next_look_s([], 16 * MB, is_full=False) == 0.5, "nothing can be read"
    assert next_look_s([0], 16 * MB, is_full=True) == 0.5


def test_a_full_directory_stays_full_until_twice_the_reserve_is_free() -> None:
    assert not is_full_now(16 * MB, 16 * MB, was_full=False)
    assert is_full_now(16 * MB - 1, 16 * MB, was_full=False)
    assert is_full_now(31 * MB, 16 * MB, was_full=True)
    assert not is_full_now(32 * MB, 16 * MB, was_full=True)
    assert not is_full_now(0, 0, was_full=True)


def test_a_directory_whose_space_cannot_be_read_stays_as_it_was(caplog: pytest.LogCaptureFixture) -> None:
    """The others are judged by their own space. It is logged once."""
    free = {"/full": 10, "/filling": 10 * MB, "/other": 10 * MB}
    unread: list[str] = []
    told: list[list[str]] = []

    def free_bytes(path: str) -> int:
        if path in unread:
            raise OSError(5, "Input/output error")
        return free[path]

    async def main() -> None:
        guard = DiskSpaceGuard(MB, lambda: free, free_bytes, told.append)
        guard.start()
        assert told == [["/full"]]
        unread.extend(("/full", "/other"))
        free["/filling"] = 10
        for _ in range(2):
            guard.stop()
            guard.start()
            assert sorted(told[-1]) == ["/filling", "/full"]
        unread.clear()
        free["/full"] = 10 * MB
        guard.stop()
        guard.start()
        guard.stop()
        assert told[-1] == ["/filling"]

    asyncio.run(main())
    assert [one.message for one in caplog.records if "cannot be read" in one.message] == [
        f"the free space of log directory {path} cannot be read: [Errno 5] Input/output error"
        for path in ("/full", "/other")
    ]
