"""The mark of a finished move stays while the disk of the original is broken, and takes away the original alone."""

from __future__ import annotations

from uuid import UUID

import pytest
from support.log.logs import SMALL, append, make_runtime, read_all

from raftwerk.chaos.sim.disk.sim_disk import SimDisk
from raftwerk.isr.directories.log_dir_moves import copy_batches, truncate_copy
from raftwerk.log.errors import CorruptFileError
from raftwerk.log.manager.log_manager import LogManager
from raftwerk.log.manager.log_manager_config import LogManagerConfig
from raftwerk.log.manager.meta_properties import format_dirs
from raftwerk.log.partition_log import PartitionLog
from raftwerk.runtime.ports import Runtime
from raftwerk.wire.types import TopicPartition

T, TOPIC_ID, LATER_ID = TopicPartition("t", 0), UUID(int=77), UUID(int=78)
CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
DIRS = ("/one", "/two", "/three")
BAD_END = b'{"sourceDirectoryId":"AAAAAAAAAAAAAAAAAAAAAQ","sourceEnd":[0]}'


def started(runtime: Runtime) -> LogManager:
    manager = LogManager(runtime, LogManagerConfig(DIRS, CLUSTER, 1, SMALL))
    manager.load()
    return manager


def restarted(manager: LogManager, runtime: Runtime, disk: SimDisk) -> LogManager:
    manager.shutdown(1)
    disk.crash(power_loss=False)
    return started(runtime)


def move(manager: LogManager, path: str) -> PartitionLog:
    copy_to(manager, path)
    return manager.future_logs.finish(T)


def copy_to(manager: LogManager, path: str) -> PartitionLog:
    log = manager.get(T)
    manager.future_logs.begin(T, path)
    copy = manager.future_logs.get(T)
    assert log is not None and copy is not None
    truncate_copy(log, copy)
    while copy_batches(log, copy):
        pass
    return copy


def moved_from_a_broken_disk() -> tuple[Runtime, SimDisk, LogManager]:
    """The log is in /one, and the disk of its original, in /two, failed at the end of the move."""
    runtime, disk = make_runtime()
    format_dirs(runtime, DIRS, CLUSTER, 1)
    manager = started(runtime)
    log = manager.create(T, TOPIC_ID, directory_id=manager.directories.ids["/two"])
    for number in range(40):
        append(log, epoch=number // 10)
    copy_to(manager, "/one")
    disk.fail_dir("/two")  # e.g. mounted read-only after an error
    assert manager.future_logs.finish(T).directory == "/one/t-0"
    return runtime, disk, manager


class KilledError(Exception):
    """The process is killed here."""


def killed(*_: object) -> None:
    raise KilledError


def marks(disk: SimDisk) -> list[str]:
    return [name for path in ("/one", "/three") for name in disk.listdir(path) if name.endswith(".swap")]


@pytest.mark.parametrize("again", ["moved", "created again"])
@pytest.mark.parametrize("is_back", [False, True])
def test_what_came_after_a_move_stays(again: str, is_back: bool) -> None:
    """The log is moved on, or is deleted and that of a later topic is made in a third directory."""
    runtime, disk, manager = moved_from_a_broken_disk()
    wanted = TOPIC_ID
    if again == "moved":
        log = move(manager, "/three")
    else:
        manager.delete(T)
        wanted = LATER_ID
        log = manager.create(T, LATER_ID, directory_id=manager.directories.ids["/three"])
        append(log, 5)
    end, content = log.log_end_offset, read_all(log)
    if is_back:
        disk.repair_dirs()
    manager = restarted(manager, runtime, disk)
    found = manager.get(T)
    assert found is not None
    assert (found.directory, found.topic_id, found.log_end_offset) == ("/three/t-0", wanted, end)
    assert read_all(found) == content
    assert bool(marks(disk)) == (not is_back)


def test_the_former_disk_comes_back_after_it_was_absent_for_a_start() -> None:
    runtime, disk, manager = moved_from_a_broken_disk()
    log = manager.get(T)
    assert log is not None
    append(log, epoch=9)
    end = log.log_end_offset
    manager = restarted(manager, runtime, disk)
    assert "/two" in manager.directories.failures
    disk.repair_dirs()
    manager = restarted(manager, runtime, disk)
    found = manager.get(T)
    assert found is not None and (found.directory, found.log_end_offset) == ("/one/t-0", end)
    assert not marks(disk)


def test_an_original_that_was_used_again_while_the_disk_of_its_complete_copy_was_absent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A crash right after the mark was written, and a start without that disk: what the original got then stays."""
    runtime, disk = make_runtime()
    format_dirs(runtime, DIRS, CLUSTER, 1)
    manager = started(runtime)
    log = manager.create(T, TOPIC_ID, directory_id=manager.directories.ids["/two"])
    append(log, 3)
    copy_to(manager, "/three")
    with monkeypatch.context() as patched:
        patched.setattr(SimDisk, "rename", killed)
        with pytest.raises(KilledError):
            manager.future_logs.finish(T)
    disk.crash(power_loss=False)
    assert len(marks(disk)) == 1
    disk.fail_dir("/three")
    manager = started(runtime)
    found = manager.get(T)
    assert found is not None and found.directory == "/two/t-0"
    append(found, 4)
    end, content = found.log_end_offset, read_all(found)
    disk.repair_dirs()
    manager = restarted(manager, runtime, disk)
    found = manager.get(T)
    assert found is not None
    assert (found.directory, found.log_end_offset, read_all(found)) == ("/two/t-0", end, content)
    assert not marks(disk)
    assert move(manager, "/three").log_end_offset == end


def test_an_empty_disk_in_the_place_of_the_broken_one_may_take_the_log_again() -> None:
    """It has another id than the one that the mark names, at the same path."""
    runtime, disk, manager = moved_from_a_broken_disk()
    manager.shutdown(1)
    disk.crash(power_loss=False)
    disk.repair_dirs()
    disk.wipe_dir("/two")
    format_dirs(runtime, DIRS, CLUSTER, 1)
    manager = started(runtime)
    end = move(manager, "/two").log_end_offset
    found = restarted(manager, runtime, disk).get(T)
    assert found is not None and (found.directory, found.log_end_offset) == ("/two/t-0", end)


def test_the_original_that_could_not_be_made_void_durably_is_not_replaced_in_its_directory() -> None:
    """The new name of the original may be lost again, so that nothing else may have the old one."""
    runtime, disk = make_runtime()
    format_dirs(runtime, DIRS, CLUSTER, 1)
    manager = started(runtime)
    append(manager.create(T, TOPIC_ID, directory_id=manager.directories.ids["/two"]), 3)
    copy_to(manager, "/one")
    disk.fail_fsync("/two")
    assert manager.future_logs.finish(T).directory == "/one/t-0"
    assert list(manager.directories.failures) == ["/two"]
    assert len(marks(disk)) == 1


@pytest.mark.parametrize(("wanted", "left"), [(TOPIC_ID, 1), (LATER_ID, 0), (None, 0)])
def test_a_mark_goes_with_its_topic(wanted: UUID | None, left: int) -> None:
    runtime, disk, manager = moved_from_a_broken_disk()
    manager = restarted(manager, runtime, disk)
    manager.set_strays_aside(lambda _: wanted)
    assert len(marks(disk)) == left


@pytest.mark.parametrize(
    ("copy_is", "expected"), [("there", "/one/t-0"), ("gone", "/two/t-0"), ("in its place", "/one/t-0")]
)
def test_a_mark_of_an_older_build_is_about_all_logs_of_the_copys_topic(copy_is: str, expected: str) -> None:
    """A crash may also come when the copy has the partition's name and the mark is still there."""
    runtime, disk = make_runtime()
    format_dirs(runtime, DIRS, CLUSTER, 1)
    manager = started(runtime)
    log = manager.create(T, TOPIC_ID, directory_id=manager.directories.ids["/two"])
    append(log, 3)
    copy = copy_to(manager, "/one")
    name = copy.directory
    manager.shutdown(1)
    disk.crash(power_loss=False)
    disk.write_atomic(f"{name}.swap", b"")
    if copy_is == "gone":
        disk.remove_tree(name)
    elif copy_is == "in its place":
        disk.rename(name, "/one/t-0")
    found = started(runtime).get(T)
    assert found is not None and found.log_end_offset == 3
    assert found.directory == expected
    assert not marks(disk)


@pytest.mark.parametrize("content", [b"{", b"[]", b"{}", b'{"sourceDirectoryId":7}', BAD_END])
def test_a_mark_that_does_not_parse_keeps_the_node_from_starting(content: bytes) -> None:
    runtime, disk, manager = moved_from_a_broken_disk()
    (name,) = marks(disk)
    manager.shutdown(1)
    disk.crash(power_loss=False)
    disk.write_atomic(f"/one/{name}", content)
    with pytest.raises(CorruptFileError, match="does not parse"):
        started(runtime)
