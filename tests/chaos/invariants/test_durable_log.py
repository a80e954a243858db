"""How much of a metadata log the checks of the quorum take for durable."""

from __future__ import annotations

import random

from raftwerk.chaos.sim.disk.sim_disk import SimDisk
from raftwerk.chaos.sim.disk.sim_file import SimFile
from raftwerk.chaos.sim.invariants.durable_log import DurableLog
from raftwerk.wire.records import NewRecord, encode_batch

FOLDER = "/data/m"


def batch(offset: int) -> bytes:
    data = encode_batch([NewRecord(b"k", b"v", (), 1)])
    data[:8] = offset.to_bytes(8, "big")
    return bytes(data)


def segment(disk: SimDisk, base_offset: int) -> SimFile:
    file = disk.open(f"{FOLDER}/{base_offset:020}.log", create=True)
    disk.fsync_dir(FOLDER)
    return file


def test_a_durable_log_ends_where_the_end_of_a_segment_is_missing() -> None:
    disk = SimDisk(random.Random(1))
    disk.makedirs(FOLDER)
    for folder in ("/", "/data"):
        disk.fsync_dir(folder)
    log = DurableLog(disk, FOLDER)
    assert log.end_offset == 0
    first = segment(disk, 0)
    first.append([batch(0)])
    first.fsync()
    first.append([batch(1)])
    second = segment(disk, 2)
    second.append([batch(2)])
    second.fsync()
    assert log.end_offset == 1
    first.fsync()
    assert log.end_offset == 3
    disk.remove(f"{FOLDER}/{0:020}.log")
    assert log.end_offset == 3
