"""Metadata snapshots by bytes and by time, and the removal of old snapshots and of the log before them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from raftwerk.chaos.sim.cluster_config import ClusterConfig
from raftwerk.chaos.sim.kernel.event_loop import ProcessLoop
from raftwerk.chaos.sim.kernel.world import World
from raftwerk.chaos.sim.simulated_cluster import SimulatedCluster
from raftwerk.cluster.client.admin_client import AdminClient, NewTopic
from raftwerk.cluster.client.cluster_client import ClusterClient

METADATA = "/data/__cluster_metadata-0"
FOR_EVER = {"metadata.max.retention.ms": "-1", "metadata.max.retention.bytes": "-1"}


def files(cluster: SimulatedCluster, node: str, suffix: str) -> list[str]:
    return sorted(name for name in cluster.world.hosts[node].disk.listdir(METADATA) if name.endswith(suffix))


class ClusterRun:
    """Three nodes, on which topics are created one after the other."""

    def __init__(self, world: World, properties: Mapping[str, str]) -> None:
        self.world = world
        self.cluster = SimulatedCluster(world, ClusterConfig(properties=properties))
        world.network.add_host("client")
        self.client = ProcessLoop(world.scheduler, "client", world.network)
        world.processes.append(self.client)
        self.topics = 0
        self.cluster.start_all()
        assert world.scheduler.run_until(self.cluster.is_healthy, 10.0)

    def make_topics(self, count: int, every_s: float) -> None:
        async def make() -> None:
            async with ClusterClient(self.cluster.bootstrap) as client:
                await AdminClient(client).create_topic(NewTopic(f"t{self.topics}", 1, 3, {}))

        for _ in range(count):
            self.topics += 1
            self.client.run_until_complete(make())
            self.world.scheduler.run_for(every_s)

    def counts(self, suffix: str = ".checkpoint") -> list[int]:
        return [len(files(self.cluster, name, suffix)) for name in self.cluster.names]

    def restart_all(self) -> None:
        """Restart every node: what is left on its disk must be enough."""
        for name in self.cluster.names:
            self.cluster.crash(name, power_loss=False)
        self.cluster.start_all()
        assert self.world.scheduler.run_until(self.cluster.is_healthy, 10.0), self.cluster.why_not_healthy()
        assert self.cluster.topic_views(f"t{self.topics}").count(None) == 0


def test_by_time() -> None:
    """A snapshot every two seconds while topics are created; those older than five seconds go, but never the last."""
    interval = {"metadata.log.max.snapshot.interval.ms": "2000", "metadata.max.retention.ms": "5000"}
    with World(1) as world:
        run = ClusterRun(world, {**FOR_EVER, **interval})
        run.make_topics(40, 0.5)
        assert all(2 <= count <= 4 for count in run.counts()), run.counts()
        assert all("0" * 20 not in name for host in run.cluster.names for name in files(run.cluster, host, ".log"))
        world.scheduler.run_for(8.0)
        assert run.counts() == [1, 1, 1]
        run.restart_all()
        assert run.counts() == [1, 1, 1]


def test_by_bytes() -> None:
    """A snapshot every 2,000 bytes; log and snapshots stay below 8,000 or so."""
    limits = {"metadata.log.max.record.bytes.between.snapshots": "2000", "metadata.max.retention.bytes": "8000"}
    with World(2) as world:
        run = ClusterRun(world, {**FOR_EVER, **limits})
        run.make_topics(60, 0.05)
        for name in run.cluster.names:
            disk = world.hosts[name].disk
            kept = [*files(run.cluster, name, ".checkpoint"), *files(run.cluster, name, ".log")]
            sizes = [len(disk.read_bytes(f"{METADATA}/{each}")) for each in kept]
            last = len(disk.read_bytes(f"{METADATA}/{files(run.cluster, name, '.checkpoint')[-1]}"))
            assert sum(sizes) <= max(8000, 2 * last + 4000), dict(zip(kept, sizes, strict=True))
        run.restart_all()


@pytest.mark.parametrize("what", [".checkpoint", ".log"])
def test_without_limits_all_stays(what: str) -> None:
    interval = {"metadata.log.max.snapshot.interval.ms": "1000"}
    with World(3) as world:
        run = ClusterRun(world, {**FOR_EVER, **interval})
        run.make_topics(8, 1.0)
        assert all(count >= 5 for count in run.counts(what))
        world.scheduler.run_for(10.0)
        assert all(count >= 5 for count in run.counts(what))
