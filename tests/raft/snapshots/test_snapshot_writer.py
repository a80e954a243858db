"""How a snapshot is written: step by step, and whole or not at all."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

import pytest
from support.raft.noting_disk import NotingDisk

from raftwerk.chaos.sim.disk.sim_disk import SimDisk
from raftwerk.chaos.sim.kernel.event_loop import ProcessLoop, Scheduler
from raftwerk.raft.snapshots.snapshot_store import SnapshotStore, snapshot_batches, snapshot_name
from raftwerk.raft.snapshots.snapshot_writer import SnapshotContents, write_snapshot
from raftwerk.raft.voters.voter_set import KRaftVersion
from raftwerk.wire.types import SnapshotId

SNAPSHOT = SnapshotId(9, 2)


def new_store(seed: int = 0) -> SnapshotStore:
    disk = SimDisk(random.Random(seed))
    disk.makedirs("/data")
    disk.fsync_dir("/")
    disk.fsync_dir("/data")
    return SnapshotStore(disk, "/data")


def test_other_work_of_the_loop_goes_on_between_two_batches() -> None:
    async def run() -> None:
        store, turns = new_store(), 0
        loop = asyncio.get_running_loop()

        def count() -> None:
            nonlocal turns
            turns += 1

        def batches() -> Iterator[list[bytes]]:
            for number in range(5):
                assert turns == number, "what was to be done after the batch before has been done"
                loop.call_soon(count)
                yield [b"%d" % number]

        await write_snapshot(store, SnapshotContents(SNAPSHOT, 5, batches(), (KRaftVersion(1),)))
        assert store.ids == [], "it is published afterwards"
        store.publish(SNAPSHOT)
        read = SnapshotStore(store.disk, "/data")
        assert list(snapshot_batches(read.disk.read_bytes(read.path(SNAPSHOT)))) == [[b"%d" % n] for n in range(5)]
        assert read.controls(SNAPSHOT) == [KRaftVersion(1)]

    ProcessLoop(Scheduler(), "test").run_until_complete(run())


@pytest.mark.parametrize("seed", range(8))
def test_a_snapshot_and_its_name_survive_a_loss_of_power(seed: int) -> None:
    async def run() -> None:
        store = new_store(seed)
        await write_snapshot(store, SnapshotContents(SNAPSHOT, 5, iter([[b"a"]])))
        store.publish(SNAPSHOT)
        before = store.disk.read_bytes(store.path(SNAPSHOT))
        assert isinstance(store.disk, SimDisk)
        store.disk.crash(power_loss=True)
        assert SnapshotStore(store.disk, "/data").disk.read_bytes(store.path(SNAPSHOT)) == before

    ProcessLoop(Scheduler(), "test").run_until_complete(run())


def test_a_snapshot_that_is_begun_again_is_empty() -> None:
    store = new_store()
    for _ in range(2):
        file = store.begin(SNAPSHOT)
        assert file.size() == 0
        file.append([b"begun"])


def assert_closed(disk: NotingDisk) -> None:
    for file in disk.files:
        with pytest.raises(OSError, match="file is closed"):
            file.size()


@pytest.mark.parametrize("position", [0, 1, 99])
def test_the_file_of_a_snapshot_is_closed_when_a_part_is_read(position: int) -> None:
    disk = NotingDisk()
    disk.write_atomic(f"/data/{snapshot_name(SNAPSHOT)}", b"abc")
    assert SnapshotStore(disk, "/data").read(SNAPSHOT, position, 1) == (3, b"abc"[position : position + 1])
    assert len(disk.files) == 1
    assert_closed(disk)


def test_the_file_of_a_snapshot_is_closed_when_it_is_written() -> None:
    async def run() -> None:
        disk = NotingDisk()
        await write_snapshot(SnapshotStore(disk, "/data"), SnapshotContents(SNAPSHOT, 5, iter([[b"a"]])))
        assert len(disk.files) == 1
        assert_closed(disk)

    ProcessLoop(Scheduler(), "test").run_until_complete(run())


def test_nothing_is_left_of_a_snapshot_that_could_not_be_written() -> None:
    def broken() -> Iterator[list[bytes]]:
        yield [b"a"]
        raise OSError("the state is gone")

    async def run() -> None:
        store = new_store()
        with pytest.raises(OSError, match="the state is gone"):
            await write_snapshot(store, SnapshotContents(SNAPSHOT, 5, broken()))
        assert store.disk.listdir("/data") == []

    ProcessLoop(Scheduler(), "test").run_until_complete(run())
