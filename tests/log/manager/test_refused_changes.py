"""What a full disk, or a process that can open no more files, refuses: the log is as it was, and goes on later."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from support.log.compacted_logs import CLUSTER, COMPACT, TP, Writer, carry_out, plan_of, records_of
from support.log.logs import NOW_MS, SMALL, append, batch, make_runtime, open_log, read_all

from raftwerk.chaos.sim.disk.sim_disk import SimDisk
from raftwerk.chaos.sim.kernel.event_loop import ProcessLoop, Scheduler
from raftwerk.log.cleaner.compaction import clean
from raftwerk.log.config import LogConfig
from raftwerk.log.errors import NoSpaceError, StorageError
from raftwerk.log.manager.log_directory import OffsetCheckpoint
from raftwerk.log.manager.log_manager import LogManager
from raftwerk.log.manager.log_manager_config import LogManagerConfig
from raftwerk.log.manager.meta_properties import format_dirs
from raftwerk.log.partition_log import PartitionLog
from raftwerk.runtime.ports import Runtime

KEPT = replace(SMALL, retention_ms=-1)
TOPIC_ID = UUID(int=7)


def run(main: Coroutine[Any, Any, None]) -> None:
    ProcessLoop(Scheduler(), "test").run_until_complete(main, 100.0)


def manager_on(runtime: Runtime, *dirs: str, config: LogConfig = SMALL) -> LogManager:
    manager = LogManager(runtime, LogManagerConfig(dirs, CLUSTER, 1, config))
    manager.load()
    return manager


def one_log(config: LogConfig = SMALL) -> tuple[Runtime, SimDisk, LogManager, PartitionLog]:
    runtime, disk = make_runtime()
    format_dirs(runtime, ["/data"], CLUSTER, 1)
    manager = manager_on(runtime, "/data", config=config)
    return runtime, disk, manager, manager.create(TP, TOPIC_ID)


def refuse_files(*_: object, **__: object) -> Any:
    raise OSError(errno.EMFILE, "too many open files")


# Truncation


@pytest.mark.parametrize(
    "truncate",
    [lambda log: log.truncate_to(10), lambda log: log.truncate_fully_and_start_at(10)],
    ids=["cut", "emptied"],
)
def test_a_truncation_whose_checkpoints_have_no_space_changes_nothing(
    truncate: Callable[[PartitionLog], None],
) -> None:
    _, disk, manager, log = one_log()
    for number in range(20):
        append(log, epoch=number // 10)
    log.flush()
    manager.note_high_watermarks({TP: 15})
    manager.checkpoint_recovery_points()
    manager.write_high_watermarks()
    content, epochs = read_all(log), log.epoch_cache.entries
    disk.fill(0)
    with pytest.raises(NoSpaceError):
        truncate(log)
    assert not manager.directories.failures and log.recovery_point == 20
    assert read_all(log) == content and log.epoch_cache.entries == epochs
    disk.set_capacity()
    truncate(log)
    assert log.log_end_offset == 10


def test_a_truncation_that_can_open_no_file_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    _, disk, manager, log = one_log()
    while len(log.segments) < 3:
        append(log, 3)
    log.flush()
    content = read_all(log)
    log.durability.close_idle_files()
    with monkeypatch.context() as patched, pytest.raises(NoSpaceError):
        patched.setattr(disk, "open", refuse_files)
        log.truncate_to(1)
    assert not manager.directories.failures and read_all(log) == content
    log.truncate_to(1)
    assert log.log_end_offset == 0


def test_a_log_that_begins_anew_keeps_its_topic_and_has_no_epoch_of_its_former_records() -> None:
    """The recovery point does not pass an offset before the small files are durable."""
    runtime, disk, manager, log = one_log()
    for epoch in (1, 3):
        append(log, 5, epoch=epoch)
    log.flush()
    log.truncate_fully_and_start_at(1000)
    manager.checkpoint_recovery_points()
    log.append_as_follower(_at(1000, 2), may_skip=True)
    disk.crash(power_loss=True)
    again = manager_on(runtime, "/data").get(TP)
    assert again is not None and again.topic_id == TOPIC_ID and again.log_start_offset == 1000
    assert again.epoch_cache.latest_epoch() in (None, 2)


def test_a_new_log_that_begins_at_its_leaders_start_keeps_its_topic() -> None:
    runtime, disk, manager, log = one_log()
    log.truncate_fully_and_start_at(1000)
    manager.checkpoint_recovery_points()
    disk.crash(power_loss=True)
    again = manager_on(runtime, "/data").get(TP)
    assert again is not None and again.topic_id == TOPIC_ID and again.log_end_offset == 1000


def test_the_recovery_point_waits_for_space_when_a_log_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    _, disk, manager, log = one_log()
    append(log, 5, epoch=1)
    with monkeypatch.context() as patched:
        patched.setattr(disk, "write_atomic", refuse_files)
        log.truncate_fully_and_start_at(1000)
        assert (log.log_start_offset, log.recovery_point) == (1000, 0) and not manager.directories.failures
    log.flush()
    assert log.recovery_point == 1000


def _at(offset: int, epoch: int) -> memoryview:
    data = memoryview(bytearray(batch(1)))
    data[:8] = offset.to_bytes(8, "big")
    data[12:16] = epoch.to_bytes(4, "big")
    return data


# Flushes


def test_records_are_fsynced_by_flush_messages_when_the_file_of_a_new_epoch_has_no_space() -> None:
    runtime, disk, manager, log = one_log(replace(SMALL, flush_messages=1))
    append(log, epoch=0)
    disk.fill(len(batch(1)))
    append(log, epoch=1)
    assert not manager.directories.failures and log.recovery_point == 1
    content = read_all(log)
    disk.crash(power_loss=True)
    disk.set_capacity()
    again = manager_on(runtime, "/data").get(TP)
    assert again is not None and read_all(again) == content
    assert [entry.epoch for entry in again.epoch_cache.entries] == [0, 1]


def test_nothing_is_appended_by_flush_messages_while_the_topic_id_has_no_space() -> None:
    _, disk, manager, log = one_log(replace(SMALL, flush_messages=1))
    disk.fill(len(batch(1)) // 2)
    with pytest.raises(NoSpaceError):
        append(log)
    assert not manager.directories.failures and log.log_end_offset == 0
    disk.set_capacity()
    append(log)
    assert log.recovery_point == 1


def test_nothing_is_appended_by_flush_messages_while_a_small_file_cannot_be_opened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else the client would be told that its records were refused, and they would be in the log."""
    _, disk, manager, log = one_log(replace(SMALL, flush_messages=1))
    with monkeypatch.context() as patched, pytest.raises(NoSpaceError):
        patched.setattr(disk, "write_atomic", refuse_files)
        append(log)
    assert not manager.directories.failures and log.log_end_offset == 0
    append(log)
    assert log.recovery_point == 1


def test_a_disk_that_fails_before_an_append_with_flush_messages_fails_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """After an error of a write nobody knows what is on the disk."""
    _, disk, _, log = one_log(replace(SMALL, flush_messages=1))

    def fail(path: str, data: object) -> None:
        raise OSError(errno.EIO, "the disk has failed")

    monkeypatch.setattr(disk, "write_atomic", fail)
    with pytest.raises(StorageError):
        append(log)
    assert log.is_failed and log.log_end_offset == 0


def test_a_flush_that_can_open_no_file_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    _, disk, manager, log = one_log()
    append(log, 3)
    with monkeypatch.context() as patched, pytest.raises(NoSpaceError):
        patched.setattr(disk, "fsync_dir", refuse_files)
        log.flush()
    assert not manager.directories.failures and log.recovery_point == 0
    log.flush()
    assert log.recovery_point == 3


# Names


def names(disk: SimDisk, log: PartitionLog, suffix: str) -> list[str]:
    return [name for name in disk.listdir(log.directory) if name.endswith(suffix)]


def test_files_of_expired_segments_are_renamed_when_files_can_be_opened_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        runtime, disk = make_runtime()
        log = open_log(runtime, KEPT)
        while len(log.segments) < 4:
            append(log, 3)
        log.flush()
        log.raise_start(log.segments[2].base_offset)
        with monkeypatch.context() as patched:
            patched.setattr(disk, "_fsync_dir", refuse_files)
            assert log.delete_expired(NOW_MS, log.log_end_offset) == 2
            await asyncio.sleep(1)
            assert log.is_changing_names and not log.is_failed and len(names(disk, log, ".log")) == 2
            patched.setattr(disk, "fsync_dir", refuse_files)
            with pytest.raises(NoSpaceError):
                log.truncate_to(log.log_start_offset)
            assert append(log) == log.log_end_offset - 1
        await asyncio.sleep(30)
        assert not log.is_changing_names and not log.is_failed
        assert len(names(disk, log, ".log")) == 2 and not names(disk, log, ".deleted")
        log.truncate_to(log.log_start_offset)

    run(main())


@pytest.mark.parametrize("stage", [0, 1, 2])
def test_a_compacted_segment_is_put_in_place_when_files_can_be_opened_again(
    stage: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        runtime, disk = make_runtime()
        log = open_log(runtime, replace(COMPACT, segment_bytes=1 << 20))
        writer = Writer(log, 5)
        while log.size_bytes < 5000:
            writer.write(False)
        log.roll()
        log.flush()
        end, fsync_dir, left = log.log_end_offset, disk._fsync_dir, stage

        def refuse(path: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                refuse_files()
            fsync_dir(path)

        work = clean(log, disk, plan_of(log))
        with monkeypatch.context() as patched:
            while (step := next(work)).change is None:
                carry_out(step)
            patched.setattr(disk, "_fsync_dir", refuse)
            with pytest.raises(NoSpaceError):
                await step.change.soon()
            assert log.is_changing_names and not log.is_failed
        work.close()
        await asyncio.sleep(30)
        assert not log.is_changing_names and not log.is_failed
        assert not [name for kind in (".cleaned", ".swap", ".deleted") for name in names(disk, log, kind)]
        assert records_of(log) == writer.expected(end, tombstones=True)
        log.close()
        again = open_log(runtime, COMPACT, clean_shutdown=True)
        assert records_of(again) == writer.expected(end, tombstones=True)

    run(main())


def test_the_names_in_the_directory_of_a_closed_log_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another log may be in it by then."""

    async def main() -> None:
        runtime, disk = make_runtime()
        log = open_log(runtime, KEPT)
        while len(log.segments) < 3:
            append(log, 3)
        log.flush()
        log.raise_start(log.segments[1].base_offset)
        with monkeypatch.context() as patched:
            for operation in ("_rename", "rename"):
                patched.setattr(disk, operation, refuse_files)
            log.delete_expired(NOW_MS, log.log_end_offset)
            await asyncio.sleep(1)
            log.close(clean=False)
        await asyncio.sleep(30)
        assert len(names(disk, log, ".log")) == 3 and not names(disk, log, ".deleted")

    run(main())


# Checkpoints


def test_a_checkpoint_that_has_no_space_does_not_forget_the_one_that_is_being_written() -> None:
    async def main() -> None:
        _, disk = make_runtime()
        disk.set_sync_latency(0.1, 0.1)
        checkpoint = OffsetCheckpoint(disk, "/data/offsets")
        checkpoint.write_soon({TP: 5}, lambda error: None)
        disk.fill(0)
        with pytest.raises(OSError, match="space"):
            checkpoint.write({TP: 3})
        disk.set_capacity()
        await asyncio.sleep(1)
        assert OffsetCheckpoint(disk, "/data/offsets").offsets == {TP: 5} == checkpoint.offsets
        checkpoint.lower(TP, 3)
        assert OffsetCheckpoint(disk, "/data/offsets").offsets == {TP: 3}

    run(main())


def test_a_cut_of_a_copy_in_another_directory_does_not_lower_the_high_watermark_of_the_log() -> None:
    runtime, _ = make_runtime()
    dirs = ("/one", "/two")
    format_dirs(runtime, dirs, CLUSTER, 1)
    manager = manager_on(runtime, *dirs)
    log = manager.create(TP, TOPIC_ID, directory_id=manager.directories.ids["/one"])
    append(log, 5)
    manager.note_high_watermarks({TP: 5})
    manager.future_logs.begin(TP, "/two")
    copy = manager.future_logs.get(TP)
    assert copy is not None
    copy.append_as_follower(memoryview(bytearray(read_all(log))))
    copy.truncate_to(2)
    assert copy.log_end_offset == 0 and manager.directories.high_watermarks == {TP: 5}
