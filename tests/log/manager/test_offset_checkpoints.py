"""The offset checkpoints of a log directory, written while requests go on."""

from __future__ import annotations

import asyncio

import pytest
from support.log.logs import make_runtime

from raftwerk.chaos.sim.kernel.event_loop import ProcessLoop, Scheduler
from raftwerk.log.manager.log_directory import OffsetCheckpoint
from raftwerk.wire.types import TopicPartition

A = TopicPartition("a", 0)


def test_a_checkpoint_under_way_does_not_undo_a_later_one() -> None:
    path = "/data/recovery-point-offset-checkpoint"

    async def main() -> None:
        _, disk = make_runtime()
        disk.set_sync_latency(0.01, 0.02)
        checkpoint = OffsetCheckpoint(disk, path)
        failures: list[OSError] = []
        checkpoint.write_soon({A: 7}, failures.append)
        assert checkpoint.offsets == {}, "it is not durable yet"
        checkpoint.lower(A, 3)
        assert disk.read_bytes(path) == b"0\n1\na 0 3\n"
        await asyncio.sleep(0.05)
        assert disk.read_bytes(path) == b"0\n1\na 0 3\n"
        checkpoint.write_soon({A: 8}, failures.append)
        checkpoint.write_soon({A: 9}, failures.append)
        await asyncio.sleep(0.05)
        assert checkpoint.offsets == {A: 8}, "one at a time; the next call makes up for it"
        checkpoint.write_soon({A: 9}, failures.append)
        checkpoint.forget_all_but((), A)
        await asyncio.sleep(0.05)
        assert disk.read_bytes(path) == b"0\n0\n"
        disk.fail_fsync("/data")
        checkpoint.write_soon({A: 1}, failures.append)
        await asyncio.sleep(0.05)
        assert checkpoint.offsets == {}
        assert len(failures) == 1

    ProcessLoop(Scheduler(), "test").run_until_complete(main())


@pytest.mark.parametrize("before", [{}, {A: 7}])
def test_an_entry_that_is_just_being_written_or_dropped_is_forgotten_durably(
    before: dict[TopicPartition, int],
) -> None:
    """Else a later topic of that name would find the offset of a former one after a crash."""

    async def main() -> None:
        _, disk = make_runtime()
        disk.set_sync_latency(0.01, 0.02)
        checkpoint = OffsetCheckpoint(disk, "/data/replication-offset-checkpoint")
        checkpoint.write(before)
        checkpoint.write_soon({} if before else {A: 7}, lambda _: None)
        checkpoint.forget_all_but((), A)
        disk.crash(power_loss=True)
        assert OffsetCheckpoint(disk, "/data/replication-offset-checkpoint").offsets == {}
        await asyncio.sleep(0.05)
        assert checkpoint.offsets == {}

    ProcessLoop(Scheduler(), "test").run_until_complete(main())
