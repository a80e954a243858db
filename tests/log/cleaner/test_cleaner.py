"""Compaction against a naive model, also stopped and crashed at every step."""

from __future__ import annotations

import asyncio
import contextlib
import random
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from support.log.compacted_logs import CLUSTER, COMPACT, RETENTION_MS, TP, Writer, carry_out, drive, plan_of, records_of
from support.log.logs import DIRECTORY, NOW_MS, batch, headers_of, make_runtime, open_log, read_all

from raftwerk.chaos.sim.disk.inodes import Write
from raftwerk.chaos.sim.disk.sim_disk import SimDisk
from raftwerk.chaos.sim.kernel.event_loop import ProcessLoop, Scheduler
from raftwerk.log.cleaner import compaction
from raftwerk.log.cleaner.compaction import CleanAbortedError, clean, group_segments
from raftwerk.log.cleaner.log_cleaner import CleanerConfig, measure
from raftwerk.log.cleaner.offset_map import BYTES_PER_KEY, OffsetMap
from raftwerk.log.config import LogConfig
from raftwerk.log.hooks import LogHooks
from raftwerk.log.manager.log_manager import LogManager
from raftwerk.log.manager.log_manager_config import LogMaintenanceChange, LogManagerConfig
from raftwerk.log.manager.meta_properties import format_dirs
from raftwerk.log.partition_log import PartitionLog
from raftwerk.log.state.transaction_verification import VERIFICATION_OFF
from raftwerk.runtime.files.file_slice import in_memory
from raftwerk.runtime.ports import Runtime
from raftwerk.wire.records import (
    CorruptBatchError,
    encode_batch,
    iter_records,
)
from raftwerk.wire.types import TopicPartition

QUICK = CleanerConfig(backoff_ms=1)


def filled(seed: int, *, transactional: bool = False, segments: int = 6) -> tuple[PartitionLog, SimDisk, Writer]:
    runtime, disk = make_runtime(seed)
    log = open_log(runtime, COMPACT)
    writer = Writer(log, seed)
    writer.fill(segments, transactional)
    return log, disk, writer


@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_compaction_leaves_what_the_naive_model_leaves(seed: int, transactional: bool) -> None:
    log, disk, writer = filled(seed, transactional=transactional)
    end, producers = log.log_end_offset, [(p, list(e.batches)) for p, e in log.producers.items()]
    result = drive(clean(log, disk, plan_of(log)))
    assert result is not None
    assert result.clean_offset == log.segments[-1].base_offset
    assert result.bytes_after == log.size_bytes < result.bytes_before
    assert records_of(log) == writer.expected(end, tombstones=True)
    again = drive(clean(log, disk, plan_of(log, now_ms=NOW_MS + RETENTION_MS + 1)))
    assert again is not None
    assert records_of(log) == writer.expected(end, tombstones=False)
    drive(clean(log, disk, plan_of(log, now_ms=NOW_MS + 3 * RETENTION_MS)))
    drive(clean(log, disk, plan_of(log, now_ms=NOW_MS + 5 * RETENTION_MS)))
    assert records_of(log) == writer.expected(end, tombstones=False)
    assert log.log_end_offset == end
    assert [(p, list(e.batches)) for p, e in log.producers.items()] == producers
    check_after_reopening(log, disk)


def check_after_reopening(log: PartitionLog, disk: SimDisk) -> None:
    """Segments follow each other without a gap, indexes find everything, and recovery changes nothing."""
    for segment, following in zip(log.segments, log.segments[1:]):
        assert segment.next_offset == following.base_offset
    content, records = read_all(log), records_of(log)
    aborted = log.aborted_transactions(0, log.log_end_offset)
    runtime, _ = make_runtime()
    for recovery_point in (0, log.recovery_point):
        disk.crash(power_loss=False)
        reopened = PartitionLog.open(
            type(runtime)(disk, runtime.clock, runtime.rng), DIRECTORY, COMPACT, recovery_point=recovery_point
        )
        assert read_all(reopened) == content
        again = reopened.aborted_transactions(0, reopened.log_end_offset)
        assert [(one.producer_id, one.last_offset) for one in again] == [
            (one.producer_id, one.last_offset) for one in aborted
        ]
        # The index that is made again knows the batches that are left.
        assert all(new.first_offset >= old.first_offset for new, old in zip(again, aborted, strict=True))
        for offset, *_ in records:
            assert headers_of(reopened.read(offset, 1, end_offset=reopened.log_end_offset))[0].last_offset >= offset


@pytest.mark.parametrize("seed", range(6))
def test_read_committed_sees_the_same_before_and_after(seed: int) -> None:
    log, disk, writer = filled(seed, transactional=True)

    def committed() -> dict[bytes | None, bytes | None]:
        aborted = sorted(log.aborted_transactions(0, log.log_end_offset), key=lambda one: one.first_offset)
        state: dict[bytes | None, bytes | None] = {}
        ongoing: dict[int, None] = {}
        data, position = memoryview(read_all(log)), 0
        for header in headers_of(bytes(data)):
            while aborted and aborted[0].first_offset <= header.last_offset:
                ongoing[aborted.pop(0).producer_id] = None
            if header.is_control:
                ongoing.pop(header.producer_id, None)
            elif not (header.is_transactional and header.producer_id in ongoing):
                for record in iter_records(data[position : position + header.size_bytes]):
                    state[record.key] = record.value
            position += header.size_bytes
        state.pop(None, None)
        return {key: value for key, value in state.items() if value is not None}

    before = committed()
    newest = {one.key: one.value for one in writer.visible()}
    assert before == {key: value for key, value in newest.items() if key is not None and value is not None}
    for number in range(4):
        drive(clean(log, disk, plan_of(log, now_ms=NOW_MS + number * (RETENTION_MS + 1))))
        assert committed() == before
    markers = sum(header.is_control and header.record_count > 0 for header in headers_of(read_all(log)))
    assert markers <= len(writer.markers)


def test_a_small_offset_map_needs_more_passes_for_the_same_result() -> None:
    log, disk, writer = filled(3)
    end = log.segments[-1].base_offset
    clean_offset = passes = 0
    while clean_offset < end:
        result = drive(clean(log, disk, plan_of(log, start=clean_offset, memory=5 * BYTES_PER_KEY)))
        assert result is not None
        assert result.clean_offset > clean_offset
        clean_offset = result.clean_offset
        passes += 1
    assert passes > 3
    newest = {one.key: one.value for one in writer.written}
    found = records_of(log)
    assert {key: value for _, _, key, value in found} == {k: v for k, v in newest.items() if k is not None}
    assert set(found) <= {one[:4] for one in writer.written}


@pytest.mark.parametrize("seed", range(40))
def test_power_cuts_at_any_step_lose_nothing(seed: int) -> None:
    """After any crash the log opens with the same newest values and end offset, and can be compacted."""
    log, disk, writer = filled(seed, transactional=seed % 2 == 0, segments=5)
    rng = random.Random(seed)
    end, recovery_point = log.log_end_offset, log.recovery_point
    newest = {one.key: one.value for one in writer.visible() if one.key is not None}
    originals = {one[:4] for one in writer.visible()} | {one[:4] for one in writer.written}
    dead = []
    for _ in range(6):
        steps = clean(log, disk, plan_of(log))
        drive(steps, rng.randint(1, 90))
        dead.append((steps, log))
        disk.crash(power_loss=rng.random() < 0.8)
        runtime, _ = make_runtime(seed)
        log = PartitionLog.open(
            type(runtime)(disk, runtime.clock, runtime.rng), DIRECTORY, COMPACT, recovery_point=recovery_point
        )
        assert log.log_end_offset == end
        found = records_of(log)
        assert set(found) <= originals
        assert [one[0] for one in found] == sorted({one[0] for one in found})
        visible = {one[:4] for one in writer.visible()}
        assert {key: value for *place, key, value in found if (*place, key, value) in visible and key} == newest
        assert not [name for name in disk.listdir(DIRECTORY) if name.endswith((".cleaned", ".swap", ".deleted"))]
        log.roll()
        log.flush()
    assert drive(clean(log, disk, plan_of(log))) is not None
    assert records_of(log) == writer.expected(end, tombstones=True)


def test_a_change_of_the_log_aborts_compaction_and_no_file_is_left() -> None:
    for change in ("truncate", "retention", "close"):
        log, disk, _ = filled(1)
        steps = clean(log, disk, plan_of(log))
        drive(steps, 20)
        if change == "truncate":
            log.truncate_to(log.log_end_offset - 3)
        elif change == "retention":
            log.raise_start(log.segments[-1].base_offset)
            log.delete_expired(NOW_MS, log.log_end_offset)
        else:
            log.close()
        with pytest.raises(CleanAbortedError):
            drive(steps)
        assert not [name for name in disk.listdir(DIRECTORY) if name.endswith(".cleaned")]


def test_a_damaged_batch_stops_compaction() -> None:
    log, disk, _ = filled(1)
    disk.open(log.segments[2].file.path).pwrite(200, b"damage")
    before = log.size_bytes
    with pytest.raises(CorruptBatchError):
        drive(clean(log, disk, plan_of(log)))
    assert log.size_bytes == before
    assert not log.is_failed


def test_dirtiness_of_a_log() -> None:
    log, _, _ = filled(2)
    end = log.segments[-1].base_offset
    far = log.log_end_offset
    everything = measure(log, 0, far, far, NOW_MS)
    assert everything is not None
    assert everything[:3] == (0, end, 0)
    assert everything.ratio == 1.0
    assert not everything.is_overdue
    assert measure(log, end, far, far, NOW_MS) is None
    assert measure(log, 0, log.segments[1].base_offset - 1, far, NOW_MS) is None
    assert measure(log, 0, far, 0, NOW_MS) is None
    half = measure(log, log.segments[3].base_offset, far, far, NOW_MS)
    assert half is not None
    assert half.clean_bytes + half.dirty_bytes == everything.dirty_bytes
    log.config = LogConfig(cleanup_policy=("compact",), min_compaction_lag_ms=10_000)
    assert measure(log, 0, far, far, NOW_MS) is None
    assert measure(log, 0, far, far, NOW_MS + 20_000) is not None
    log.config = LogConfig(cleanup_policy=("compact",), max_compaction_lag_ms=10_000)
    overdue = measure(log, 0, far, far, NOW_MS + 20_000)
    assert overdue is not None
    assert overdue.is_overdue


def test_open_transactions_are_not_compacted() -> None:
    runtime, _ = make_runtime()
    log = open_log(runtime, COMPACT)
    writer = Writer(log, 1)
    writer.fill(3)
    start = log.log_end_offset
    data = batch(1, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    log.append_as_leader(data, 99, NOW_MS, guard=VERIFICATION_OFF)
    writer.log = log
    for _ in range(60):
        log.append_as_leader(batch(2, value=b"x" * 50), 99, NOW_MS)
    log.flush()
    found = measure(log, 0, log.log_end_offset, log.log_end_offset, NOW_MS)
    assert found is not None
    assert found.end_offset <= start
    assert log.producers.first_unstable_offset(log.log_end_offset) == start


def test_groups_fit_in_one_segment() -> None:
    log, _, _ = filled(1)
    drive(clean(log, log._disk, plan_of(log)))
    sizes = [[segment.size_bytes for segment in group] for group in group_segments(log.segments[:-1], 2500, 1 << 20)]
    assert all(sum(group) <= 2500 or len(group) == 1 for group in sizes)
    assert len(group_segments(log.segments[:-1], 1 << 30, 12)) == len(log.segments) - 1


def test_hooks_get_the_files_that_are_replaced() -> None:
    runtime, disk = make_runtime()
    deleted: list[str] = []
    log = open_log(runtime, COMPACT, hooks=LogHooks(on_files_deleted=lambda _, paths: deleted.extend(paths)))
    Writer(log, 4).fill(4)
    drive(clean(log, disk, plan_of(log)))
    assert f"{DIRECTORY}/{0:020d}.log.deleted" in deleted
    assert all(disk.exists(path) for path in deleted)


def test_offset_map() -> None:
    offsets = OffsetMap(2 * BYTES_PER_KEY)
    assert offsets.put(b"a", 1)
    assert offsets.put(b"b" * 40, 2)
    assert not offsets.put(b"c", 3)
    assert offsets.put(memoryview(b"a"), 4)
    assert (offsets.get(b"a"), offsets.get(b"b" * 40), offsets.get(b"c")) == (4, 2, -1)
    assert (len(offsets), offsets.latest_offset) == (2, 4)


def test_the_manager_compacts_dirty_logs_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        runtime, disk = make_runtime()
        format_dirs(runtime, ("/data",), CLUSTER, 1)
        manager = LogManager(runtime, LogManagerConfig(("/data",), CLUSTER, 1, COMPACT, cleaner=QUICK))
        manager.load()
        log = manager.create(TP, UUID(int=1))
        writer = Writer(log, 5)
        writer.fill(6)
        before = log.size_bytes
        manager.checkpoint_recovery_points()
        manager.start(lambda tp: log.log_end_offset)
        cleaned, note_clean = asyncio.Event(), manager.directories.note_clean

        def note(tp: TopicPartition, offset: int) -> None:
            note_clean(tp, offset)
            cleaned.set()

        monkeypatch.setattr(manager.directories, "note_clean", note)
        await cleaned.wait()
        clean_offset = log.segments[-1].base_offset
        manager.checkpoint_recovery_points()
        assert disk.read_bytes("/data/cleaner-offset-checkpoint") == b"0\n1\nt 0 %d\n" % clean_offset
        assert log.size_bytes < before
        assert records_of(log) == writer.expected(clean_offset, tombstones=True)
        log.truncate_to(3)
        assert manager.directories.clean_offset(TP) <= 3
        manager.shutdown()
        await asyncio.sleep(0)

    asyncio.run(main())


def test_reads_skip_segments_without_records_but_not_the_last() -> None:
    runtime, disk = make_runtime()
    log = open_log(runtime, COMPACT)
    while len(log.segments) < 5:
        log.append_as_leader(batch(1, value=b"v" * 200), 0, NOW_MS)
    log.roll()
    log.flush()
    end, bases = log.log_end_offset, [segment.base_offset for segment in log.segments]
    drive(clean(log, disk, plan_of(log)))
    assert [segment.base_offset for segment in log.segments] == bases
    assert [segment.size_bytes for segment in log.segments[:3]] == [61] * 3
    for max_bytes, min_one_batch in ((1, True), (10_000, True), (10_000, False)):
        found = headers_of(log.read(0, max_bytes, end_offset=end, min_one_batch=min_one_batch))
        assert (found[0].base_offset, found[0].record_count) == (end - 1, 1)
        limits: Any = {"end_offset": end, "min_one_batch": min_one_batch, "allow_blocking_io": True}
        assert headers_of(in_memory([log.read_or_slice(0, max_bytes, slice_bytes_min=50, **limits)])) == found
    assert headers_of(log.read(0, 1, end_offset=bases[2]))[0].last_offset == bases[2] - 1
    follower = open_log(make_runtime()[0], COMPACT)
    follower.append_as_follower(memoryview(log.read(0, 1 << 20, end_offset=end)), may_skip=True)
    assert (follower.log_start_offset, follower.log_end_offset) == (0, end)
    assert records_of(follower) == records_of(log)


class PowerCutError(BaseException):
    """A loss of power; no code catches it."""


@pytest.mark.parametrize("after", range(40))
def test_power_cuts_within_a_replacement_lose_nothing(after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut after some of the renames and fsyncs of a replacement."""
    log, disk, writer = filled(after, segments=4)
    end, recovery_point = log.log_end_offset, log.recovery_point
    newest = {one.key: one.value for one in writer.visible() if one.key is not None}
    calls = 0

    def cutting(method: Any) -> Any:
        def call(*args: Any) -> None:
            nonlocal calls
            calls += 1
            if calls > after:
                raise PowerCutError
            method(*args)

        return call

    with monkeypatch.context() as patched:
        for name in ("rename", "fsync_dir", "remove"):
            patched.setattr(disk, name, cutting(getattr(disk, name)))
        with contextlib.suppress(PowerCutError):
            drive(clean(log, disk, plan_of(log)))
    disk.crash(power_loss=True)
    runtime, _ = make_runtime()
    log = PartitionLog.open(
        Runtime(disk, runtime.clock, runtime.rng), DIRECTORY, COMPACT, recovery_point=recovery_point
    )
    assert log.log_end_offset == end
    assert {key: value for *_, key, value in records_of(log) if key is not None} == newest
    assert set(records_of(log)) <= {one[:4] for one in writer.written}


def test_io_is_throttled() -> None:
    """log.cleaner.io.max.bytes.per.second, by the clock of the loop."""

    async def main() -> float:
        runtime, _ = make_runtime()
        format_dirs(runtime, ("/data",), CLUSTER, 1)
        slow = CleanerConfig(backoff_ms=1, io_bytes_per_s=1000.0)
        manager = LogManager(runtime, LogManagerConfig(("/data",), CLUSTER, 1, COMPACT, cleaner=slow))
        manager.load()
        log = manager.create(TP, UUID(int=1))
        Writer(log, 5).fill(6)
        size = sum(segment.size_bytes for segment in log.segments[:-1])
        manager.checkpoint_recovery_points()
        manager.start(lambda tp: log.log_end_offset)
        loop, end = asyncio.get_running_loop(), log.segments[-1].base_offset
        began = loop.time()
        for _ in range(10_000):
            if manager.directories.clean_offset(TP) >= end:
                break
            await asyncio.sleep(0.01)
        manager.shutdown()
        return (loop.time() - began) * 1000 / size

    passes = ProcessLoop(Scheduler(), "test").run_until_complete(main(), 120.0)
    assert 1.9 < passes < 2.4, "what is read twice, once for its keys and once to copy it, takes so long"


def test_written_bytes_are_fsynced_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    """With too many dirty pages the system blocks the loop until the device has written them."""
    monkeypatch.setattr(compaction, "_SYNC_BYTES", 2_000)
    monkeypatch.setattr(compaction, "_WRITE_BYTES", 500)
    runtime, disk = make_runtime()
    log = open_log(runtime, config=LogConfig(segment_bytes=1 << 20))
    for number in range(200):
        log.append_as_leader(memoryview(encode_batch([(b"key %d" % number, b"x" * 100, (), 1000)])), 0, NOW_MS)
    log.roll()
    log.flush()
    most = 0
    for step in clean(log, disk, plan_of(log)):
        carry_out(step)
        path = f"{log.directory}/{0:020d}.log.cleaned"
        if disk.exists(path):
            most = max(most, sum(len(one.data) for one in disk.open(path).inode.unsynced if isinstance(one, Write)))
    assert 500 <= most <= 2_000 + 500 + 300
    assert len(records_of(log)) == 200


def test_settings_of_maintenance_change_while_it_runs() -> None:
    """A long pause ends when the back-off is made short; the pace holds for what is being cleaned."""

    async def main() -> tuple[float, int]:
        runtime, _ = make_runtime()
        format_dirs(runtime, ("/data",), CLUSTER, 1)
        slow = CleanerConfig(backoff_ms=3_600_000, io_bytes_per_s=0.001)
        manager = LogManager(runtime, LogManagerConfig(("/data",), CLUSTER, 1, COMPACT, cleaner=slow))
        manager.load()
        log = manager.create(TP, UUID(int=1))
        Writer(log, 5).fill(6)
        silent = batch(timestamp=NOW_MS, producer_id=99, producer_epoch=0, base_sequence=0)
        log.append_as_leader(silent, log.epoch_cache.latest, NOW_MS)
        manager.checkpoint_recovery_points()
        loop, end = asyncio.get_running_loop(), log.segments[-1].base_offset
        manager.start(lambda tp: log.log_end_offset)
        began = loop.time()
        await asyncio.sleep(10)
        for _ in range(2):
            manager.change_maintenance(LogMaintenanceChange(5_000, 1 << 20, 1e9, 2_000))
        for _ in range(1_000):
            if manager.directories.clean_offset(TP) >= end:
                break
            await asyncio.sleep(0.01)
        took_s, producers = loop.time() - began, len(log.producers)
        await asyncio.sleep(700)  # two rounds of retention
        manager.shutdown()
        return took_s, producers - len(log.producers)

    took_s, forgotten = ProcessLoop(Scheduler(), "test").run_until_complete(main(), 8_000.0)
    assert 12.0 <= took_s < 13.0
    assert forgotten > 0, "producer.id.expiration.ms"


def test_a_record_waits_no_longer_than_the_maximum_lag_to_be_compacted() -> None:
    """max.compaction.lag.ms: the active segment rolls, and a log that is hardly dirty is compacted all the same."""
    runtime, _ = make_runtime()
    log = open_log(runtime, replace(COMPACT, segment_bytes=1 << 20, max_compaction_lag_ms=5_000))
    Writer(log, 3).write(transactional=False)
    assert not log.roll_if_due(NOW_MS + 4_000)
    assert log.roll_if_due(NOW_MS + 5_100)
    end = log.flush()
    log.config = replace(log.config, min_cleanable_dirty_ratio=0.99)
    young, old = (measure(log, 0, end, end, NOW_MS + later_ms) for later_ms in (1_000, 5_100))
    assert young is not None and not young.is_overdue
    assert old is not None and old.is_overdue
