"""The files of a small node, damaged in every way, and everything that its log answers."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from support.log.logs import NOW_MS, FixedClock, batch, headers_of

from raftwerk.chaos.sim.disk.sim_disk import SimDisk
from raftwerk.log.config import LogConfig
from raftwerk.log.manager.log_manager import LogManager
from raftwerk.log.manager.log_manager_config import LogManagerConfig
from raftwerk.log.manager.meta_properties import format_dirs, random_id
from raftwerk.log.partition_log import PartitionLog
from raftwerk.log.state.leader_epoch_cache import EpochEntry
from raftwerk.log.state.transaction_verification import VERIFICATION_OFF
from raftwerk.runtime.ports import Runtime
from raftwerk.wire.records import ControlRecordType, encode_batch, encode_control_record
from raftwerk.wire.types import TopicPartition

NODE = "/data"
PARTITION = f"{NODE}/t-0"
CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
CONFIG = LogConfig(segment_bytes=420, index_interval_bytes=90)
TP = TopicPartition("t", 0)
Files = dict[str, bytes]


class Seen(NamedTuple):
    """All that can be read from a log, batch by batch."""

    start: int
    end: int
    batches: list[bytes]
    epochs: list[EpochEntry]
    producers: list[tuple[int, list[tuple[int, int]]]]
    aborted: list[tuple[int, ...]]
    by_time: list[tuple[int, int, int] | None]


def runtime_on(disk: SimDisk) -> Runtime:
    return Runtime(disk, FixedClock(), random.Random(1))


def load(files: Files) -> tuple[LogManager, PartitionLog]:
    disk = SimDisk(random.Random(1))
    disk.makedirs(PARTITION)
    for path, content in files.items():
        disk.open(path, create=True).append((content,))
    manager = LogManager(runtime_on(disk), LogManagerConfig((NODE,), CLUSTER, 1, CONFIG))
    manager.load()
    log = manager.get(TP)
    assert log is not None
    return manager, log


@cache
def original() -> tuple[Files, Seen]:
    """The files of a node that stopped cleanly, with three segments of a partition in three epochs."""
    disk = SimDisk(random.Random(1))
    disk.makedirs(NODE)
    runtime = runtime_on(disk)
    format_dirs(runtime, (NODE,), CLUSTER, 1)
    manager = LogManager(runtime, LogManagerConfig((NODE,), CLUSTER, 1, CONFIG))
    manager.load()
    log = manager.create(TP, random_id(runtime))
    sequences = {7: 0, 8: 0}
    for number, (producer_id, epoch) in enumerate([(7, 0), (8, 0), (-1, 2), (7, 2), (8, 5), (-1, 5), (7, 5), (8, 5)]):
        options: dict[str, int | bool] = {}
        if producer_id >= 0:
            options = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequences[producer_id]}
            options["is_transactional"] = producer_id == 8
            sequences[producer_id] += 2
        data = batch(2, timestamp=1000 + 10 * number, value=b"v%d" % number, **options)
        log.append_as_leader(data, epoch, NOW_MS, guard=VERIFICATION_OFF)
        if producer_id == 8:
            log.append_as_leader(marker(8, 1000 + 10 * number + 5), epoch, NOW_MS, internal=True)
    assert len(log.segments) == 3
    log.raise_start(1)
    seen = look(log)
    manager.note_high_watermarks({TP: log.log_end_offset})
    manager.write_high_watermarks()
    manager.shutdown(5)
    paths = [f"{NODE}/{name}" for name in disk.listdir(NODE)] + [f"{PARTITION}/{n}" for n in disk.listdir(PARTITION)]
    return {path: disk.read_bytes(path) for path in paths if not disk.is_dir(path)}, seen


def marker(producer_id: int, timestamp: int, record_type: int = ControlRecordType.ABORT) -> memoryview:
    record = encode_control_record(record_type, struct.pack(">hi", 0, 1), timestamp)
    data = encode_batch([record], is_control=True, is_transactional=True, producer_id=producer_id, producer_epoch=0)
    return memoryview(data)


def look(log: PartitionLog) -> Seen:
    """Read everything from a log. `ProtocolError` when something cannot be read."""
    batches, offset = [], log.segments[0].base_offset
    while offset < log.log_end_offset:
        data = log.read(max(offset, log.log_start_offset), 1, end_offset=log.log_end_offset)
        assert len(headers_of(data)) == 1
        batches.append(data)
        offset = headers_of(data)[0].next_offset
    producers = [(p, log.producers.get(p)) for p in (7, 8)]
    return Seen(
        log.log_start_offset,
        log.log_end_offset,
        batches,
        list(log.epoch_cache.entries),
        [(p, [(b.first_sequence, b.last_offset) for b in entry.batches]) for p, entry in producers if entry],
        [one[:3] for one in log.aborted_transactions(log.log_start_offset, log.log_end_offset)],
        [log.offset_for_timestamp(time) for time in range(995, 1085, 3)],
    )


def damages(content: bytes) -> Iterator[tuple[str, int, bytes]]:
    """All damages of a file: a description, the first damaged byte, and the damaged contents."""
    for at in range(len(content)):
        for mask in (0xFF, 1 << at % 8):
            yield f"byte {at} xor {mask}", at, content[:at] + bytes([content[at] ^ mask]) + content[at + 1 :]
        yield f"cut to {at} bytes", at, content[:at]
