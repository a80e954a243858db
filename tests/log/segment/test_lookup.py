"""Finding records by time, and the sparse indexes."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.log.crashes import transactional_log
from support.log.logs import DIRECTORY, NOW_MS, SMALL, append, batch, headers_of, make_runtime, open_log, read_all
from support.wire.all_records import iter_all_records

from raftwerk.log.cleaner.batch_filter import emptied, raw_records, rebuild
from raftwerk.log.config import LogConfig
from raftwerk.log.partition_log import PartitionLog
from raftwerk.log.segment.batch_scan import ValidatingScan
from raftwerk.log.segment.indexes import OffsetIndex, TimeIndex
from raftwerk.log.segment.log_segments import LogSegments
from raftwerk.log.segment.segment import Segment
from raftwerk.log.segment.transaction_index import AbortedTransaction
from raftwerk.wire.records import (
    BATCH_HEADER_SIZE,
    TimestampType,
    encode_batch,
    read_header,
    set_base_offset,
    set_partition_leader_epoch,
)

TIMES = st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=4), max_size=40)


def fill(log: PartitionLog, times: list[list[int]]) -> list[int]:
    for group in times:
        data = encode_batch([(None, b"x" * 15, (), time) for time in group])
        log.append_as_leader(memoryview(data), 3, NOW_MS)
    return [time for group in times for time in group]


@given(TIMES, st.integers(0, 61), st.booleans())
def test_offset_for_timestamp_is_the_first_record_of_that_time_or_later(
    times: list[list[int]], asked: int, reopened: bool
) -> None:
    runtime, _ = make_runtime()
    log = open_log(runtime)
    flat = fill(log, times)
    if reopened:
        log.close()
        log = open_log(runtime, clean_shutdown=True)
    expected = next(((time, offset, 3) for offset, time in enumerate(flat) if time >= asked), None)
    assert log.offset_for_timestamp(asked) == expected
    greatest = max(flat, default=None)
    assert log.max_timestamp() == (None if greatest is None else (greatest, flat.index(greatest), 3))


@given(TIMES, st.data())
def test_lookup_by_time_after_truncation(times: list[list[int]], data: st.DataObject) -> None:
    log = open_log(make_runtime()[0])
    flat = fill(log, times)
    log.truncate_to(data.draw(st.integers(0, len(flat))))
    del flat[log.log_end_offset :]
    asked = data.draw(st.integers(0, 61))
    expected = next(((time, offset, 3) for offset, time in enumerate(flat) if time >= asked), None)
    assert log.offset_for_timestamp(asked) == expected


def test_a_batch_with_log_append_time_is_found_at_its_first_record() -> None:
    log = open_log(make_runtime()[0], LogConfig(message_timestamp_type=TimestampType.LOG_APPEND_TIME))
    log.append_as_leader(batch(3), 0, 500)
    log.append_as_leader(batch(3), 0, 600)
    assert log.offset_for_timestamp(501) == (600, 3, 0)
    assert log.max_timestamp() == (600, 3, 0)


def test_a_batch_with_log_append_time_is_found_at_the_first_record_that_compaction_has_left() -> None:
    """It was found at its base offset, or where the log begins, though no record is there."""
    log = open_log(make_runtime()[0])
    stamped = encode_batch(
        [(key, b"v", (), 600) for key in (b"a", b"b", b"c")], timestamp_type=TimestampType.LOG_APPEND_TIME
    )
    header = read_header(stamped)
    body = memoryview(stamped)[BATCH_HEADER_SIZE:]
    _, cleaned = rebuild(header, body, list(raw_records(body, 3))[1:2], None)
    log.append_as_follower(memoryview(bytearray(cleaned)))
    log.append_as_follower(
        memoryview(encode_batch([(b"d", b"v", (), 700)], base_offset=3, leader_epoch=0)), may_skip=True
    )
    assert log.offset_for_timestamp(600) == (600, 1, -1)
    assert log.max_timestamp() == (700, 3, 0)
    log.raise_start(2)
    assert log.offset_for_timestamp(600) == (700, 3, 0)


@pytest.mark.parametrize("reopened", ["", "cleanly", "by recovery"])
def test_batches_without_records_are_not_in_the_time_index(reopened: str) -> None:
    """As compaction leaves them: Apache Kafka's dump tool finds no timestamp there."""
    runtime, _ = make_runtime()
    log = open_log(runtime, LogConfig(index_interval_bytes=1))
    times = [(1000, True), (9000, False), (2000, True), (9500, False)]
    for offset, (time, has_records) in enumerate(times):
        data = encode_batch([(b"k", b"v", (), time)], base_offset=offset, leader_epoch=0)
        log.append_as_follower(memoryview(data if has_records else emptied(read_header(data))[1]))
    if reopened:
        log.close(clean=reopened == "cleanly")
        log = open_log(runtime, LogConfig(index_interval_bytes=1), clean_shutdown=reopened == "cleanly")
    (segment,) = log.segments
    assert isinstance(segment, Segment)
    segment.finish()
    assert list(zip(segment.time_index.timestamps, segment.time_index.offsets, strict=True)) == [(1000, 0), (2000, 2)]
    assert segment.largest_timestamp() == 2000
    assert log.max_timestamp() == (2000, 2, 0)
    assert log.offset_for_timestamp(2001) is None


def test_retention_takes_segments_without_records_by_the_time_of_their_first_batch() -> None:
    log = open_log(make_runtime()[0])
    data = encode_batch([(b"k", b"v", (), 9000)], leader_epoch=0)
    log.append_as_follower(memoryview(emptied(read_header(data))[1]))
    assert log.segments[0].largest_timestamp() == 9000
    assert log.max_timestamp() is None


def index_files(disk: object, log: PartitionLog) -> dict[str, bytes]:
    for segment in log.segments:
        segment.save_indexes()
    names = [name for name in disk.listdir(DIRECTORY) if "index" in name]  # type: ignore[attr-defined]
    return {name: disk.read_bytes(f"{DIRECTORY}/{name}") for name in names}  # type: ignore[attr-defined]


@pytest.mark.parametrize("seed", range(5))
def test_rebuilt_indexes_are_equal_to_the_originals(seed: int) -> None:
    runtime, disk = make_runtime()
    log = open_log(runtime)
    rng = random.Random(seed)
    for _ in range(100):
        append(log, rng.randint(1, 3), timestamp=rng.randint(0, 1000), value=bytes(rng.randint(0, 100)))
    before = index_files(disk, log)
    assert len(before) > 10
    for name in before:
        disk.remove(f"{DIRECTORY}/{name}")
    disk.crash(power_loss=False)
    assert index_files(disk, open_log(runtime)) == before


@pytest.mark.parametrize("damage", ["missing", "torn", "garbage"])
def test_a_segment_with_a_wrong_index_is_read_after_a_clean_shutdown(damage: str) -> None:
    runtime, disk = make_runtime()
    log = open_log(runtime)
    for _ in range(60):
        append(log, 2)
    expected = read_all(log)
    log.close()
    for name in disk.listdir(DIRECTORY):
        if "index" in name:
            path = f"{DIRECTORY}/{name}"
            content = disk.read_bytes(path)
            disk.remove(path)
            if damage != "missing":
                disk.write_atomic(path, content[:-3] if damage == "torn" else b"\xff" * 24)
    log = open_log(runtime, clean_shutdown=True)
    assert log.log_end_offset == 120
    assert read_all(log) == expected
    for offset in range(120):
        assert next(iter_all_records(log.read(offset, 1, end_offset=120)))[0].base_offset == offset // 2 * 2


def test_index_files_that_apache_kafka_preallocated() -> None:
    runtime, disk = make_runtime()
    log = open_log(runtime, LogConfig(index_interval_bytes=100))
    for number in range(30):
        append(log, 2, timestamp=number * 10)
    expected = index_files(disk, log)
    log.close()
    for name in disk.listdir(DIRECTORY):
        if "index" in name:
            file = disk.open(f"{DIRECTORY}/{name}")
            file.append((bytes(480),))
    log = open_log(runtime, LogConfig(index_interval_bytes=100), clean_shutdown=True)
    assert log.offset_for_timestamp(151) == (160, 32, 0) or log.offset_for_timestamp(151) == (151, 31, 0)
    assert index_files(disk, log) == expected


def test_tail_reads_need_no_scan() -> None:
    """A read near the end reads the file once, however long the log is."""
    log = open_log(make_runtime()[0], LogConfig())
    for _ in range(1000):
        append(log)
    reads: list[tuple[int, int]] = []
    file = log.segments[-1].file

    class Counting:
        def pread(self, offset: int, length: int) -> bytes:
            reads.append((offset, length))
            return file.pread(offset, length)

    log.segments[-1]._file = Counting()  # type: ignore[assignment]
    assert log.read(998, 1 << 20, end_offset=1000)
    assert len(reads) == 1
    reads.clear()
    assert log.read(100, 1 << 20, end_offset=999)
    assert len(reads) == 2


def test_segments_roll_by_size_time_index_and_offset_range() -> None:
    for config in (
        LogConfig(segment_bytes=300),
        LogConfig(segment_ms=100),
        LogConfig(segment_index_bytes=24, index_interval_bytes=0),
    ):
        log = open_log(make_runtime()[0], config)
        for number in range(20):
            append(log, timestamp=1000 + 60 * number)
        assert len(log.segments) > 4
        assert all(segment.size_bytes <= config.segment_bytes for segment in log.segments)
        assert log.log_end_offset == 20
    log = open_log(make_runtime()[0], SMALL)
    append(log)
    log.segments[-1].base_offset = -(2**31)
    append(log)
    assert [segment.base_offset for segment in log.segments][1:] == [1]


def test_a_segment_rolls_when_its_offset_index_is_full() -> None:
    """An entry has eight bytes. Here no batch but the first has an entry in the time index."""
    log = open_log(make_runtime()[0], LogConfig(segment_index_bytes=48, index_interval_bytes=0))
    for _ in range(20):
        append(log, timestamp=1000)
    assert [len(segment.offset_index.positions) for segment in log.segments] == [6, 6, 5]


def test_an_offset_too_far_for_a_segment_starts_the_next() -> None:
    """Index entries have 31 bits for an offset; compaction may have removed more offsets than that."""
    runtime, _ = make_runtime()
    log = open_log(runtime)
    append(log, 2)
    for base in (2 + 2**31, 3 + 2**31, 2**33):
        data = batch(1)
        set_base_offset(data, 0, base)
        set_partition_leader_epoch(data, 0, 0)
        log.append_as_follower(data, may_skip=True)
    assert [segment.base_offset for segment in log.segments] == [0, 2 + 2**31, 2**33]
    assert headers_of(log.read(2, 1, end_offset=log.log_end_offset))[0].base_offset == 2 + 2**31
    log.close()
    log = open_log(runtime, clean_shutdown=True)
    assert log.log_end_offset == 2**33 + 1
    assert [header.base_offset for header in headers_of(read_all(log))] == [0, 2 + 2**31, 3 + 2**31, 2**33]


@pytest.mark.parametrize("count", range(4))
def test_zeros_at_the_end_of_an_index_are_no_entries(count: int) -> None:
    """Apache Kafka preallocates the indexes of its active segment, and a kill leaves them so."""
    _, disk = make_runtime()
    time_index, offset_index = TimeIndex(disk, "/data/times", 0), OffsetIndex(disk, "/data/offsets", 0)
    for number in range(1, count + 1):
        time_index.add(1000 + number, number)
        offset_index.add(number, 100 * number)
    for index in (time_index, offset_index):
        index.save()
        index.file.open().append((bytes(24 * 3),))
    times, offsets = TimeIndex(disk, "/data/times", 0), OffsetIndex(disk, "/data/offsets", 0)
    assert times.load(1000) and offsets.load(1000)
    assert list(zip(times.timestamps, times.offsets)) == [(1000 + number, number) for number in range(1, count + 1)]
    assert list(zip(offsets.offsets, offsets.positions)) == [(number, 100 * number) for number in range(1, count + 1)]


def test_whether_a_transaction_with_later_records_was_aborted() -> None:
    """A consumer of committed records has to be told of it."""
    _, _, log = transactional_log()
    (aborted,) = log.aborted_transactions(0, log.log_end_offset)
    assert [log.has_aborted_transactions_after(offset) for offset in range(log.log_end_offset)] == [
        offset <= aborted.last_offset for offset in range(log.log_end_offset)
    ]
    log.advance_start(log.segments[1].base_offset)
    assert not log.has_aborted_transactions_after(0)


def test_whether_a_later_segment_begins_below_an_offset() -> None:
    log = open_log(make_runtime()[0])
    for _ in range(3):
        append(log, 2)
        log.roll()
    segments = LogSegments(log.segments)
    asked = [(0, 2), (0, 3), (1, 2), (2, 4), (2, 5), (4, 6), (4, 7), (6, 99)]
    assert [segments.has_later_one(*one) for one in asked] == [False, True, False, False, True, False, True, False]


def test_a_recovery_reads_a_segment_in_pieces() -> None:
    """The whole of a segment may be more than there is memory."""

    class Pieces:
        def __init__(self, content: bytes) -> None:
            self.content = content
            self.lengths: list[int] = []

        def size(self) -> int:
            return len(self.content)

        def pread(self, offset: int, length: int) -> bytes:
            self.lengths.append(length)
            return self.content[offset : offset + length]

    batches = [encode_batch([(b"k", bytes(300_000), (), 1000)], base_offset=offset) for offset in range(12)]
    pieces: Any = Pieces(b"".join(batches))
    assert [header.base_offset for _, header in ValidatingScan(pieces, 0)] == list(range(12))
    assert max(pieces.lengths) <= 1 << 20


def test_indexes_need_an_fsync_until_they_have_had_one() -> None:
    _, disk = make_runtime()
    disk.makedirs(DIRECTORY)
    segment = Segment.create(disk, DIRECTORY, 0)

    def synced() -> bool:
        assert segment.has_unsynced_indexes
        for file in segment.unsynced_index_files():
            file.fsync()
        segment.indexes_synced()
        return not segment.has_unsynced_indexes

    data = batch(3)
    segment.append(data, headers_of(bytes(data)), 100)
    segment.finish()
    assert synced()
    segment.transaction_index.add(AbortedTransaction(7, 0, 2, 3))
    assert synced()
    segment.offset_index.add(5, 10)
    segment.save_indexes()
    assert synced()
