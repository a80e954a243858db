"""Logs are opened in steps: the loop runs meanwhile, progress is logged, and a stop in the middle does no harm."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import UUID

import pytest
from support.log.compacted_logs import CLUSTER
from support.log.logs import append, make_runtime, read_all

from raftwerk.chaos.sim.disk.sim_disk import SimDisk
from raftwerk.chaos.sim.kernel.event_loop import ProcessLoop, Scheduler
from raftwerk.log.config import LogConfig
from raftwerk.log.manager.log_loading import LoadProgress
from raftwerk.log.manager.log_manager import LogManager
from raftwerk.log.manager.log_manager_config import LogManagerConfig
from raftwerk.log.manager.meta_properties import format_dirs
from raftwerk.log.partition_log import PartitionLog
from raftwerk.log.recovery.segment_recovery import STEP_BATCHES
from raftwerk.runtime.incremental_work import run_at_once
from raftwerk.runtime.ports import Runtime
from raftwerk.wire.types import TopicPartition

LARGE = LogConfig(segment_bytes=1 << 20, index_interval_bytes=100)


def filled(logs: int, batches: int) -> tuple[Runtime, SimDisk, dict[TopicPartition, bytes]]:
    runtime, disk = make_runtime()
    format_dirs(runtime, ("/data",), CLUSTER, 1)
    manager = manager_of(runtime)
    manager.load()
    content = {}
    for number in range(logs):
        tp = TopicPartition("t", number)
        log = manager.create(tp, UUID(int=7))
        for _ in range(batches):
            append(log, 1)
        content[tp] = read_all(log)
    disk.crash(power_loss=False)
    return runtime, disk, content


def manager_of(runtime: Runtime, on_progress: Callable[[str], None] = lambda text: None) -> LogManager:
    return LogManager(runtime, LogManagerConfig(("/data",), CLUSTER, 1, LARGE, on_progress=on_progress))


def run(main: Coroutine[Any, Any, None]) -> None:
    ProcessLoop(Scheduler(), "test").run_until_complete(main)


def test_the_loop_runs_while_logs_are_checked() -> None:
    runtime, disk, content = filled(20, 30)

    async def main() -> None:
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.get_running_loop().create_task(others())
        manager = manager_of(runtime)
        manager.begin_load()
        await manager.load_soon()
        assert turns > 2 * len(content)
        assert {tp: read_all(log) for tp, log in manager.logs.items()} == content
        task.cancel()
        manager.shutdown()

    run(main())
    assert disk.exists("/data/.kafka_cleanshutdown")


def test_a_large_segment_is_checked_in_pieces() -> None:
    runtime, _, content = filled(1, 3 * STEP_BATCHES)
    steps = PartitionLog.opening(runtime, "/data/t-0", LARGE)
    pieces = []
    while True:
        try:
            pieces.append(next(steps))
        except StopIteration as end:
            log = end.value
            break
    assert len(pieces) >= 4
    assert sum(piece.done_bytes for piece in pieces) == len(content[TopicPartition("t", 0)]) == log.size_bytes
    assert max(piece.done_bytes for piece in pieces) < log.size_bytes / 2
    again = run_at_once(PartitionLog.opening(runtime, "/data/t-0", LARGE))
    assert read_all(again) == read_all(log) == content[TopicPartition("t", 0)]


def test_progress_is_logged_while_the_device_is_slow(caplog: pytest.LogCaptureFixture) -> None:
    runtime, disk, content = filled(12, 3)
    disk.make_cold()
    disk.set_sync_latency(0.9, 1.1)
    heard: list[str] = []

    async def main() -> None:
        manager = manager_of(runtime, on_progress=heard.append)
        manager.begin_load()
        await manager.load_soon()
        manager.shutdown()

    with caplog.at_level(logging.INFO, "raftwerk.log"):
        run(main())
    told = [line for line in caplog.messages if line.startswith("opening logs: ")]
    assert len(told) >= 3 and any(f" of {len(content)}, " in line for line in told)
    assert len(heard) == len(told) and f" of {len(content)} logs, " in heard[0]
    assert any(line.startswith("12 logs opened in ") for line in caplog.messages)


def test_the_check_of_one_large_log_is_progress() -> None:
    """Who waits for the node compares the texts: one that stays the same for long is no progress."""
    heard: list[str] = []

    async def main() -> None:
        progress = LoadProgress(heard.append)
        progress.logs_total = 1
        for _ in range(4):
            await asyncio.sleep(2)
            progress.checked(50_000_000)

    run(main())
    assert heard[0] == "has opened 0 of 1 logs, 50.0 MB checked so far"
    assert len(heard) == len(set(heard)) == 4


@pytest.mark.parametrize("clean", [True, False])
def test_a_stop_in_the_middle_leaves_the_directory_as_it_was(clean: bool) -> None:
    runtime, disk, content = filled(30, 5)
    if clean:
        manager = manager_of(runtime)
        manager.load()
        manager.shutdown(broker_epoch=5)
    checkpoint = disk.exists("/data/recovery-point-offset-checkpoint") and disk.read_bytes(
        "/data/recovery-point-offset-checkpoint"
    )

    async def main() -> None:
        manager = manager_of(runtime)
        manager.begin_load()
        task = asyncio.get_running_loop().create_task(manager.load_soon())
        for _ in range(12):
            await asyncio.sleep(0)
        assert 0 < len(manager.logs) < len(content)
        task.cancel()
        await asyncio.wait([task])
        assert manager.previous_broker_epoch == (5 if clean else -1)
        manager.shutdown(manager.previous_broker_epoch)

    run(main())
    assert disk.exists("/data/.kafka_cleanshutdown") == clean
    if checkpoint:
        assert disk.read_bytes("/data/recovery-point-offset-checkpoint") == checkpoint
    manager = manager_of(runtime)
    manager.load()
    assert {tp: read_all(log) for tp, log in manager.logs.items()} == content
    assert manager.previous_broker_epoch == (5 if clean else -1)
