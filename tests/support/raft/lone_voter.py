"""A lone voter's driver on a simulated disk and in virtual time."""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Awaitable, Callable
from typing import Any

from support.raft.nodes import Listener

from raftwerk.chaos.sim.disk.sim_disk import SimDisk
from raftwerk.chaos.sim.kernel.event_loop import ProcessLoop, Scheduler
from raftwerk.raft.driver.raft_driver import RaftDriver, metadata_log_dir, open_metadata_log
from raftwerk.raft.quorum.config import RaftConfig
from raftwerk.raft.snapshots.snapshot_writer import SnapshotContents
from raftwerk.raft.voters.voter_set import VoterEndpoint
from raftwerk.runtime.ports import Runtime
from raftwerk.wire.types import SnapshotId

DAY_S = 24 * 60 * 60
CONFIG = RaftConfig(node_id=1, cluster_id="c", voters={1: VoterEndpoint("n1", 9093)})


class LoopClock:
    """The wall clock shows the time of the loop, since 1970."""

    def wall_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)


async def refuse(_host: str, _port: int) -> Any:
    raise ConnectionRefusedError(errno.ECONNREFUSED, "nobody listens")


class LoneVoter:
    """A lone voter; nobody else can be reached."""

    def __init__(self) -> None:
        self.connect: Callable[[str, int], Awaitable[Any]] = refuse
        self.disk = SimDisk(random.Random(0))
        self.disk.makedirs(metadata_log_dir("/data"))
        self.listener = Listener()
        self.driver: RaftDriver

    def make(self, config: RaftConfig = CONFIG) -> RaftDriver:
        """A driver that was not started."""
        runtime = Runtime(disk=self.disk, clock=LoopClock(), rng=random.Random(0))
        log = open_metadata_log(runtime, "/data")
        self.listener = Listener()
        self.driver = RaftDriver(config, runtime, log, metadata_log_dir("/data"), self.listener, self.connect)
        return self.driver

    async def start(self, config: RaftConfig = CONFIG) -> RaftDriver:
        """A driver that leads."""
        driver = self.make(config)
        await driver.start()
        await asyncio.sleep(1)
        return driver

    async def commit(self, *records: bytes) -> int:
        """The offset after the records, which are committed."""
        offset = self.driver.append(records, self.driver.epoch)
        await asyncio.sleep(1)
        assert self.driver.high_watermark == offset + 1
        return offset + 1

    async def snapshot(self, end_offset: int) -> SnapshotId:
        """A snapshot that is written now."""
        snapshot = SnapshotId(end_offset, self.driver.epoch)
        written_ms = LoopClock().wall_ms()
        assert self.driver.create_snapshot(SnapshotContents(snapshot, written_ms, iter([[b"state"]])))
        await asyncio.sleep(1)
        return snapshot

    def snapshots(self) -> list[str]:
        return [name for name in self.disk.listdir(metadata_log_dir("/data")) if name.endswith(".checkpoint")]


def run(test: Callable[[LoneVoter], Awaitable[None]]) -> None:
    async def with_node() -> None:
        await test(LoneVoter())

    ProcessLoop(Scheduler(), "test").run_until_complete(with_node(), timeout_s=10 * DAY_S)
