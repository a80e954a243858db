"""Quorum nodes in this process: real sockets on free ports, real files, the server reduced to what the quorum needs."""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from support.ports import free_ports

from raftwerk.chaos.sim.quorum_simulation import QuorumServer
from raftwerk.raft.driver.raft_driver import RaftDriver, metadata_log_dir, open_metadata_log
from raftwerk.raft.quorum.config import RaftConfig, RaftTiming
from raftwerk.raft.types import CommittedBatch, LeaderAndEpoch
from raftwerk.raft.voters.voter_set import VoterEndpoint
from raftwerk.runtime.clock import SystemClock
from raftwerk.runtime.files.real_disk import RealDisk
from raftwerk.runtime.ports import Buffer, File, Runtime
from raftwerk.wire.types import SnapshotId

HOST = "127.0.0.1"


class FragileDisk(RealDisk):
    """A real disk whose fsyncs fail once `is_broken`; `refuses_state` fails the writing of small files."""

    is_broken = False
    refuses_state = False
    fsyncs_after_failure = 0

    def fsync_soon(self, file: File) -> asyncio.Future[None]:
        if not self.is_broken:
            return super().fsync_soon(file)
        self.fsyncs_after_failure += 1
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.set_exception(OSError(errno.EIO, "the disk is broken"))
        return future

    def write_atomic(self, path: str, data: Buffer) -> None:
        if self.refuses_state:
            raise OSError(errno.ENOSPC, "no space left")
        super().write_atomic(path, data)


class Listener:
    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.end_offset = 0
        self.leaders: list[LeaderAndEpoch] = []
        self.committed_when_leading = 0
        self.loading: tuple[SnapshotId, list[bytes]] | None = None
        self.looks = 0
        """How many empty commits it got."""

    def on_snapshot(self, snapshot_id: SnapshotId, records: Sequence[bytes] | None) -> None:
        if self.loading is None or self.loading[0] != snapshot_id:
            self.loading = snapshot_id, []
        self.loading[1].extend(records or ())
        if records is None:
            self.end_offset = snapshot_id.end_offset
            self.records, self.loading = self.loading[1], None

    def on_commit(self, batches: Sequence[CommittedBatch]) -> None:
        self.looks += not batches
        for batch in batches:
            assert batch.base_offset == self.end_offset, "in order, exactly once"
            self.end_offset = batch.last_offset + 1
            self.records.extend(batch.records)

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        self.leaders.append(leader)
        self.committed_when_leading = self.end_offset


class _Server(QuorumServer):
    def __init__(self, node: RaftNode, driver: RaftDriver) -> None:
        super().__init__(driver)
        self._node = node

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._node.transports.append(transport)


class RaftNode:
    def __init__(self, node_id: int, ports: dict[int, int], log_dir: Path, timing: RaftTiming) -> None:
        voters = {voter: VoterEndpoint(HOST, port) for voter, port in ports.items()}
        self.config = RaftConfig(
            node_id=node_id, cluster_id="c", voters=voters, timing=timing, can_vote=node_id in voters
        )
        self.id = node_id
        self.log_dir = str(log_dir)
        self.disk = FragileDisk()
        self.transports: list[Any] = []
        self.listener = Listener()
        self.driver: RaftDriver
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        runtime = Runtime(disk=self.disk, clock=SystemClock(), rng=random.Random(self.id))
        self.disk.makedirs(metadata_log_dir(self.log_dir))
        log = open_metadata_log(runtime, self.log_dir)
        self.listener = Listener()
        self.driver = RaftDriver(self.config, runtime, log, metadata_log_dir(self.log_dir), self.listener)
        if self.id in self.config.voters:
            loop = asyncio.get_running_loop()
            port = self.config.voters[self.id].port
            self._server = await loop.create_server(lambda: _Server(self, self.driver), HOST, port, reuse_address=True)
        await self.driver.start()

    async def stop(self) -> None:
        await self.driver.stop()
        self._hang_up()

    async def kill(self) -> None:
        """Do what SIGKILL does as seen from outside: connections break, and nothing listens."""
        self._hang_up()
        self.driver._leave()
        await self.driver.stop()

    def _hang_up(self) -> None:
        if self._server is not None:
            self._server.close()
        for transport in self.transports:
            transport.abort()
        self.transports.clear()


class RaftNodes:
    """A quorum of `voters`, ids from 1, and `observers` after them."""

    def __init__(self, directory: Path, voters: int, observers: int = 0, timing: RaftTiming | None = None) -> None:
        ports = dict(enumerate(free_ports(voters, HOST), start=1))
        self.nodes = {
            i: RaftNode(i, ports, directory / f"node-{i}", timing or RaftTiming())
            for i in range(1, voters + observers + 1)
        }

    async def __aenter__(self) -> RaftNodes:
        await asyncio.gather(*(node.start() for node in self.nodes.values()))
        return self

    async def __aexit__(self, *_: object) -> None:
        for node in self.nodes.values():
            await node.stop()

    def leader(self, without: RaftNode | None = None) -> RaftNode | None:
        """The node that leads and whose listener knows it."""
        for node in self.nodes.values():
            driver = node.driver
            if node is not without and driver.is_leader and node.listener.leaders[-1:] == [driver.leader_and_epoch]:
                return node
        return None

    def have_committed(self, offset: int) -> bool:
        """Whether the high watermark of every node is above `offset`."""
        return all(node.driver.high_watermark > offset for node in self.nodes.values())

    async def elected(self, without: RaftNode | None = None) -> RaftNode:
        await until(lambda: self.leader(without) is not None)
        leader = self.leader(without)
        assert leader is not None
        return leader


async def until(condition: Callable[[], bool], timeout_s: float = 10.0) -> float:
    """Wait until other tasks make `condition` true; returns how long it took, in seconds."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    while not condition():
        assert loop.time() < began_s + timeout_s, "it never came to pass"
        await asyncio.sleep(0.001)
    return loop.time() - began_s
