"""A copy of a log in another directory is cut where it differs, and only there."""

from __future__ import annotations

import pytest
from support.isr.replicas import WALL_MS, make_runtime, open_log

from raftwerk.isr.directories.log_dir_moves import copy_batches, truncate_copy
from raftwerk.log.partition_log import PartitionLog
from raftwerk.wire.records import NewRecord, encode_batch


def logs() -> tuple[PartitionLog, PartitionLog]:
    runtime, _ = make_runtime()
    return open_log(runtime, "t-0"), open_log(runtime, "t-0.copy")


def fill(log: PartitionLog, *epochs: int) -> None:
    """One record of each of the epochs."""
    for epoch in epochs:
        data = encode_batch([NewRecord(None, b"v", (), WALL_MS)], base_offset=log.log_end_offset, leader_epoch=epoch)
        log.append_as_follower(memoryview(data), epoch)


@pytest.mark.parametrize(
    ("original", "copied", "kept"),
    [
        ((1, 1, 1), (1, 1), 2),
        ((1, 1, 1), (1, 1, 1), 3),
        ((1, 1), (1, 1, 1), 2),
        ((1, 1, 3), (1, 1, 2, 2), 2),
        ((1, 2, 4), (1, 2, 2, 3), 2),
        ((1, 2, 2), (1, 1, 1), 1),
        ((1, 1), (), 0),
        ((), (), 0),
    ],
)
def test_the_copy_keeps_what_the_log_has(original: tuple[int, ...], copied: tuple[int, ...], kept: int) -> None:
    log, copy = logs()
    fill(log, *original)
    fill(copy, *copied)
    truncate_copy(log, copy)
    assert copy.log_end_offset == kept
    while copy_batches(log, copy):
        pass
    assert copy.log_end_offset == log.log_end_offset
    assert copy.epoch_cache.entries == log.epoch_cache.entries


def test_a_copy_that_ends_below_the_logs_start_begins_anew() -> None:
    log, copy = logs()
    fill(log, 1, 1, 1, 1)
    fill(copy, 1, 1)
    log.advance_start(3)
    truncate_copy(log, copy)
    assert (copy.log_start_offset, copy.log_end_offset) == (3, 3)
