"""What of the metadata log counts as durable after an fsync, and that one fsync runs at a time."""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from raftwerk.chaos.sim.disk.sim_disk import SimDisk
from raftwerk.raft.driver.raft_driver import open_metadata_log
from raftwerk.raft.replication.partition_raft_log import PartitionRaftLog
from raftwerk.raft.snapshots.snapshot_store import encode_snapshot
from raftwerk.runtime.ports import File, Runtime
from raftwerk.wire.types import SnapshotId


class FixedClock:
    def wall_ms(self) -> int:
        return 1_700_000_000_000


class SlowDisk(SimDisk):
    """An fsync that does not block ends when the test says so."""

    def __init__(self) -> None:
        super().__init__(random.Random(0))
        self.waiting: list[Callable[[OSError | None], None]] = []

    def fsync_soon(self, file: File) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def end(error: OSError | None) -> None:
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

        self.waiting.append(end)
        return future

    async def end_all(self, error: OSError | None = None) -> None:
        """End the fsyncs that run, and let the loop tell of it."""
        waiting, self.waiting = self.waiting, []
        for end in waiting:
            end(error)
        for _ in range(5):
            await asyncio.sleep(0)


class Flushes:
    """A log on a slow disk, and what its flushes told."""

    def __init__(self) -> None:
        self.disk = SlowDisk()
        self.disk.makedirs("/data")
        runtime = Runtime(disk=self.disk, clock=FixedClock(), rng=random.Random(0))
        self.log = PartitionRaftLog(open_metadata_log(runtime, "/data"), runtime)
        self.told: list[BaseException | None] = []

    def flush(self) -> None:
        self.log.flush_if_behind(self.told.append)


def run(test: Callable[[Flushes], Coroutine[Any, Any, None]]) -> None:
    async def with_log() -> None:
        await test(Flushes())

    asyncio.run(with_log())


def test_one_fsync_runs_at_a_time_and_covers_what_was_there_when_it_began() -> None:
    async def test(flushes: Flushes) -> None:
        log, disk = flushes.log, flushes.disk
        log.append_records([b"a", b"b"], 1)
        flushes.flush()
        assert disk.waiting
        running = len(disk.waiting)
        log.append_records([b"c"], 1)
        flushes.flush()
        assert len(disk.waiting) == running, "the second one waits for another call"
        assert (log.durable_offset, flushes.told) == (0, [])
        await disk.end_all()
        assert (log.durable_offset, flushes.told) == (2, [None])
        flushes.flush()
        await disk.end_all()
        assert (log.durable_offset, flushes.told) == (3, [None, None])

    run(test)


def test_what_is_durable_is_not_synced_again() -> None:
    async def test(flushes: Flushes) -> None:
        flushes.flush()
        assert flushes.disk.waiting == []
        flushes.log.append_records([b"a"], 1)
        flushes.flush()
        await flushes.disk.end_all()
        flushes.flush()
        assert flushes.disk.waiting == []
        assert flushes.told == [None]

    run(test)


def cut(log: PartitionRaftLog) -> None:
    log.truncate_to(2)
    log.append_records([b"other"], 2)


def install(log: PartitionRaftLog) -> None:
    snapshot = SnapshotId(2, 2)
    log.receive_snapshot(snapshot, 0, b"".join(encode_snapshot(snapshot, 5, iter([[b"a"]]))))
    assert log.install_snapshot(snapshot)
    log.append_records([b"other"], 2)


def cut_and_install(log: PartitionRaftLog) -> None:
    cut(log)
    install(log)


@pytest.mark.parametrize("replace", [cut, install, cut_and_install])
def test_an_fsync_that_began_before_the_log_was_cut_says_nothing_of_what_came_after_it(
    replace: Callable[[PartitionRaftLog], None],
) -> None:
    async def test(flushes: Flushes) -> None:
        log = flushes.log
        log.append_records([b"a", b"b"], 1)
        flushes.flush()
        await flushes.disk.end_all()
        log.append_records([b"c", b"d"], 1)
        flushes.flush()
        replace(log)
        await flushes.disk.end_all()
        assert (log.end_offset, log.durable_offset) == (3, 2)
        assert flushes.told == [None, None], "the caller hears of the end, so that it begins another one"
        flushes.flush()
        await flushes.disk.end_all()
        assert log.durable_offset == 3

    run(test)


def test_what_is_cut_off_is_durable_no_more() -> None:
    async def test(flushes: Flushes) -> None:
        log = flushes.log
        log.append_records([b"a"], 1)
        log.append_records([b"b"], 1)
        flushes.flush()
        await flushes.disk.end_all()
        log.truncate_to(2)
        assert log.durable_offset == 2, "nothing was cut"
        log.truncate_to(1)
        assert log.durable_offset == 1

    run(test)


def test_a_failed_fsync_is_told_and_makes_nothing_durable() -> None:
    async def test(flushes: Flushes) -> None:
        flushes.log.append_records([b"a"], 1)
        flushes.flush()
        await flushes.disk.end_all(OSError(errno.EIO, "the disk is broken"))
        (error,) = flushes.told
        assert "the disk is broken" in str(error)
        assert flushes.log.durable_offset == 0

    run(test)
