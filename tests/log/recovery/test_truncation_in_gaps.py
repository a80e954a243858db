"""A log that is truncated where compaction has removed offsets: they are not given again, and nothing after is lost."""

from __future__ import annotations

import pytest
from support.log.logs import append, batch, headers_of, make_runtime, open_log, read_all

from raftwerk.chaos.sim.disk.sim_disk import SimDisk
from raftwerk.log.config import LogConfig
from raftwerk.log.partition_log import PartitionLog
from raftwerk.runtime.ports import Runtime

COMPACTED = LogConfig(index_interval_bytes=100, cleanup_policy=("compact",))
"""Offsets 4 to 8 are missing; an epoch began among them."""


def at(offset: int, epoch: int) -> memoryview:
    data = memoryview(bytearray(batch(1)))
    data[:8] = offset.to_bytes(8, "big")
    data[12:16] = epoch.to_bytes(4, "big")
    return data


def with_a_gap() -> tuple[Runtime, SimDisk, PartitionLog]:
    runtime, disk = make_runtime()
    log = open_log(runtime, COMPACTED)
    for offset in (0, 1, 2, 3, 9, 10):
        log.append_as_follower(at(offset, 1 if offset < 9 else 3), may_skip=True)
    log.epoch_cache.truncate_from_end(9)
    log.epoch_cache.assign(2, 5)
    log.epoch_cache.assign(3, 9)
    log.flush()
    return runtime, disk, log


@pytest.mark.parametrize("offset", [4, 5, 7, 9])
@pytest.mark.parametrize("is_clean", [True, False])
def test_a_restart_keeps_the_end_and_what_was_appended_after_it(offset: int, is_clean: bool) -> None:
    runtime, disk, log = with_a_gap()
    log.truncate_to(offset)
    assert log.log_end_offset == offset
    log.roll()
    append(log, 3, epoch=6)
    log.flush()
    content, epochs = read_all(log), log.epoch_cache.entries
    if is_clean:
        log.close()
    else:
        disk.crash()
    again = open_log(runtime, COMPACTED, recovery_point=0, clean_shutdown=is_clean)
    assert again.log_end_offset == offset + 3 and read_all(again) == content
    assert [one.epoch for one in again.epoch_cache.entries] == [one.epoch for one in epochs]


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_restart_after_the_truncation_does_not_lower_the_end(is_clean: bool) -> None:
    runtime, disk, log = with_a_gap()
    log.truncate_to(7)
    assert headers_of(read_all(log))[-1].record_count == 0
    if is_clean:
        log.close()
    else:
        disk.crash()
    again = open_log(runtime, COMPACTED, recovery_point=0, clean_shutdown=is_clean)
    assert again.log_end_offset == 7 and again.epoch_cache.latest_epoch() == 2


def test_a_disk_without_space_for_the_empty_batch_does_not_fail_the_log() -> None:
    _, disk, log = with_a_gap()
    log.truncate_to(9)
    log.truncate_to(8)
    disk.fill(0)
    log.truncate_to(7)
    assert not log.is_failed and log.log_end_offset == 7


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("has_former", [True, False])
def test_a_restart_keeps_the_end_in_the_gap_with_which_a_segment_begins(has_former: bool, is_clean: bool) -> None:
    """The leader epoch of the batch that was cut off, 3, is not that of the offsets before it."""
    runtime, disk = make_runtime()
    log = open_log(runtime, COMPACTED)
    if has_former:
        append(log, 5, epoch=1)
        log.roll()
    else:
        log.truncate_fully_and_start_at(5)
    log.append_as_follower(at(50, 3), may_skip=True)
    log.flush()
    assert (log.segments[-1].base_offset, log.log_end_offset) == (5, 51)
    log.truncate_to(20)
    log.append_as_follower(at(20, 2), may_skip=True)
    log.truncate_to(20)
    assert log.log_end_offset == 20
    log.flush()
    start = log.log_start_offset
    if is_clean:
        log.close()
    else:
        disk.crash()
    again = open_log(runtime, COMPACTED, recovery_point=20, log_start_offset=start, clean_shutdown=is_clean)
    assert (again.log_start_offset, again.log_end_offset) == (start, 20)
    assert again.epoch_cache.latest_epoch() == (1 if has_former else None)
    again.append_as_follower(at(20, 2), may_skip=True)
    assert again.epoch_cache.latest_epoch() == 2 and again.epoch_cache.epoch_for_offset(20) == 2
