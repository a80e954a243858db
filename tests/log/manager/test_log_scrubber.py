"""The search for damage in the files of logs."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest
from support.log.logs import SMALL, append, headers_of, make_runtime, open_log

from raftwerk.chaos.sim.disk.sim_disk import SimDisk
from raftwerk.chaos.sim.kernel.event_loop import ProcessLoop, Scheduler
from raftwerk.log.manager import log_scrubber
from raftwerk.log.manager.log_loading import METADATA_LOG
from raftwerk.log.manager.log_manager import LogManager
from raftwerk.log.manager.log_manager_config import LogManagerConfig, ScrubberConfig
from raftwerk.log.manager.log_scrubber import find_damage
from raftwerk.log.manager.meta_properties import format_dirs
from raftwerk.log.partition_log import PartitionLog
from raftwerk.log.segment.batch_scan import Damage
from raftwerk.log.state.checkpoints import read_offsets
from raftwerk.runtime.incremental_work import run_at_once
from raftwerk.runtime.ports import Runtime
from raftwerk.wire.types import TopicPartition

TP = TopicPartition("t", 0)
CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
SCRUBBER = ScrubberConfig(interval_ms=5)


def filled() -> tuple[SimDisk, PartitionLog]:
    runtime, disk = make_runtime()
    log = open_log(runtime)
    for number in range(40):
        append(log, 3, epoch=number // 10)
    assert len(log.segments) > 3
    return disk, log


def test_a_sound_log() -> None:
    _, log = filled()
    assert run_at_once(find_damage(log)) is None
    log.truncate_fully_and_start_at(7)
    assert run_at_once(find_damage(log)) is None


@pytest.mark.parametrize("at", range(4))
def test_every_flipped_byte_is_found(at: int) -> None:
    disk, log = filled()
    segment = log.segments[1]
    size = log.segments[1].size_bytes
    for position in range(at, size, 4):
        disk.flip_bit(segment.file.path, position, position % 8)
        found = run_at_once(find_damage(log))
        assert found is not None and found.segment_base_offset == segment.base_offset, position
        assert segment.base_offset <= found.offset < segment.next_offset
        disk.flip_bit(segment.file.path, position, position % 8)
    assert run_at_once(find_damage(log)) is None


@pytest.mark.parametrize("lost_batches", [1, 3])
def test_batches_that_are_missing_whole_are_found(lost_batches: int) -> None:
    """As on a disk that lied about an fsync: below the recovery point nothing is checked when the log is opened."""
    runtime, disk = make_runtime()
    log = open_log(runtime)
    for number in range(40):
        append(log, 3, epoch=number // 10)
    segment = log.segments[1]
    ends = [header.next_offset for header in headers_of(segment.file.pread(0, segment.size_bytes))]
    sizes = [header.size_bytes for header in headers_of(segment.file.pread(0, segment.size_bytes))]
    path, end_offset = segment.file.path, log.log_end_offset
    log.close()
    file = disk.open(path)
    file.truncate(sum(sizes[:-lost_batches]))
    file.close()

    def reopened(*, has_gaps: bool) -> PartitionLog:
        return open_log(runtime, recovery_point=end_offset, clean_shutdown=True, has_gaps=has_gaps)

    log = reopened(has_gaps=False)
    found = run_at_once(find_damage(log))
    assert found is not None and found.offset == ends[-lost_batches - 1], found
    log.close()
    assert run_at_once(find_damage(reopened(has_gaps=True))) is None, "they may have been compacted away"


def test_a_batch_that_reaches_into_the_next_segment_is_damaged() -> None:
    """No CRC covers its offset. Where offsets may be missing, only what follows shows that it is too great."""
    disk, log = filled()
    segment = log.segments[0]
    last = headers_of(segment.file.pread(0, segment.size_bytes))[-1]
    assert log.may_have_gaps and last.next_offset == log.segments[1].base_offset
    position = segment.size_bytes - last.size_bytes
    disk.open(segment.file.path).pwrite(position, (last.base_offset + 1).to_bytes(8, "big"))
    found = run_at_once(find_damage(log))
    assert found is not None and found.offset == last.base_offset


def test_damage_below_the_start_of_the_log_does_not_count() -> None:
    disk, log = filled()
    disk.flip_bit(log.segments[0].file.path, 70, 1)
    assert run_at_once(find_damage(log)) is not None
    log.raise_start(log.segments[1].base_offset)
    assert run_at_once(find_damage(log)) is None


def test_a_log_that_is_truncated_meanwhile_is_not_called_damaged() -> None:
    _, log = filled()
    work = find_damage(log)
    next(work)
    log.truncate_to(5)
    assert run_at_once(work) is None


def test_the_steps_of_a_check_count_each_byte_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pauses follow from them, and the metric of checked bytes."""
    monkeypatch.setattr(log_scrubber, "_WINDOW_BYTES", 300)
    _, log = filled()
    assert sum(step.done_bytes for step in find_damage(log)) == log.size_bytes


def running() -> tuple[Runtime, SimDisk, LogManager]:
    runtime, disk = make_runtime()
    format_dirs(runtime, ("/data",), CLUSTER, 1)
    manager = LogManager(runtime, LogManagerConfig(("/data",), CLUSTER, 1, SMALL, scrubber=SCRUBBER))
    manager.load()
    return runtime, disk, manager


def test_damage_is_found_in_the_background_and_remembered() -> None:
    async def main() -> None:
        runtime, disk, manager = running()
        log = manager.create(TP, UUID(int=1))
        for _ in range(40):
            append(log, 3)
        found: list[tuple[TopicPartition, Damage]] = []
        manager.start(on_damaged=lambda tp, damage: found.append((tp, damage)))
        await asyncio.sleep(0.05)
        assert not found and manager.scrubber is not None and not manager.scrubber.damaged
        segment = log.segments[1]
        disk.flip_bit(segment.file.path, 100, 1)
        await asyncio.sleep(0.1)
        assert found[0] == found[1] == (TP, manager.scrubber.damaged[TP])
        assert found[0][1].segment_base_offset == segment.base_offset and "CRC" in found[0][1].what
        assert manager.scrubber.checked_bytes >= 2 * segment.size_bytes
        manager.shutdown()
        assert read_offsets(disk, "/data/damaged-offset-checkpoint") == {TP: segment.base_offset}

        manager = LogManager(runtime, LogManagerConfig(("/data",), CLUSTER, 1, SMALL, scrubber=ScrubberConfig(60_000)))
        manager.load()
        manager.start()
        await asyncio.sleep(0.05)
        assert manager.scrubber is not None and TP in manager.scrubber.damaged
        disk.flip_bit(segment.file.path, 100, 1)
        await manager.scrubber.check(TP)
        assert not manager.scrubber.damaged
        manager.shutdown()
        assert read_offsets(disk, "/data/damaged-offset-checkpoint") == {}

    asyncio.run(main())


def test_damage_in_the_metadata_log_is_found_and_noted() -> None:
    async def main() -> None:
        runtime, disk, manager = running()
        log = PartitionLog.open(runtime, "/data/__cluster_metadata-0", SMALL, has_gaps=False)
        for _ in range(40):
            append(log, 3)
        found: list[Damage] = []
        manager.scrub_metadata_log(log, found.append)
        manager.start()
        await asyncio.sleep(0.05)
        assert not found
        segment = log.segments[1]
        disk.flip_bit(segment.file.path, 100, 1)
        await asyncio.sleep(0.1)
        assert found[0].segment_base_offset == segment.base_offset
        scrubber = manager.metadata_scrubber
        assert scrubber is not None and list(scrubber.damaged) == [METADATA_LOG]
        log.close()
        await asyncio.sleep(0.05)
        assert list(scrubber.damaged) == [METADATA_LOG], "a log that is closed tells nothing"
        manager.shutdown()
        checkpoint = "/data/damaged-offset-checkpoint"
        assert read_offsets(disk, checkpoint) == {METADATA_LOG: segment.base_offset}

        manager = LogManager(runtime, LogManagerConfig(("/data",), CLUSTER, 1, SMALL, scrubber=ScrubberConfig(60_000)))
        manager.load()
        log = PartitionLog.open(runtime, "/data/__cluster_metadata-0", SMALL, has_gaps=False)
        assert log.log_end_offset == segment.base_offset, "it was checked, and what is damaged is cut off"
        manager.scrub_metadata_log(log, found.append)
        await asyncio.sleep(0.05)
        manager.shutdown()
        assert read_offsets(disk, checkpoint) == {}

    asyncio.run(main())


def test_a_check_takes_as_long_as_its_bytes_may() -> None:
    """Clients need the disk, too."""
    runtime, _ = make_runtime()
    format_dirs(runtime, ("/data",), CLUSTER, 1)
    slow = ScrubberConfig(interval_ms=1000, io_bytes_per_s=500)

    async def main() -> None:
        manager = LogManager(runtime, LogManagerConfig(("/data",), CLUSTER, 1, SMALL, scrubber=slow))
        manager.load()
        log = manager.create(TP, UUID(int=1))
        for _ in range(40):
            append(log, 3)
        manager.start()
        assert manager.scrubber is not None
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        assert await manager.scrubber.check(TP) is None
        assert loop.time() - began_s == pytest.approx(log.size_bytes / 500, rel=0.2)
        began_s, from_there = loop.time(), log.segments[1:]
        assert await manager.scrubber.check(TP, mended_at=from_there[0].base_offset) is None
        size_bytes = sum(one.size_bytes for one in from_there)
        assert loop.time() - began_s == pytest.approx(size_bytes / 8_000, rel=0.2), "in a hurry, and only from there on"
        manager.shutdown()

    ProcessLoop(Scheduler(), "test").run_until_complete(main())


def test_the_metadata_log_is_not_checked_again_right_after_it_was_opened() -> None:
    async def main() -> None:
        _, _, manager = running()
        log = PartitionLog.open(make_runtime()[0], "/data/__cluster_metadata-0", SMALL, has_gaps=False)
        append(log, 3)
        manager.scrub_metadata_log(log, lambda _: None)
        manager.start()
        await asyncio.sleep(SCRUBBER.interval_ms / 2000)
        assert manager.metadata_scrubber is not None and manager.metadata_scrubber.checked_bytes == 0
        await asyncio.sleep(SCRUBBER.interval_ms / 1000)
        assert manager.metadata_scrubber.checked_bytes == log.size_bytes
        manager.shutdown()

    ProcessLoop(Scheduler(), "test").run_until_complete(main())
