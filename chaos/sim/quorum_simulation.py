"""A metadata quorum without brokers in the simulator: the raft driver on simulated disks and network.

The leader appends numbered records, and every node keeps the records that it was told are committed. The quorum syncs
everything that counts, so every committed record must survive any crashes and losses of power.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

from ...raft.driver.raft_driver import RaftDriver, metadata_log_dir, open_metadata_log
from ...raft.quorum.config import RaftConfig
from ...raft.snapshots.snapshot_store import SnapshotRetention
from ...raft.snapshots.snapshot_writer import SnapshotContents
from ...raft.types import CommittedBatch, LeaderAndEpoch, NotLeaderError
from ...raft.voters.voter_set import VoterEndpoint
from ...runtime.ports import Runtime
from ...wire.api_keys import ApiKey
from ...wire.client import FrameReader
from ...wire.codec import decode_request, encode_response
from ...wire.fetch import decode_fetch_request, encode_fetch_response
from ...wire.frames import encode_response as encode_response_frame
from ...wire.frames import parse_request_header
from ...wire.types import SnapshotId
from .faults.fault import FaultKind
from .faults.target_cluster import LOG_DIR
from .invariants.invariant_broken import InvariantBroken
from .invariants.quorum_invariants import QuorumChecker
from .invariants.steps.quorum_steps import QuorumStepChecker
from .kernel.event_loop import ProcessLoop
from .kernel.world import World

PORT = 9093
_APPEND_EVERY_S = 0.02
FAULTS = [
    kind
    for kind in FaultKind
    if kind
    not in (
        FaultKind.FSYNC_FAILS,
        FaultKind.DISK_FULL,
        FaultKind.BIT_ROT,
        FaultKind.STATE_ROT,
        FaultKind.SHORT_FILES,
        FaultKind.LYING_DISK,
        FaultKind.CLIENTS_CUT,
        FaultKind.LEFT_ALONE,
        FaultKind.OTHERS_KILLED,
        FaultKind.DIR_FAILS,
        FaultKind.REPLICA_FAILS,
        FaultKind.WIPED_DIR,
        FaultKind.EXCHANGED_DIR,
        FaultKind.REMOVED_LOGS,
    )
]
"""The faults that may happen here. There are no partitions, no clients and no further log directories, and a process
does not end when its disk fails."""


class QuorumServer(asyncio.BufferedProtocol):
    """Serves the quorum requests of one connection, and answers them in order."""

    def __init__(self, driver: RaftDriver) -> None:
        self._driver = driver
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None
        self._last: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.BufferedProtocol`."""
        self._transport = transport  # type: ignore[assignment]

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.BufferedProtocol`."""
        self._transport = None

    def get_buffer(self, sizehint: int) -> memoryview:
        """See `asyncio.BufferedProtocol`."""
        return self._reader.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """See `asyncio.BufferedProtocol`."""
        for frame in self._reader.buffer_updated(nbytes):
            self._last = asyncio.get_running_loop().create_task(self._serve(frame, self._last))

    async def _serve(self, frame: memoryview, before: asyncio.Task[None] | None) -> None:
        header, body_at = parse_request_header(frame)
        api_key, version = header.api_key, header.api_version
        if api_key == ApiKey.FETCH:
            response = await self._driver.handle_fetch(version, decode_fetch_request(version, frame, body_at))
            body: Any = encode_fetch_response(version, response)
        else:
            request = decode_request(api_key, version, frame, body_at)
            body = encode_response(api_key, version, await self._driver.handle_request(api_key, version, request))
        if before is not None:
            await before
        if self._transport is not None:
            self._transport.writelines(encode_response_frame(api_key, version, header.correlation_id, body))


class _Listener:
    """What one process was told is committed. Raises `InvariantBroken` for repeated records and for gaps."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.end_offset = 0
        self.leader = LeaderAndEpoch(None, -1)
        self.records: list[bytes] = []
        self.snapshot_id = SnapshotId(0, 0)
        self.snapshots_taken = 0
        self.loading: tuple[SnapshotId, list[bytes]] | None = None

    def on_commit(self, batches: Sequence[CommittedBatch]) -> None:
        """See the raft driver."""
        for batch in batches:
            if batch.base_offset != self.end_offset:
                detail = f"node {self.node_id} was told of {batch.base_offset} after {self.end_offset}"
                raise InvariantBroken("commits are told once and in order", detail)
            self.end_offset = batch.last_offset + 1
            self.records.extend(batch.records)
            self.snapshot_id = snapshot_id_after(batch)

    def on_snapshot(self, snapshot_id: SnapshotId, records: Sequence[bytes] | None) -> None:
        """A part of a snapshot's records, or its end (None)."""
        if snapshot_id.end_offset < self.end_offset:
            detail = f"node {self.node_id} went from {self.end_offset} to {snapshot_id}"
            raise InvariantBroken("commits are told once and in order", detail)
        if self.loading is None or self.loading[0] != snapshot_id:
            self.loading = snapshot_id, []
        self.loading[1].extend(records or ())
        if records is None:
            self.snapshots_taken += 1
            self.snapshot_id = snapshot_id
            self.end_offset = snapshot_id.end_offset
            self.records, self.loading = self.loading[1], None

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        """See the raft driver."""
        self.leader = leader


def snapshot_id_after(batch: CommittedBatch) -> SnapshotId:
    """The id of a snapshot that ends with this batch."""
    return SnapshotId(batch.last_offset + 1, batch.epoch)


class QuorumSimulation:
    """A quorum of `voters` nodes; `acked` are the records whose commit their leader has seen. A `TargetCluster`.

    If `snapshots` is not 0, every node writes a snapshot after this many records, and removes its log below it.
    """

    def __init__(self, world: World, voters: int, *, snapshots: int = 0) -> None:
        self.world = world
        self.snapshots = snapshots
        self.ids = list(range(1, voters + 1))
        self.names = [f"n{node_id}" for node_id in self.ids]
        self.client_names: list[str] = []
        self.extra_log_dirs: list[str] = []
        self.checker = QuorumChecker(self.ids, world.trace.note, lambda: world.now_s)
        self.steps = QuorumStepChecker(lambda _: None)
        self.listeners: dict[int, _Listener] = {}
        self.drivers: dict[int, RaftDriver] = {}
        self.acked: dict[bytes, None] = {}
        self._appended = 0
        world.scheduler.after_event = self._after_event
        for name in self.names:
            world.add_host(name)

    def start_all(self) -> None:
        """Start every node."""
        for name in self.names:
            self.restart(name)

    # -- TargetCluster

    def resolve(self, target: str) -> str | None:
        """See `TargetCluster`."""
        if target in ("leader", "controller"):
            leader = self.checker.leader
            return None if leader is None else f"n{leader}"
        return target

    def crash(self, name: str, *, power_loss: bool) -> None:
        """See `TargetCluster`."""
        node_id = int(name[1:])
        self.checker.forget(node_id)
        self.steps.forget(node_id)
        self.drivers.pop(node_id, None)
        self.world.hosts[name].crash(power_loss=power_loss)

    def restart(self, name: str) -> None:
        """See `TargetCluster`."""
        node_id = int(name[1:])
        self.world.hosts[name].start(self._program(node_id))

    def in_sync(self) -> bool:
        """See `TargetCluster`."""
        return self.checker.in_sync()

    def has_unnoticed_disk_loss(self) -> bool:
        """See `TargetCluster`."""
        return False  # there are no partitions

    def on_disk_replaced(self, name: str) -> None:
        """See `TargetCluster`."""
        self.checker.on_disk_replaced(int(name[1:]))
        self.steps.on_disk_replaced(int(name[1:]))

    def on_bit_rot(self, name: str) -> None:
        """Does nothing: bit rot concerns partitions."""

    def load_coordinators_again(self, name: str, duration_s: float) -> None:
        """Does nothing: there are no coordinators."""

    def is_mended(self, name: str) -> bool:
        """There is no bit rot here."""
        return True

    def stop(self, name: str) -> None:
        """The driver hands its leadership over and stops."""
        driver, process = self.drivers.get(int(name[1:])), self.world.hosts[name].process
        if driver is None or process is None:
            return

        async def stop() -> None:
            await driver.stop()
            process.call_soon(lambda: self.crash(name, power_loss=False))

        process.call_soon(lambda: process.create_task(stop()))

    # -- the processes

    def _program(self, node_id: int) -> Callable[[Runtime], Coroutine[Any, Any, None]]:
        async def main(runtime: Runtime) -> None:
            loop = asyncio.get_running_loop()
            runtime.disk.makedirs(LOG_DIR)
            runtime.disk.fsync_dir("/")
            voters = {each: VoterEndpoint(f"n{each}", PORT) for each in self.ids}
            config = RaftConfig(
                node_id=node_id, cluster_id="sim", voters=voters, snapshot_retention=SnapshotRetention(0)
            )
            if self.snapshots:
                config = replace(config, fetch_max_bytes=1024)  # a snapshot then takes several fetches
            listener = self.listeners[node_id] = _Listener(node_id)
            state_dir = metadata_log_dir(LOG_DIR)
            driver = RaftDriver(config, runtime, open_metadata_log(runtime, LOG_DIR), state_dir, listener)
            await loop.create_server(lambda: QuorumServer(driver), f"n{node_id}", PORT)
            for checker in (self.checker, self.steps):
                checker.watch(node_id, driver, self.world.hosts[f"n{node_id}"].disk, state_dir)
            self.drivers[node_id] = driver
            await driver.start()
            await self._append_while_leading(driver, listener)

        return main

    async def _append_while_leading(self, driver: RaftDriver, listener: _Listener) -> None:
        waiting: dict[int, bytes] = {}
        while not driver.failure.done():
            await asyncio.sleep(_APPEND_EVERY_S)
            self._snapshot_if_due(driver, listener)
            for offset in [offset for offset in waiting if offset < listener.end_offset]:
                if listener.leader.leader_id == driver.config.node_id:
                    self.acked[waiting[offset]] = None
                del waiting[offset]
            if listener.leader.leader_id != driver.config.node_id:
                waiting.clear()
                continue
            self._appended += 1
            record = f"{self._appended} by n{driver.config.node_id}".encode()
            try:
                waiting[driver.append([record], listener.leader.epoch)] = record
            except NotLeaderError:
                waiting.clear()

    def _snapshot_if_due(self, driver: RaftDriver, listener: _Listener) -> None:
        latest = driver.quorum_state.log.latest_snapshot
        new = listener.end_offset - (0 if latest is None else latest.end_offset)
        if self.snapshots and new >= self.snapshots:
            records = listener.records.copy()
            batches = (records[at : at + 10] for at in range(0, len(records), 10))
            driver.create_snapshot(SnapshotContents(listener.snapshot_id, 0, batches))

    def _after_event(self, process: ProcessLoop) -> None:
        if process.name[0] == "n" and process.name[1:].isdigit():
            self.checker.after_event(int(process.name[1:]))
            self.steps.after_event(int(process.name[1:]))

    # -- the end

    def all_agree(self) -> bool:
        """Whether there is a leader, and every node knows a commit of its epoch."""
        leader = self.drivers.get(self.checker.leader or 0)
        role = leader.quorum_state.role.as_leader() if leader is not None else None
        if role is None:
            return False
        return all(
            node_id in self.drivers
            and self.drivers[node_id].epoch == role.epoch
            and self.listeners[node_id].end_offset > role.epoch_start_offset
            for node_id in self.ids
        )

    def check_end(self) -> None:
        """Every acked record is committed once, and every node was told the same records."""
        committed = [record for batch in self.checker.committed.values() for record in batch.records]
        counts = dict.fromkeys(committed, 0)
        for record in committed:
            counts[record] += 1
        for record in self.acked:
            if counts.get(record, 0) != 1:
                raise InvariantBroken("every acked record is there once", f"{record!r}: {counts.get(record, 0)} times")
        for node_id, listener in self.listeners.items():
            if listener.records != committed[: len(listener.records)]:
                raise InvariantBroken("every node is told the same", f"node {node_id} differs")
