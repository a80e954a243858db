"""A full disk, wherever it is noticed: nothing is lost, nothing fails for good, and with space again all goes on."""

from __future__ import annotations

import contextlib

import pytest
from log_helpers import NOW_MS, SMALL, append, batch, make_runtime, open_log, read_all

from raftwerk.log.errors import NoSpaceError
from raftwerk.log.partition_log import PartitionLog
from raftwerk.wire.types import TopicPartition

A = TopicPartition("a", 0)
MB = 1 << 20


def about_to_roll(log: PartitionLog) -> None:
    """Append, with a producer's state to be snapshotted, until the next batch does not fit the segment."""
    sequence = 0
    while log.segments[-1].size_bytes + 300 <= SMALL.segment_bytes:
        data = batch(
            1, value=b"x" * 60, timestamp=1000 + sequence, producer_id=5, producer_epoch=0, base_sequence=sequence
        )
        log.append_as_leader(data, 0, NOW_MS)
        sequence += 1


@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize("left_bytes", range(0, 400, 7))
def test_no_space_at_a_roll_is_no_failure(left_bytes: int, flushed: bool) -> None:
    runtime, disk = make_runtime()
    log = open_log(runtime)
    about_to_roll(log)
    if flushed:
        log.flush()
    before, end = read_all(log), log.log_end_offset
    disk.fill(left_bytes)
    with pytest.raises(NoSpaceError):
        append(log, value=b"y" * 400)
    assert not log.is_failed and log.log_end_offset == end and read_all(log) == before
    with contextlib.suppress(NoSpaceError):
        log.roll()
    with contextlib.suppress(NoSpaceError):
        log.roll_if_due(NOW_MS * 2)
    assert read_all(log) == before
    disk.set_capacity()
    assert append(log, value=b"y" * 400) == end
    whole = read_all(log)
    assert whole.startswith(before)
    log.flush()
    recovery_point = log.recovery_point
    disk.crash()
    again = open_log(runtime, recovery_point=recovery_point)
    assert read_all(again) == whole and again.log_end_offset == end + 1
    assert again.producers.get(5) is not None
