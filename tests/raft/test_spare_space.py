"""Spare space of the metadata log, on a simulated disk."""

from __future__ import annotations

import errno
import random

import pytest
from support.log.logs import FixedClock
from support.raft.noting_disk import NotingDisk

from raftwerk.chaos.sim.disk.sim_disk import SimDisk
from raftwerk.log.errors import NoSpaceError
from raftwerk.raft.driver.raft_driver import open_metadata_log
from raftwerk.raft.replication.partition_raft_log import PartitionRaftLog
from raftwerk.raft.replication.spare_space import SPARE_FILE, SpareSpace
from raftwerk.runtime.ports import Runtime

SIZE = 4096
PATH = f"/data/{SPARE_FILE}"


def make(size_bytes: int = SIZE) -> tuple[SimDisk, SpareSpace]:
    disk = SimDisk(random.Random(1))
    disk.makedirs("/data")
    return disk, SpareSpace(disk, "/data", size_bytes)


def test_the_first_write_that_finds_no_space_takes_it() -> None:
    disk, spare = make()
    assert not spare.is_held and not spare.release(), "there is none yet"
    assert spare.hold() and disk.read_bytes(PATH) == bytes(SIZE)
    disk.fill(0)
    assert spare.retried(lambda: disk.write_atomic("/data/small", b"x")) is None
    assert disk.read_bytes("/data/small") == b"x" and not disk.exists(PATH) and not spare.is_held
    disk.fill(0)
    with pytest.raises(OSError) as raised:
        spare.retried(lambda: disk.write_atomic("/data/more", b"x"))
    assert raised.value.errno == errno.ENOSPC, "it is used once"


def test_what_is_refused_for_another_reason_is_not_tried_again() -> None:
    _, spare = make()
    spare.hold()
    tries = []

    def write() -> None:
        tries.append(1)
        raise OSError(errno.EIO, "input/output error")

    with pytest.raises(OSError):
        spare.retried(write)
    assert len(tries) == 1 and spare.is_held

    def refuse() -> None:
        tries.append(1)
        raise NoSpaceError("full")

    with pytest.raises(NoSpaceError):
        spare.retried(refuse)
    assert len(tries) == 3 and not spare.is_held
    with pytest.raises(NoSpaceError):
        spare.retried(refuse)
    assert len(tries) == 4, "without space to give there is no second try"


def test_it_is_held_again_when_several_times_as_much_is_free() -> None:
    disk, spare = make()
    disk.fill(4 * SIZE - 1)
    assert not spare.hold() and not disk.exists(PATH)
    disk.fill(4 * SIZE)
    assert spare.hold()


def test_the_file_is_closed_when_its_size_is_known() -> None:
    disk = NotingDisk()
    for _ in range(2):
        assert SpareSpace(disk, "/data", SIZE).hold()
    (file,) = disk.files
    with pytest.raises(OSError, match="file is closed"):
        file.size()


def test_what_is_held_is_left_alone() -> None:
    disk, spare = make()
    assert spare.hold()
    disk.fill(0)
    assert spare.hold() and disk.read_bytes(PATH) == bytes(SIZE)
    assert SpareSpace(disk, "/data", SIZE).hold(), "a node that starts finds it"


def test_a_file_of_another_size_is_replaced_and_one_that_is_not_wanted_removed() -> None:
    disk, spare = make()
    disk.write_atomic(PATH, b"torn")
    assert spare.hold() and len(disk.read_bytes(PATH)) == SIZE
    assert not SpareSpace(disk, "/data", 0).hold() and not disk.exists(PATH)


def test_a_disk_that_refuses_leaves_the_log_without_spare_space() -> None:
    disk, spare = make()
    assert spare.hold()
    disk.fail_dir("/data")
    assert not spare.release(), "nothing was gained"
    assert not spare.is_held
    disk.repair_dirs()
    assert spare.hold()
    disk.fail_dir("/data")
    assert not spare.hold()
    assert not spare.is_held
    assert not spare.release()


def test_a_disk_that_is_full_for_an_index_keeps_no_record_out_of_the_metadata_log() -> None:
    disk, spare = make(1 << 16)
    runtime = Runtime(disk, FixedClock(), random.Random(0))
    assert spare.hold()
    log = PartitionRaftLog(open_metadata_log(runtime, "/data"), runtime, spare)
    for _ in range(1000):
        log.append_records([b"x" * 500], 1)
        disk.fill(700)  # room for the next batch, and not for 64 entries of an index
    assert log.end_offset == 1000 and spare.is_held
    disk.fill(0)
    log.append_records([b"x" * 500], 1)
    assert log.end_offset == 1001 and not spare.is_held
