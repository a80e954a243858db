"""A topic is created again while the disk of its former log has failed; then that disk comes back (KAFKA-16234)."""

from __future__ import annotations

import contextlib
from uuid import UUID

import pytest
from support.log.logs import SMALL, append, make_runtime, read_all

from raftwerk.chaos.sim.disk.sim_disk import SimDisk
from raftwerk.log.errors import LogDirError, StorageError
from raftwerk.log.manager.log_manager import LogManager
from raftwerk.log.manager.log_manager_config import LogManagerConfig
from raftwerk.log.manager.meta_properties import format_dirs
from raftwerk.runtime.ports import Runtime
from raftwerk.wire.types import TopicPartition

T, FORMER, LATER = TopicPartition("t", 0), UUID(int=77), UUID(int=78)
CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
DIRS = ("/one", "/two")


def started(runtime: Runtime) -> LogManager:
    manager = LogManager(runtime, LogManagerConfig(DIRS, CLUSTER, 1, SMALL))
    manager.load()
    return manager


def created_again(
    broken: str = "/two", *, absent_at_a_start: bool = False, later_id: UUID = LATER
) -> tuple[Runtime, SimDisk, bytes]:
    """The former topic's log is in the directory that was broken, the later one's in the other. Returns the latter."""
    runtime, disk = make_runtime()
    format_dirs(runtime, DIRS, CLUSTER, 1)
    manager = started(runtime)
    append(manager.create(T, FORMER, directory_id=manager.directories.ids[broken]), 7)
    manager.note_high_watermarks({T: 7})
    manager.write_high_watermarks()
    disk.fail_dir(broken)
    if absent_at_a_start:
        manager.shutdown(1)
        disk.crash(power_loss=False)
        manager = started(runtime)
        assert manager.get(T) is None
    with contextlib.suppress(StorageError):
        manager.delete(T)
    log = manager.create(T, later_id)
    assert log.directory != f"{broken}/t-0"
    append(log, 3)
    manager.note_high_watermarks({T: 2})
    manager.write_high_watermarks()
    content = read_all(log)
    manager.shutdown(2)
    disk.crash(power_loss=False)
    disk.repair_dirs()
    return runtime, disk, content


def strays(disk: SimDisk) -> list[str]:
    return [path for path in DIRS for name in disk.listdir(path) if name.endswith("-stray")]


@pytest.mark.parametrize(("broken", "absent_at_a_start"), [("/one", False), ("/two", False), ("/two", True)])
def test_the_node_starts_and_keeps_the_log_of_the_later_topic(broken: str, absent_at_a_start: bool) -> None:
    """Whichever of the two directories comes first."""
    runtime, disk, content = created_again(broken, absent_at_a_start=absent_at_a_start)
    manager = started(runtime)
    manager.set_strays_aside(lambda _: LATER)
    log = manager.get(T)
    assert log is not None and (log.topic_id, read_all(log)) == (LATER, content)
    assert strays(disk) == [broken]
    assert manager.directories.high_watermarks[T] == 2
    append(log)
    manager.shutdown(3)
    again = started(runtime).get(T)
    assert again is not None and again.log_end_offset == 4


def test_both_are_set_aside_when_neither_is_wanted() -> None:
    runtime, disk, _ = created_again()
    manager = started(runtime)
    manager.set_strays_aside(lambda _: None)
    assert manager.get(T) is None and strays(disk) == list(DIRS)


def test_a_stop_before_the_metadata_is_known_forgets_neither() -> None:
    runtime, _, content = created_again()
    for _ in range(2):
        started(runtime).shutdown(3)
    manager = started(runtime)
    assert [log_dir.was_cleanly_shut_down for log_dir in manager.directories] == [True, True]
    manager.set_strays_aside(lambda _: FORMER)
    former = manager.get(T)
    assert former is not None and (former.topic_id, former.log_end_offset) == (FORMER, 7)
    assert manager.directories.high_watermarks[T] == 7
    assert content not in read_all(former)


def test_a_disk_that_fails_with_both_open_fails_its_own() -> None:
    runtime, disk, content = created_again()
    manager = started(runtime)
    disk.fail_dir("/two")
    manager.set_strays_aside(lambda _: LATER)
    assert list(manager.directories.failures) == ["/two"]
    log = manager.get(T)
    assert log is not None and read_all(log) == content


@pytest.mark.parametrize("other_id", [FORMER, None])
def test_two_logs_of_the_same_or_an_unknown_topic_are_for_a_person_to_judge(other_id: UUID | None) -> None:
    runtime, disk, _ = created_again(later_id=FORMER)
    if other_id is None:
        disk.remove("/one/t-0/partition.metadata")
    with pytest.raises(LogDirError, match="Partition t-0 is in /one and in /two"):
        started(runtime)
