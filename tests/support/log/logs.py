"""Logs on a disk in memory, and the batches to put into them."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path
from typing import Any

from raftwerk.chaos.sim.disk.sim_disk import SimDisk
from raftwerk.log.config import LogConfig
from raftwerk.log.manager.log_manager import LogManager
from raftwerk.log.partition_log import PartitionLog
from raftwerk.runtime.ports import Runtime
from raftwerk.wire.records import BatchHeader, encode_batch, iter_headers

DIRECTORY = "/data/t-0"
NOW_MS = 1_700_000_000_000
SMALL = LogConfig(segment_bytes=1500, index_interval_bytes=100)


class FixedClock:
    def wall_ms(self) -> int:
        return NOW_MS


def make_runtime(seed: int = 1) -> tuple[Runtime, SimDisk]:
    disk = SimDisk(random.Random(seed))
    disk.makedirs("/data")
    disk.fsync_dir("/")
    return Runtime(disk, FixedClock(), random.Random(seed)), disk


def open_log(runtime: Runtime, config: LogConfig = SMALL, **options: Any) -> PartitionLog:
    return PartitionLog.open(runtime, DIRECTORY, config, **options)


def batch(count: int = 1, *, timestamp: int = 1000, value: bytes = b"v" * 20, **options: Any) -> memoryview:
    """A mutable batch of `count` records whose timestamps grow by one."""
    records = [(b"k", value, (), timestamp + number) for number in range(count)]
    return memoryview(encode_batch(records, **options))


def append(log: PartitionLog, count: int = 1, *, epoch: int = 0, **options: Any) -> int:
    """Append one batch as leader; its base offset."""
    return log.append_as_leader(batch(count, **options), epoch, NOW_MS).first_offset


def read_all(log: PartitionLog) -> bytes:
    """Every byte of the log through `read`."""
    parts = []
    offset = log.log_start_offset
    while data := log.read(offset, 1 << 20, end_offset=log.log_end_offset):
        parts.append(data)
        offset = list(iter_headers(data))[-1][1].next_offset
    return b"".join(parts)


def headers_of(data: bytes) -> list[BatchHeader]:
    return [header for _, header in iter_headers(data)]


def remove_deleted(manager: LogManager) -> None:
    """Remove the files of deleted segments and partitions now, however short ago they were deleted."""
    deletion: Any = manager.deletion
    paths, deletion._paths = deletion._paths, []
    for _, path in paths:
        if deletion._disk.is_dir(path):
            deletion._disk.remove_tree(path)
        elif deletion._disk.exists(path):
            deletion._disk.remove(path)


def open_files(directory: Path) -> int:
    """How many descriptors of this process are open on files below the directory; other threads may close some."""
    count = 0
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            count += str(directory) in str(entry.readlink())
    return count
