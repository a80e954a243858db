"""Logs that are filled at random and compacted, with a naive model of what must be left in them."""

from __future__ import annotations

import random
import struct
from typing import NamedTuple

from support.log.logs import NOW_MS, headers_of, read_all

from raftwerk.log.cleaner.compaction import CleanPlan, CleanResult
from raftwerk.log.config import LogConfig
from raftwerk.log.partition_log import PartitionLog
from raftwerk.log.state.transaction_verification import VERIFICATION_OFF
from raftwerk.runtime.incremental_work import Step, Work
from raftwerk.wire.compression import Compression
from raftwerk.wire.records import (
    ControlRecordType,
    encode_batch,
    encode_control_record,
    iter_records,
)
from raftwerk.wire.types import TopicPartition

RETENTION_MS = 1000
COMPACT = LogConfig(
    segment_bytes=2500, index_interval_bytes=200, cleanup_policy=("compact",), delete_retention_ms=RETENTION_MS
)


MEMORY = 1 << 20
CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
TP = TopicPartition("t", 0)


class Stored(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    transaction: tuple[int, int] | None
    """The producer id and the number of its transaction."""


class Writer:
    """Fills a log at random, and remembers what it wrote."""

    def __init__(self, log: PartitionLog, seed: int, keys: int = 12) -> None:
        self.log = log
        self.rng = random.Random(seed)
        self.keys = [b"key%d" % number * (1 + number % 3 * 4) for number in range(keys)]
        self.written: list[Stored] = []
        self.markers: dict[tuple[int, int], tuple[int, bool]] = {}
        self.sequences: dict[int, int] = {}
        self.open: dict[int, int] = {}
        self.transactions = 0

    def write(self, transactional: bool) -> None:
        rng = self.rng
        producer_id = rng.choice([-1, -1, 5, 6]) if not transactional else rng.choice([-1, 7, 8])
        transaction = None
        options: dict[str, int | bool] = {}
        if producer_id >= 0:
            sequence = self.sequences.get(producer_id, 0)
            options = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
            if transactional:
                options["is_transactional"] = True
                if producer_id not in self.open:
                    self.transactions += 1
                    self.open[producer_id] = self.transactions
                transaction = (producer_id, self.open[producer_id])
        records = [
            (
                rng.choice(self.keys) if rng.random() < 0.97 else None,
                rng.randbytes(rng.randint(0, 60)) if rng.random() < 0.8 else None,
                (("h", b"x"),) if rng.random() < 0.3 else (),
                NOW_MS + rng.randint(-50, 50),
            )
            for _ in range(rng.randint(1, 5))
        ]
        if producer_id >= 0:
            self.sequences[producer_id] = options["base_sequence"] + len(records)
        base = self.log.log_end_offset
        data = encode_batch(records, compression=rng.choice(list(Compression)), **options)  # type: ignore[arg-type]
        self.log.append_as_leader(memoryview(data), base // 60, NOW_MS, internal=True, guard=VERIFICATION_OFF)
        for delta, (key, value, _, timestamp) in enumerate(records):
            self.written.append(Stored(base + delta, timestamp, key, value, transaction))

    def end(self, producer_id: int, is_abort: bool) -> None:
        kind = ControlRecordType.ABORT if is_abort else ControlRecordType.COMMIT
        record = encode_control_record(kind, struct.pack(">hi", 0, 1), NOW_MS)
        data = encode_batch([record], producer_id=producer_id, producer_epoch=0, is_control=True, is_transactional=True)
        offset = self.log.log_end_offset
        self.log.append_as_leader(memoryview(data), offset // 60, NOW_MS, internal=True)
        if producer_id in self.open:
            self.markers[(producer_id, self.open.pop(producer_id))] = (offset, is_abort)

    def fill(self, segments: int, transactional: bool = False) -> None:
        while len(self.log.segments) < segments:
            self.write(transactional)
            if transactional and self.rng.random() < 0.3:
                self.end(self.rng.choice([7, 8]), self.rng.random() < 0.5)
        for producer_id in list(self.open):
            self.end(producer_id, False)
        self.log.roll()
        self.log.flush()

    def visible(self) -> list[Stored]:
        return [one for one in self.written if one.transaction is None or not self.markers[one.transaction][1]]

    def expected(self, clean_offset: int, *, tombstones: bool) -> list[tuple[int, int, bytes | None, bytes | None]]:
        newest = {one.key: one.offset for one in self.visible() if one.offset < clean_offset}
        return [
            one[:4]
            for one in self.visible()
            if one.offset >= clean_offset
            or (one.key is not None and newest[one.key] == one.offset and (tombstones or one.value is not None))
        ]


def records_of(log: PartitionLog) -> list[tuple[int, int, bytes | None, bytes | None]]:
    found = []
    data = memoryview(read_all(log))
    position = 0
    for header in headers_of(bytes(data)):
        if not header.is_control:
            found += [record[:4] for record in iter_records(data[position : position + header.size_bytes])]
        position += header.size_bytes
    return found


def plan_of(log: PartitionLog, *, start: int = 0, now_ms: int = NOW_MS, memory: int = MEMORY) -> CleanPlan:
    return CleanPlan(start, log.segments[-1].base_offset, now_ms, memory)


def carry_out(step: Step) -> None:
    for file in step.fsyncs:
        file.fsync()
    if step.change is not None:
        step.change.finish()


def drive(steps: Work[CleanResult], most: int = 1 << 30) -> CleanResult | None:
    """Run to the end, or for `most` steps."""
    for _ in range(most):
        try:
            step = next(steps)
        except StopIteration as end:
            result: CleanResult = end.value
            return result
        carry_out(step)
    return None
