"""What an unclean start checks of segments, from where on, and what it knows of them afterwards."""

from __future__ import annotations

from typing import Any

import pytest
from support.log.logs import DIRECTORY, NOW_MS, SMALL, append, headers_of, make_runtime, open_log, read_all

from raftwerk.chaos.sim.disk.sim_disk import SimDisk
from raftwerk.log.config import LogConfig
from raftwerk.log.partition_log import PartitionLog
from raftwerk.log.recovery import segment_recovery
from raftwerk.log.recovery.log_recovery import load
from raftwerk.runtime.incremental_work import Step
from raftwerk.runtime.ports import Runtime

CONFIG = LogConfig(index_interval_bytes=300)
FIRST = f"{DIRECTORY}/{0:020d}.log"
EPOCHS = f"{DIRECTORY}/leader-epoch-checkpoint"
POINT = 12


def half_durable(timestamps: tuple[int, ...] = (1000,) * POINT, after: int = 8) -> tuple[Runtime, SimDisk, bytes]:
    """A log of one segment whose first batches are below a producer snapshot and the recovery point; its bytes.

    Each batch has one record.
    """
    runtime, disk = make_runtime()
    log = open_log(runtime, CONFIG)
    for timestamp in timestamps:
        append(log, timestamp=timestamp)
    log.close()
    log = open_log(runtime, CONFIG, recovery_point=POINT, clean_shutdown=True)
    for _ in range(after):
        append(log)
    log.segments[-1].save_indexes()
    content = read_all(log)
    log.close(clean=False)
    return runtime, disk, content


def steps_of_check(disk: SimDisk) -> list[Step]:
    return list(load(disk, DIRECTORY, CONFIG, recovery_point=POINT, start_offset=0, clean_shutdown=False))


def unclean(runtime: Runtime, recovery_point: int = POINT) -> PartitionLog:
    return open_log(runtime, CONFIG, recovery_point=recovery_point)


def test_what_is_below_a_snapshot_is_not_checked_where_a_leader_epoch_begins_right_after_it() -> None:
    runtime, disk, content = half_durable(after=0)
    size_bytes = len(content)
    log = open_log(runtime, CONFIG, recovery_point=POINT, clean_shutdown=True)
    for _ in range(4):
        append(log, epoch=3)
    end = log.size_bytes
    log.close(clean=False)
    disk.write_atomic(EPOCHS, b"0\n2\n0 0\n3 12\n")
    steps = steps_of_check(disk)
    assert sum(step.done_bytes for step in steps) == end - size_bytes
    assert [(one.position, one.length) for one in (step.reads for step in steps) if one is not None] == [
        (size_bytes, end - size_bytes)
    ], "only what is checked is read ahead"


@pytest.mark.parametrize("damaged", ["offset", "magic"])
def test_a_segment_is_checked_from_its_start_where_batches_below_the_snapshot_contradict_it(damaged: str) -> None:
    """The last batch before the snapshot is not what it was, so nothing else is believed either.

    The index and the greatest timestamp are those of what is left: another batch is damaged, too.
    """
    runtime, disk, content = half_durable((*[1000] * 6, 9000, *[1000] * 5))
    headers = headers_of(content)
    size_bytes = headers[0].size_bytes
    position = (POINT - 1) * size_bytes
    if damaged == "offset":
        disk.open(FIRST).pwrite(position, (5).to_bytes(8, "big"))
    else:
        disk.flip_bit(FIRST, position + 16, 0)
    disk.flip_bit(FIRST, 6 * size_bytes + 70, 0)
    log = unclean(runtime)
    assert (log.log_end_offset, log.size_bytes) == (6, 6 * size_bytes)
    (segment,) = log.segments
    assert segment.largest_timestamp() == 1000
    assert all(at < 6 * size_bytes for at in segment.offset_index.positions)
    index = disk.read_bytes(FIRST.replace(".log", ".index"))
    append(log)
    assert len(index) <= 8, "what the file had of the batches that are gone is gone"
    assert log.offset_for_timestamp(2000) is None


def test_the_first_of_the_batches_with_the_greatest_timestamp_is_known_of_what_was_not_checked_again() -> None:
    """A look-up of the greatest timestamp gives the first record that has it."""
    runtime, _, _ = half_durable((*[1000] * 10, 9000, 9000))
    (segment,) = unclean(runtime).segments
    assert (segment.largest_timestamp(), segment.max_timestamp_offset) == (9000, 10)


def test_a_leader_epoch_of_the_checkpoint_that_the_first_batch_does_not_have_costs_no_batch() -> None:
    """The checkpoint may be from before a truncation. What is checked says itself of which epoch it is."""
    runtime, disk, content = half_durable()
    disk.write_atomic(EPOCHS, b"0\n1\n7 0\n")
    log = unclean(runtime)
    assert read_all(log) == content
    assert [(entry.epoch, entry.start_offset) for entry in log.epoch_cache.entries] == [(0, 0)]


def test_no_segment_before_that_of_the_recovery_point_is_checked_even_without_a_snapshot() -> None:
    """What has rotted there is repaired from another replica; a check would cut the log off."""
    runtime, disk = make_runtime()
    log = open_log(runtime)
    for _ in range(60):
        append(log)
    base = log.segments[2].base_offset
    log.close()
    for name in disk.listdir(DIRECTORY):
        if name.endswith(".snapshot"):
            disk.remove(f"{DIRECTORY}/{name}")
    disk.flip_bit(f"{DIRECTORY}/{log.segments[1].base_offset:020d}.log", 70, 0)
    assert open_log(runtime, recovery_point=base).log_end_offset == 60


@pytest.mark.parametrize("recovery_point", [0, 10])
def test_the_offset_index_goes_on_after_a_check_as_if_the_log_had_stayed_open(recovery_point: int) -> None:
    """Without what came after the last entry the next one would come late, and look-ups would scan more."""
    positions = []
    for stays_open in (True, False):
        runtime, _ = make_runtime()
        log = open_log(runtime, CONFIG)
        for number in range(40):
            if number == 10:
                log.close()  # with a snapshot, between two entries of the index
                log = open_log(runtime, CONFIG, recovery_point=10, clean_shutdown=True)
            if number == 20 and not stays_open:
                log.close(clean=False)
                log = unclean(runtime, recovery_point)
            append(log)
        positions.append(list(log.segments[0].offset_index.positions))
    assert positions[0] == positions[1] and len(positions[0]) > 5


@pytest.mark.parametrize("recovery_point", [0, POINT])
def test_a_checked_segment_is_rolled_when_its_first_record_is_old(recovery_point: int) -> None:
    """Else the segment of a log with little traffic would live on with each unclean start."""
    runtime, _, _ = half_durable()
    log = unclean(runtime, recovery_point)
    append(log, timestamp=NOW_MS)
    assert [segment.base_offset for segment in log.segments] == [0, 20]


def test_a_step_of_a_check_is_as_long_as_it_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step for each batch would make the recovery of a large log slow."""
    options: Any = {"recovery_point": 0, "start_offset": 0, "clean_shutdown": False}
    runtime, disk = make_runtime()
    log = open_log(runtime)
    for _ in range(60):
        append(log)
    size_bytes, segments = headers_of(read_all(log))[0].size_bytes, len(log.segments)
    log.close(clean=False)
    with_work = [step for step in load(disk, DIRECTORY, SMALL, **options) if step.done_bytes]
    assert len(with_work) == segments, "each segment is smaller than a step"
    monkeypatch.setattr(segment_recovery, "STEP_BYTES", 3 * size_bytes)
    done = [step.done_bytes // size_bytes for step in load(disk, DIRECTORY, SMALL, **options) if step.done_bytes]
    assert sum(done) == 60 and sum(one < 3 for one in done) <= segments
