"""Moves of logs between directories; after a power cut at any step there is one complete log."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from support.log.logs import SMALL, append, make_runtime, read_all

from raftwerk.chaos.sim.disk.interruption import Interruption, Operation, ProcessEnded
from raftwerk.chaos.sim.disk.sim_disk import SimDisk
from raftwerk.isr.directories.log_dir_moves import copy_batches, truncate_copy
from raftwerk.log.errors import NoSpaceError, StorageError
from raftwerk.log.manager.log_manager import LogManager
from raftwerk.log.manager.log_manager_config import LogManagerConfig
from raftwerk.log.manager.meta_properties import format_dirs
from raftwerk.log.partition_log import PartitionLog
from raftwerk.log.state.checkpoints import CLEAN_SHUTDOWN_FILE
from raftwerk.runtime.ports import Runtime
from raftwerk.wire.errors import ErrorCode, ProtocolError
from raftwerk.wire.types import TopicPartition

T = TopicPartition("t", 0)
TOPIC_ID = UUID(int=77)
CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
DIRS = ("/one", "/two")
COUNT = 40


def started(runtime: Runtime) -> LogManager:
    manager = LogManager(runtime, LogManagerConfig(DIRS, CLUSTER, 1, SMALL))
    manager.load()
    return manager


def with_a_log() -> tuple[Runtime, SimDisk, LogManager, PartitionLog]:
    runtime, disk = make_runtime()
    format_dirs(runtime, DIRS, CLUSTER, 1)
    manager = started(runtime)
    log = manager.create(T, TOPIC_ID, directory_id=manager.directories.ids["/one"])
    for number in range(COUNT):
        append(log, value=f"value {number}".encode(), epoch=number // 10)
    return runtime, disk, manager, log


def copy_all(log: PartitionLog, copy: PartitionLog) -> None:
    truncate_copy(log, copy)
    while copy_batches(log, copy):
        pass


def whole_copy(manager: LogManager, log: PartitionLog) -> PartitionLog:
    """A future log in the other directory, with all that the log has."""
    assert manager.future_logs.begin(T, "/two")
    copy = manager.future_logs.get(T)
    assert copy is not None
    copy_all(log, copy)
    return copy


def test_a_log_is_made_in_the_directory_that_was_asked_for() -> None:
    runtime, disk, manager, log = with_a_log()
    before = read_all(log)
    whole_copy(manager, log)
    (name,) = [name for name in disk.listdir("/two") if name.endswith("-future")]
    assert name.startswith("t-0.")
    moved = manager.future_logs.finish(T)
    assert (moved.directory, moved.topic_id, manager.get(T)) == ("/two/t-0", TOPIC_ID, moved)
    assert (read_all(moved), moved.epoch_cache.entries) == (before, log.epoch_cache.entries)
    assert manager.directories.id_of(T) == manager.directories.ids["/two"]
    append(moved, epoch=9)
    assert [name for name in disk.listdir("/one") if "t-0" in name and not name.endswith("-delete")] == []
    assert [name for name in disk.listdir("/two") if "t-0" in name] == ["t-0"]
    manager.shutdown(3)
    again = started(runtime).get(T)
    assert again is not None
    assert again.log_end_offset == COUNT + 1


def test_the_future_log_is_truncated_like_the_log() -> None:
    _, _, manager, log = with_a_log()
    manager.future_logs.begin(T, "/two")
    copy = manager.future_logs.get(T)
    assert copy is not None
    copy_all(log, copy)
    log.truncate_to(25)
    for number in range(10):
        append(log, value=f"other {number}".encode(), epoch=7)
    copy_all(log, copy)
    assert (read_all(copy), copy.epoch_cache.entries) == (read_all(log), log.epoch_cache.entries)
    log.truncate_fully_and_start_at(100)
    copy_all(log, copy)
    assert (copy.log_start_offset, copy.log_end_offset) == (100, 100)


def test_moves_that_are_refused() -> None:
    _, _, manager, _ = with_a_log()
    with pytest.raises(ProtocolError) as refused:
        manager.future_logs.begin(T, "/three")
    assert refused.value.code is ErrorCode.LOG_DIR_NOT_FOUND
    long = TopicPartition("x" * 240, 0)
    manager.create(long, UUID(int=78), directory_id=manager.directories.ids["/one"])
    with pytest.raises(ProtocolError) as refused:
        manager.future_logs.begin(long, "/two")
    assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert not manager.future_logs.begin(T, "/one")  # it is there
    assert not manager.future_logs.begin(TopicPartition("later", 0), "/two")
    later = manager.create(TopicPartition("later", 0), UUID(int=79))
    assert later.directory == "/two/later-0"


def test_another_target_removes_the_future_log() -> None:
    _, disk, manager, log = with_a_log()
    assert manager.future_logs.begin(T, "/two")
    assert manager.future_logs.begin(T, "/two/")
    assert not manager.future_logs.begin(T, "/one")
    assert manager.future_logs.get(T) is None
    assert [name for name in disk.listdir("/two") if name.endswith("-future")] == []
    assert read_all(log)


def future_names(disk: SimDisk) -> list[str]:
    return [name for path in DIRS for name in disk.listdir(path) if name.endswith("-future")]


def test_a_copy_goes_with_the_log_that_is_set_aside() -> None:
    """It must not take the place of the log of the later topic of that name."""
    _, disk, manager, _ = with_a_log()
    manager.future_logs.begin(T, "/two")
    manager.set_aside(T, "has another topic id")
    assert manager.future_logs.get(T) is None and not future_names(disk)


@pytest.mark.parametrize("copied_id", [TOPIC_ID, None])
def test_a_copy_of_another_topic_is_removed_at_the_start(copied_id: UUID | None) -> None:
    runtime, disk, manager, log = with_a_log()
    manager.future_logs.begin(T, "/two")
    copy = manager.future_logs.get(T)
    assert copy is not None
    copy_all(log, copy)
    if copied_id is None:
        disk.remove(f"{copy.directory}/partition.metadata")
    manager.shutdown(3)
    again = started(runtime)
    again.set_strays_aside(lambda _: TOPIC_ID)
    assert len(future_names(disk)) == (0 if copied_id is None else 1)
    again.set_strays_aside(lambda _: UUID(int=78))
    assert again.future_logs.get(T) is None and not future_names(disk)


def test_a_log_that_is_made_has_no_copy() -> None:
    """The original is gone, as its disk was replaced by an empty one; its copy must not wait for the new log."""
    runtime, disk, manager, log = with_a_log()
    manager.future_logs.begin(T, "/two")
    manager.shutdown(3)
    disk.remove_tree(log.directory)
    again = started(runtime)
    again.create(T, UUID(int=78))
    assert again.future_logs.get(T) is None and not future_names(disk)


def test_a_move_does_not_go_on_with_a_copy_of_another_topic() -> None:
    _, disk, manager, log = with_a_log()
    manager.future_logs.begin(T, "/two")
    former = future_names(disk)
    log.set_topic_id(UUID(int=78))
    assert manager.future_logs.begin(T, "/two")
    copy = manager.future_logs.get(T)
    assert copy is not None and (copy.topic_id, copy.log_end_offset) == (UUID(int=78), 0)
    assert len(future_names(disk)) == 1 and future_names(disk) != former


class _PowerLossError(Exception):
    """A power cut before an operation of the disk."""


def changes_of(disk: SimDisk, fail_at: int) -> Iterator[int]:
    """Every operation that changes the disk fails from the `fail_at`th on."""
    count = iter(range(1_000_000))

    def counted(name: str) -> Any:
        original = getattr(SimDisk, name)

        def call(*arguments: Any, **named: Any) -> Any:
            if next(count) >= fail_at:
                raise _PowerLossError(name)
            return original(disk, *arguments, **named)

        return call

    for name in ("rename", "remove", "remove_tree", "write_atomic", "fsync_dir", "makedirs", "open"):
        setattr(disk, name, counted(name))
    return count


@pytest.mark.parametrize("power_loss", [True, False])
def test_power_cuts_at_any_step_of_a_move_lose_nothing(power_loss: bool) -> None:
    for fail_at in range(200):
        runtime, disk, manager, log = with_a_log()
        log.flush()
        before = read_all(log)
        disk_type: Any = type(disk)
        counter = changes_of(disk, fail_at)
        try:
            manager.future_logs.begin(T, "/two")
            copy = manager.future_logs.get(T)
            assert copy is not None
            copy_all(log, copy)
            manager.future_logs.finish(T)
            done = True
        except _PowerLossError:
            done = False
        for name in ("rename", "remove", "remove_tree", "write_atomic", "fsync_dir", "makedirs", "open"):
            delattr(disk, name)
        assert isinstance(disk, disk_type)
        disk.crash(power_loss=power_loss)
        again = started(runtime)
        found = again.get(T)
        assert found is not None, f"step {fail_at}"
        assert read_all(found) == before, f"step {fail_at}"
        assert found.topic_id == TOPIC_ID
        assert not [name for path in DIRS for name in disk.listdir(path) if name.endswith(".swap")], f"step {fail_at}"
        if done:
            assert next(counter) > 10
            assert found.directory == "/two/t-0"
            return
    raise AssertionError("the move ends some day")


def test_a_move_continues_after_a_restart() -> None:
    runtime, _, manager, log = with_a_log()
    manager.future_logs.begin(T, "/two")
    copy = manager.future_logs.get(T)
    assert copy is not None
    copy_batches(log, copy)
    manager.shutdown(3)
    again = started(runtime)
    assert again.future_logs.partitions == [T]
    current, copy = again.get(T), again.future_logs.get(T)
    assert current is not None and copy is not None
    copy_all(current, copy)
    assert again.future_logs.finish(T).log_end_offset == COUNT


def test_a_copy_that_is_not_closed_cleanly_is_checked_at_the_next_start(monkeypatch: pytest.MonkeyPatch) -> None:
    _, disk, manager, log = with_a_log()
    copy = whole_copy(manager, log)

    def refuse(*, clean: bool = True) -> None:
        raise NoSpaceError("there is no space for the indexes")

    monkeypatch.setattr(copy, "close", refuse)
    manager.shutdown(3)
    assert [disk.exists(f"{path}/{CLEAN_SHUTDOWN_FILE}") for path in DIRS] == [True, False]


def test_a_target_that_refuses_the_new_name_fails_and_a_restart_finds_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """The original is void already, so the copy is all that there is."""
    runtime, disk, manager, log = with_a_log()
    end, content = log.log_end_offset, read_all(log)
    copy = whole_copy(manager, log)
    target, rename = copy.directory.rpartition("/")[0], disk.rename

    def refuse(source: str, name: str) -> None:
        if source == copy.directory:
            raise OSError(errno.EIO, "the disk has failed")
        rename(source, name)

    with monkeypatch.context() as patched:
        patched.setattr(disk, "rename", refuse)
        with pytest.raises(StorageError, match="could not be finished"):
            manager.future_logs.finish(T)
    assert list(manager.directories.failures) == [target]
    disk.crash(power_loss=True)
    found = started(runtime).get(T)
    assert found is not None and found.directory == f"{target}/{T}"
    assert (found.log_end_offset, read_all(found)) == (end, content)


def test_a_failed_target_leaves_the_log_where_it_is() -> None:
    _, disk, manager, log = with_a_log()
    manager.future_logs.begin(T, "/two")
    copy = manager.future_logs.get(T)
    assert copy is not None
    copy_all(log, copy)
    disk.fail_dir("/two")
    with pytest.raises(StorageError):
        manager.future_logs.finish(T)
    assert manager.get(T) is log
    assert not log.is_failed and log.log_end_offset == COUNT
    with pytest.raises(StorageError):
        manager.future_logs.begin(T, "/two")


@pytest.mark.parametrize("power_loss", [False, True])
@pytest.mark.parametrize("has_space", [True, False])
@pytest.mark.parametrize("operations", range(1, 12))
def test_a_copy_whose_removal_was_interrupted_does_not_take_the_logs_place(
    operations: int, has_space: bool, power_loss: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The move is taken back, and the process ends, or the power goes, at one of the operations that this takes."""
    runtime, disk, manager, log = with_a_log()
    before = read_all(log)
    whole_copy(manager, log).flush()
    log.flush()

    def no_space(_source: str, target: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", target)

    def end_process() -> None:
        """It ends by the exception."""

    with monkeypatch.context() as patched, contextlib.suppress(ProcessEnded):
        if not has_space:
            patched.setattr(disk, "rename", no_space)
        disk.interruption = Interruption(operations, Operation.NAMES, end_process)
        manager.future_logs.begin(T, "/one")
        for path in manager.deletion.take_due():
            disk.remove_tree(path)
    disk.interruption = None
    disk.crash(power_loss=power_loss)
    again = started(runtime)
    again.future_logs.discard_strays(lambda _: TOPIC_ID)
    found = again.get(T)
    assert found is not None
    left = again.future_logs.get(T)
    if left is not None:
        copy_all(found, left)
        found = again.future_logs.finish(T)
    assert read_all(found) == before
