"""The small files of a log directory: offset checkpoints, written while requests go on, and what is removed later."""

from __future__ import annotations

import asyncio
import errno
from uuid import UUID

import pytest
from support.log.compacted_logs import CLUSTER, COMPACT, TP, Writer, plan_of
from support.log.logs import append, make_runtime, read_all

from raftwerk.chaos.sim.kernel.event_loop import ProcessLoop, Scheduler
from raftwerk.log.cleaner.compaction import clean
from raftwerk.log.config import LogConfig
from raftwerk.log.errors import StorageError
from raftwerk.log.manager.delayed_deletion import DelayedDeletion
from raftwerk.log.manager.log_directory import OffsetCheckpoint
from raftwerk.log.manager.log_manager import LogManager
from raftwerk.log.manager.log_manager_config import LogManagerConfig, RetentionConfig
from raftwerk.log.manager.meta_properties import format_dirs
from raftwerk.log.state.checkpoints import CLEAN_SHUTDOWN_FILE, CLEANER_OFFSET_FILE, remove_durably
from raftwerk.runtime.incremental_work import run_at_once
from raftwerk.wire.types import TopicPartition

A = TopicPartition("a", 0)
DAMAGED = b"0\nmany\n"


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


def test_a_damaged_checkpoint_of_the_cleaner_does_not_make_gaps_damage() -> None:
    """Which logs may lack offsets is not known then, so recovery cuts no log at a missing one."""
    runtime, disk = make_runtime()
    format_dirs(runtime, ("/data",), CLUSTER, 1)

    def started() -> LogManager:
        manager = LogManager(runtime, LogManagerConfig(("/data",), CLUSTER, 1, LogConfig()))
        manager.load()
        return manager

    manager = started()
    log = manager.create(TP, UUID(int=7), COMPACT)
    Writer(log, 1).fill(6)
    run_at_once(clean(log, disk, plan_of(log)))
    content, end = read_all(log), log.log_end_offset
    disk.crash(power_loss=False)
    disk.write_atomic(f"/data/{CLEANER_OFFSET_FILE}", DAMAGED)
    again = started().get(TP)
    assert again is not None and (read_all(again), again.log_end_offset) == (content, end)


@pytest.mark.parametrize("seed", range(6))
def test_a_small_file_that_is_removed_durably_does_not_come_back(seed: int) -> None:
    _, disk = make_runtime(seed)
    disk.write_atomic("/data/mark", b"x")
    remove_durably(disk, "/data/mark")
    remove_durably(disk, "/data/mark")
    disk.crash(power_loss=True)
    assert not disk.exists("/data/mark")


def test_paths_are_due_when_their_delay_is_over_and_at_once_without_one() -> None:
    _, disk = make_runtime()
    before = DelayedDeletion(disk)
    before.add(["/data/a"], 0)
    assert before.take_due() == ["/data/a"], "also where no loop runs, and so no time passes"

    async def main() -> None:
        deletion = DelayedDeletion(disk)
        deletion.add(["/data/later"], 2000)
        deletion.add(["/data/soon"], 1000)
        assert deletion.take_due() == []
        await asyncio.sleep(1)
        assert deletion.take_due() == ["/data/soon"]
        await asyncio.sleep(1)
        assert deletion.take_due() == ["/data/later"]
        assert deletion.take_due() == []

    ProcessLoop(Scheduler(), "test").run_until_complete(main())


@pytest.mark.parametrize(("number", "fails"), [(errno.EIO, True), (errno.ENOSPC, False)])
def test_a_disk_that_cannot_note_the_first_gap_of_a_log_refuses_it(
    number: int, fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recovery would cut the log there. A full disk is no broken one."""
    runtime, disk = make_runtime()
    format_dirs(runtime, ("/data",), CLUSTER, 1)
    manager = LogManager(runtime, LogManagerConfig(("/data",), CLUSTER, 1, LogConfig()))
    manager.load()
    log = manager.create(TP, UUID(int=7))

    def refuse(path: str, data: object) -> None:
        raise OSError(number, "refused")

    monkeypatch.setattr(disk, "write_atomic", refuse)
    with pytest.raises(StorageError, match="cannot be written"):
        log.note_gaps(at_once=True)
    assert bool(manager.directories.failures) is fails


def test_a_directory_whose_disk_refuses_at_the_start_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it was left cleanly is not known, so the node does not claim the epoch of its last clean stop."""
    runtime, disk = make_runtime()
    dirs = ("/one", "/two")
    format_dirs(runtime, dirs, CLUSTER, 1)
    manager = LogManager(runtime, LogManagerConfig(dirs, CLUSTER, 1, LogConfig()))
    manager.load()
    for name, path in (("a", "/one"), ("b", "/two")):
        manager.create(TopicPartition(name, 0), UUID(int=7), directory_id=manager.directories.ids[path])
    manager.shutdown(5)
    remove = disk.remove

    def refuse(path: str) -> None:
        if path == f"/two/{CLEAN_SHUTDOWN_FILE}":
            raise OSError(errno.EIO, "refused")
        remove(path)

    with monkeypatch.context() as patched:
        patched.setattr(disk, "remove", refuse)
        again = LogManager(runtime, LogManagerConfig(dirs, CLUSTER, 1, LogConfig()))
        again.load()
    assert list(again.logs) == [A]
    assert (list(again.directories.failures), again.previous_broker_epoch) == (["/two"], -1)


def test_a_start_names_the_logs_that_were_set_aside(caplog: pytest.LogCaptureFixture) -> None:
    """They take space until somebody removes them by hand."""
    runtime, disk = make_runtime()
    format_dirs(runtime, ("/data",), CLUSTER, 1)
    for number in range(11):
        disk.makedirs(f"/data/t-{number}.{number:032x}-stray")
    manager = LogManager(runtime, LogManagerConfig(("/data",), CLUSTER, 1, LogConfig()))
    manager.load()
    assert "/data holds 11 logs that were set aside" in caplog.text
    assert caplog.text.count("-stray") == 10 and "..." in caplog.text


def test_retention_goes_on_after_a_log_whose_disk_refuses(caplog: pytest.LogCaptureFixture) -> None:
    runtime, disk = make_runtime()
    format_dirs(runtime, ("/data",), CLUSTER, 1)
    config = LogConfig(retention_bytes=0, segment_bytes=300)
    retention = RetentionConfig(interval_ms=1000)

    async def main() -> None:
        manager = LogManager(runtime, LogManagerConfig(("/data",), CLUSTER, 1, config, retention=retention))
        manager.load()
        log = manager.create(TP, UUID(int=7))
        for _ in range(9):
            append(log)
        manager.note_high_watermarks({TP: log.log_end_offset})
        closed = manager.create(A, UUID(int=7))
        append(closed)
        closed.close(clean=False)
        disk.fail_dir("/data")
        manager.start()
        await asyncio.sleep(1.5)
        assert len(log.segments) > 1

    ProcessLoop(Scheduler(), "test").run_until_complete(main())
    assert "/data/t-0 cannot start a new segment" in caplog.text
    assert "/data/a-0" not in caplog.text, "nothing is due for a log that is closed"
    assert "retention of" not in caplog.text, "a refusal is expected, and no error of the program"
