"""No call on the event loop waits for a slow device."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from support.log.compacted_logs import CLUSTER, COMPACT, Writer, records_of
from support.log.logs import NOW_MS, append, make_runtime, read_all

from raftwerk.chaos.sim.disk.sim_disk import SimDisk
from raftwerk.chaos.sim.kernel.event_loop import ProcessLoop, Scheduler
from raftwerk.log.cleaner.log_cleaner import CleanerConfig
from raftwerk.log.config import LogConfig
from raftwerk.log.manager.log_maintenance import RetentionRounds
from raftwerk.log.manager.log_manager import LogManager
from raftwerk.log.manager.log_manager_config import LogManagerConfig, RetentionConfig
from raftwerk.log.manager.meta_properties import format_dirs
from raftwerk.log.partition_log import PartitionLog
from raftwerk.runtime.ports import Runtime
from raftwerk.wire.types import TopicPartition

TP, OTHER = TopicPartition("t", 0), TopicPartition("u", 0)


def running(config: LogConfig) -> tuple[Runtime, SimDisk, LogManager, Counter[str]]:
    """A manager on a disk whose fsyncs take some tenths of a second, and a count of its blocking calls from now on."""
    runtime, disk = make_runtime()
    format_dirs(runtime, ("/data",), CLUSTER, 1)
    cleaner = CleanerConfig(backoff_ms=100)
    manager = LogManager(runtime, LogManagerConfig(("/data",), CLUSTER, 1, config, cleaner=cleaner))
    manager.load()
    disk.set_sync_latency(0.05, 0.5)
    held: Counter[str] = Counter()
    disk.on_blocking = lambda operation, path: held.update([f"{operation} {path}"])
    return runtime, disk, manager, held


def run(main: Coroutine[Any, Any, None]) -> None:
    ProcessLoop(Scheduler(), "test").run_until_complete(main)


async def until(manager: LogManager, log: PartitionLog, condition: str) -> None:
    """Wait, with a hundred appends a second meanwhile; some of them roll."""
    other = manager.get(OTHER)
    for number in range(6_000):
        if {"clean": manager.directories.clean_offset(TP) >= log.segments[-1].base_offset, "gone": not deleted(log)}[
            condition
        ]:
            return
        if other is not None:
            append(other, 1)
            if number % 50 == 0:
                other.roll()
        await asyncio.sleep(0.01)
    raise AssertionError(f"not {condition} within a minute")


def deleted(log: PartitionLog) -> list[str]:
    disk: Any = log._disk
    return [name for name in disk.listdir(log.directory) if name.endswith((".deleted", ".swap"))]


def test_compaction_rolls_and_flushes_do_not_block_the_loop() -> None:
    async def main() -> None:
        _, disk, manager, held = running(replace(COMPACT, file_delete_delay_ms=0))
        log, _ = manager.create(TP, UUID(int=1)), manager.create(OTHER, UUID(int=2))
        writer = Writer(log, 5)
        while len(log.segments) < 12:
            writer.write(transactional=False)
        log.roll()
        manager.start(lambda tp: log.log_end_offset if tp == TP else 0)
        await until(manager, log, "clean")
        clean_offset = log.segments[-1].base_offset
        await until(manager, log, "gone")
        assert records_of(log) == writer.expected(clean_offset, tombstones=True)
        assert held == {}
        assert not [path for path in disk.listdir("/data/t-0") if path.endswith((".swap", ".cleaned", ".deleted"))]
        manager.shutdown()
        assert held, "it would be seen"

    run(main())


@pytest.mark.parametrize("keep_bytes", [4000, 0])
def test_retention_does_not_block_the_loop_even_when_all_segments_go(keep_bytes: int) -> None:
    async def main() -> None:
        config = LogConfig(segment_bytes=1500, retention_ms=-1, file_delete_delay_ms=0)
        runtime, disk, manager, held = running(config)
        log = manager.create(TP, UUID(int=1))
        append(log, 3, producer_id=5, producer_epoch=0, base_sequence=0)
        while len(log.segments) < 9:
            append(log, 3)
        manager.start(lambda tp: log.log_end_offset)
        await log.flush_soon()
        log.config = replace(config, retention_bytes=keep_bytes) if keep_bytes else replace(config, retention_ms=1)
        left, end = read_all(log), log.log_end_offset
        keeper = RetentionRounds(RetentionConfig(), runtime.clock, lambda: manager.logs, lambda tp: end)
        keeper.visit(TP, log)
        assert log.is_changing_names
        assert left.endswith(read_all(log)) and bool(log.size_bytes) == bool(keep_bytes)
        keeper.visit(TP, log)
        append(log, 3)
        await until(manager, log, "gone")
        assert held == {}
        start, content = log.log_start_offset, read_all(log)
        await log.flush_soon()
        disk.crash()
        log = PartitionLog.open(runtime, log.directory, config, recovery_point=end)
        assert log.log_end_offset == end + 3 and log.log_start_offset == start and read_all(log) == content

    run(main())


@pytest.mark.parametrize("delay_ms", range(0, 2400, 60))
def test_truncation_and_close_finish_a_replacement_under_way(delay_ms: int) -> None:
    """A truncation or a close in each stage of a replacement leaves nothing half done."""

    async def main() -> None:
        runtime, disk, manager, _ = running(replace(COMPACT, file_delete_delay_ms=0))
        log = manager.create(TP, UUID(int=1))
        writer = Writer(log, delay_ms)
        while len(log.segments) < 5:
            writer.write(transactional=False)
        log.roll()
        for _ in range(5):
            writer.write(transactional=False)
        end = log.flush()
        manager.checkpoint_recovery_points()
        manager.start(lambda tp: end)
        await asyncio.sleep(0.1 + delay_ms / 1000)
        newest = {one.key: one.value for one in writer.written if one.key is not None}
        if delay_ms % 120:
            log.truncate_to(end - 1)
            newest = {}
        manager.shutdown()
        assert not [name for name in disk.listdir("/data/t-0") if name.endswith(".swap")]
        again = PartitionLog.open(runtime, log.directory, COMPACT, clean_shutdown=True)
        found = records_of(again)
        assert [one[0] for one in found] == sorted({one[0] for one in found})
        assert not newest or {key: value for *_, key, value in found if key is not None} == newest
        await asyncio.sleep(2)

    run(main())


def test_blocking_calls_are_seen() -> None:
    """The disk of the test counts the calls that would wait for a device."""
    runtime, disk, _, held = running(COMPACT)
    disk.write_atomic("/data/x", b"")
    disk.fsync_dir("/data")
    assert held == {"write_atomic /data/x": 1, "fsync_dir /data": 1}
    assert runtime.clock.wall_ms() == NOW_MS
