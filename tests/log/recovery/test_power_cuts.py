"""A thousand losses of power, each at some operation of the disk in the middle of some operation of the log.

A world is a node's log directory under random appends, rolls, flushes, checkpoints, truncations, deletions and
compactions. The disk is cut off between two of its own operations (or in the middle of one: its writes are torn), and
forgets what was not synced. What a new life finds must be what the model says it may find.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest
from support.log.logs import NOW_MS, FixedClock, headers_of, read_all, remove_deleted

from raftwerk.chaos.sim.disk.sim_disk import SimDisk
from raftwerk.chaos.sim.disk.sim_file import SimFile
from raftwerk.log.cleaner.compaction import CleanPlan, clean
from raftwerk.log.config import LogConfig
from raftwerk.log.manager.log_manager import LogManager
from raftwerk.log.manager.log_manager_config import LogManagerConfig
from raftwerk.log.manager.meta_properties import format_dirs, random_id
from raftwerk.log.partition_log import PartitionLog
from raftwerk.runtime.ports import Buffer, Runtime
from raftwerk.wire.records import BatchHeader, encode_batch, iter_records, set_base_offset, set_partition_leader_epoch
from raftwerk.wire.types import TopicPartition

NODE, CLUSTER, TP = "/node", "MkU3OEVBNTcwNTJENDM2Qg", TopicPartition("t", 0)
WORLDS, CUTS_PER_WORLD = 50, 30
DELETE = LogConfig(segment_bytes=700, index_interval_bytes=120, retention_bytes=2500)
COMPACT = LogConfig(segment_bytes=700, index_interval_bytes=120, cleanup_policy=("compact",), delete_retention_ms=0)


class PowerCut(BaseException):
    """A loss of power; no code catches it."""


class CuttingDisk:
    """Passes all calls on to a `SimDisk`, until a given number of operations is used up."""

    def __init__(self, disk: SimDisk) -> None:
        self.disk = disk
        self.left = -1
        self.used = 0
        self.on_cut: Callable[[], None] = lambda: None

    def __getattr__(self, name: str) -> Any:
        target = getattr(self.disk, name)
        return self._counted(target) if callable(target) and name not in ("exists", "is_dir", "listdir") else target

    def fsync_soon(self, file: CuttingFile) -> asyncio.Future[None]:
        self.count()
        return self.disk.fsync_soon(file.file)

    def open(self, path: str, *, create: bool = False) -> CuttingFile:
        self.count()
        return CuttingFile(self, self.disk.open(path, create=create))

    def count(self) -> None:
        self.used += 1
        if self.left > 0:
            self.left -= 1
        if self.left == 0:
            self.on_cut()
            raise PowerCut

    def _counted(self, target: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            self.count()
            result = target(*arguments, **options)
            self.count()
            return result

        return call


class CuttingFile:
    def __init__(self, disk: CuttingDisk, file: SimFile) -> None:
        self._disk = disk
        self.file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def append(self, buffers: list[Buffer]) -> int:
        self._disk.count()
        written = self.file.append(buffers)
        self._disk.count()
        return written

    def truncate(self, size: int) -> None:
        self._disk.count()
        self.file.truncate(size)
        self._disk.count()

    def fsync(self) -> None:
        self._disk.count()
        self.file.fsync()
        self._disk.count()


class Stored(NamedTuple):
    base: int
    last: int
    data: bytes
    epoch: int
    records: list[tuple[bytes, bytes | None]]


class World:
    """A log, and what it should hold: as it was before the operation under way, and as it is after it."""

    def __init__(self, seed: int, config: LogConfig) -> None:
        self.rng = random.Random(seed)
        self.config = config
        self.disk = SimDisk(random.Random(seed))
        self.cutting = CuttingDisk(self.disk)
        self.stored: list[Stored] = []
        self.midway: list[Stored] = []
        """The contents between the two parts of the operation under way."""
        self.epoch = 0
        self.start_min = self.flushed = 0
        self.written = 0
        self.disk.makedirs(NODE)
        self.disk.fsync_dir("/")
        self.runtime = Runtime(self.cutting, FixedClock(), random.Random(seed))  # type: ignore[arg-type]
        self.topic_id = random_id(self.runtime)
        self.cleaned_to = 0
        self.usual: dict[str, int] = {}
        """How many disk operations each operation needed when it was last completed."""
        format_dirs(self.runtime, (NODE,), CLUSTER, 1)
        self.open()
        self.log.flush()

    @property
    def end(self) -> int:
        return self.stored[-1].last + 1 if self.stored else self.log.log_end_offset

    def open(self) -> None:
        self.manager = LogManager(self.runtime, LogManagerConfig((NODE,), CLUSTER, 1, self.config))
        self.manager.load()
        self.log: PartitionLog = self.manager.create(TP, self.topic_id)

    # What may happen to a log

    def append(self) -> None:
        rng = self.rng
        self.epoch += rng.random() < 0.1
        keyed = [(b"k%d" % rng.randrange(9), None if rng.random() < 0.15 else b"%d" % self.next_number())]
        while rng.random() < 0.5:
            keyed.append((b"k%d" % rng.randrange(9), b"%d " % self.next_number() * rng.randrange(1, 9)))
        data = encode_batch([(key, value, (), NOW_MS + self.written) for key, value in keyed], **self.draw_producer())
        base = self.log.log_end_offset
        set_base_offset(data, 0, base)
        set_partition_leader_epoch(data, 0, self.epoch)
        self.stored.append(Stored(base, base + len(keyed) - 1, bytes(data), self.epoch, keyed))
        if rng.random() < 0.3:
            self.log.append_as_follower(memoryview(data), may_skip=True)
        else:
            set_base_offset(data, 0, 0)
            self.log.append_as_leader(memoryview(data), self.epoch, NOW_MS)

    def draw_producer(self) -> dict[str, Any]:
        """One of two producers, or none."""
        producer_id = self.rng.randrange(-1, 2)
        if producer_id < 0:
            return {}
        known = self.log.producers.get(producer_id)
        sequence = 0 if known is None else known.last_sequence + 1
        return {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}

    def next_number(self) -> int:
        self.written += 1
        return self.written

    def append_many(self) -> None:
        for _ in range(8):
            self.append()

    def roll(self) -> None:
        self.append()
        self.log.roll()

    def flush(self) -> None:
        self.append()
        self.log.flush()
        self.flushed = self.end

    def move_recovery_point(self) -> None:
        """As log maintenance does it, with another operation in between."""
        if self.rng.random() < 0.5:
            self.append()
        loop = asyncio.new_event_loop()
        self.cutting.on_cut = loop.stop
        between = [self.append, self.append_many, self.truncate, self.flush_and_checkpoint, self.checkpoint, self.roll]

        async def move() -> None:
            moving = self.log.checkpoint_soon()
            for _ in range(self.rng.randrange(4)):
                await asyncio.sleep(0)
            self.midway = list(self.stored)
            if not moving.done() and self.rng.random() < 0.7:
                self.rng.choice(between)()
            await moving

        try:
            task = loop.create_task(move())
            task.add_done_callback(lambda _: loop.stop())
            loop.set_exception_handler(lambda *_: None)
            loop.run_forever()
            if not task.done():
                raise PowerCut
            task.result()
        finally:
            self.cutting.on_cut = lambda: None
            loop.close()
        self.flushed = max(self.flushed, self.log.recovery_point)

    def flush_and_checkpoint(self) -> None:
        self.flush()
        self.checkpoint()

    def checkpoint(self) -> None:
        self.manager.checkpoint_recovery_points()
        self.manager.note_high_watermarks({TP: self.end})
        self.manager.write_high_watermarks()
        self.start_min = max(self.start_min, self.log.log_start_offset)

    def truncate(self) -> None:
        lowest = max(self.log.log_start_offset, self.cleaned_to, self.end - 12)  # what is committed is not cut off
        offset = self.rng.randint(min(lowest, self.end), self.end)
        self.flushed = min(self.flushed, offset)
        while self.stored and self.stored[-1].last >= offset:
            self.flushed = min(self.flushed, self.stored.pop().base)
        self.start_min = min(self.start_min, self.flushed)
        self.log.truncate_to(offset)
        self.flushed = min(self.flushed, self.recoverable_end())

    def recoverable_end(self) -> int:
        """The end of the last batch: offsets after it that compaction removed are unknown after a restart."""
        left = headers_of(read_all(self.log))
        return left[-1].next_offset if left else self.log.segments[0].base_offset

    def delete_expired(self) -> None:
        self.log.delete_expired(NOW_MS, self.end)
        if self.rng.random() < 0.5:
            remove_deleted(self.manager)

    def delete_records(self) -> None:
        self.log.raise_start(self.rng.randint(self.log.log_start_offset, self.end))
        self.delete_expired()
        self.checkpoint()

    def compact(self) -> None:
        self.log.roll()
        self.flush()
        self.log.roll()
        self.manager.checkpoint_recovery_points()
        plan = CleanPlan(0, self.log.segments[-1].base_offset, NOW_MS, 1 << 20)
        self.cleaned_to = plan.end_offset
        steps = clean(self.log, self.cutting, plan)  # type: ignore[arg-type]
        try:
            for step in steps:
                for file in step.fsyncs:
                    file.fsync()
                if step.change is not None:
                    step.change.finish()
        finally:
            with contextlib.suppress(PowerCut):
                steps.close()
        remove_deleted(self.manager)

    def restart(self) -> None:
        self.manager.shutdown()
        self.flushed = self.end
        self.start_min = max(self.start_min, self.log.log_start_offset)
        self.open()

    # The cut, and what may be left

    def cut_in(self, operation: Callable[[], None]) -> bool:
        """Whether the power was cut in the middle."""
        before = (list(self.stored), self.flushed)
        self.midway = before[0]
        end_before = self.log.log_end_offset
        used_before = self.cutting.used
        self.cutting.left = self.rng.randint(1, max(self.usual.get(operation.__name__, 12), 2))
        was_cut = False
        try:
            operation()
        except PowerCut:
            was_cut = True
        else:
            self.usual[operation.__name__] = self.cutting.used - used_before
        self.cutting.left = -1
        self.disk.crash()
        self.open()
        flushed = min(before[1], self.flushed)
        log = self.log
        ends = {self.recoverable_end()} if self.config.is_compacted else set()
        ends |= {one.last + 1 for one in (*before[0], *self.midway, *self.stored)} | {log.segments[0].base_offset, 0}
        end_midway = self.midway[-1].last + 1 if self.midway else 0
        end_max = max(end_before, end_midway, self.end if self.stored else 0)
        assert flushed <= log.log_end_offset <= end_max, "flushed records stay"
        assert log.log_end_offset in ends, "a log ends between batches"
        self.check_content(before[0])
        self.start_min = min(self.start_min, log.log_start_offset)
        self.flushed = log.log_end_offset  # recovery has looked at it; the next life begins with a flush
        self.stored = [one for one in self.known(before[0]) if one.last < log.log_end_offset]
        log.flush()
        return was_cut

    def known(self, before: list[Stored]) -> list[Stored]:
        """The history that was left: batches that both have, and then those of the one that reaches the log's end."""
        end = self.log.log_end_offset
        longer = [history for history in (self.stored, self.midway, before) if history and history[-1].last + 1 >= end]
        return longer[0] if longer else self.stored

    def check_content(self, before: list[Stored]) -> None:
        log = self.log
        assert min(self.start_min, log.log_end_offset) <= log.log_start_offset <= log.log_end_offset
        if self.config.is_compacted:
            self.check_newest_of_each_key(before)
            return
        left = read_all(log)
        histories = [
            b"".join(s.data for s in history if log.log_start_offset <= s.last < log.log_end_offset)
            for history in (before, self.midway, self.stored)
        ]
        assert left in histories
        expected: list[tuple[int, int]] = []
        for header in headers_of(left):
            if not expected or expected[-1][0] != header.partition_leader_epoch:
                expected.append((header.partition_leader_epoch, max(header.base_offset, log.log_start_offset)))
        self.check_what_is_made_from(headers_of(left))
        if left:  # else the last epoch may be known, or be gone with its last record
            assert [tuple(entry) for entry in log.epoch_cache.entries] == expected

    def check_what_is_made_from(self, headers: list[BatchHeader]) -> None:
        """Producers and indexes describe the batches that are there, and no others."""
        for producer_id in (0, 1):
            mine = [(h.last_sequence, h.last_offset) for h in headers if h.producer_id == producer_id]
            entry = self.log.producers.get(producer_id)
            known = [] if entry is None else [(one.last_sequence, one.last_offset) for one in entry.batches]
            assert known[-len(mine) :] == mine[-5:] if mine else all(at < self.log.log_end_offset for _, at in known)
        for segment in self.log.segments:
            inside = [h for h in headers if segment.base_offset <= h.base_offset < segment.next_offset]
            if not inside or inside[0].base_offset != segment.base_offset:
                continue
            starts = [sum(h.size_bytes for h in inside[:at]) for at in range(len(inside))]
            at_position = dict(zip(starts, inside))
            index = segment.offset_index
            assert [at_position[p].last_offset for p in index.positions] == [
                segment.base_offset + relative for relative in index.offsets
            ]
            for timestamp, relative in zip(segment.time_index.timestamps, segment.time_index.offsets):
                holding = [h for h in inside if h.base_offset <= segment.base_offset + relative <= h.last_offset]
                assert [h.max_timestamp for h in holding] == [timestamp]
            assert segment.largest_timestamp() == max(h.max_timestamp for h in inside)

    def check_newest_of_each_key(self, before: list[Stored]) -> None:
        log = self.log
        found = [(r.offset, r.key, r.value) for data in batches_of(read_all(log)) for r in iter_records(data)]
        offsets = [offset for offset, _, _ in found]
        assert offsets == sorted(set(offsets)), "no record comes back at a second offset"
        for history in (before, self.midway, self.stored):
            flat = [
                (stored.base + delta, key, value)
                for stored in history
                if stored.last < log.log_end_offset
                for delta, (key, value) in enumerate(stored.records)
            ]
            if set(found) <= set(flat) and newest_values(found) == newest_values(flat):
                return
        raise AssertionError("the newest record of each key stays, and no other value appears")


def newest_values(records: Sequence[tuple[int, bytes | None, bytes | None]]) -> dict[bytes | None, bytes]:
    newest = {key: value for _, key, value in records}
    return {key: value for key, value in newest.items() if value is not None}


def batches_of(data: bytes) -> list[bytes]:
    found, position = [], 0
    for header in headers_of(data):
        found.append(data[position : position + header.size_bytes])
        position += header.size_bytes
    return found


OPERATIONS: dict[str, list[str]] = {
    "delete": [
        *("append", "append_many", "roll", "flush", "checkpoint", "truncate", "delete_expired", "delete_records"),
        *("move_recovery_point", "move_recovery_point"),
    ],
    "compact": [
        *("append", "append_many", "roll", "flush", "checkpoint", "compact", "compact", "truncate"),
        "move_recovery_point",
    ],
}


@pytest.mark.parametrize("policy", ["delete", "compact"])
@pytest.mark.parametrize("first", range(0, WORLDS // 2, 5))
def test_after_a_power_cut_the_log_is_what_the_model_says(policy: str, first: int) -> None:
    cut_off = Counter[str]()
    for seed in range(first, first + 5):
        world = World(seed, DELETE if policy == "delete" else COMPACT)
        for cut in range(CUTS_PER_WORLD):
            for _ in range(world.rng.randrange(6)):
                getattr(world, world.rng.choice([*OPERATIONS[policy], "restart"]))()
            if policy == "delete":
                world.append_many()  # so that there is something to delete
                world.append_many()
            name = OPERATIONS[policy][cut % len(OPERATIONS[policy])]
            cut_off[name] += world.cut_in(getattr(world, name))
    assert sum(cut_off.values()) > 5 * CUTS_PER_WORLD // 2, "most cuts are in the middle"
    assert min(cut_off.values()) > 0, "of everything"
