"""What a leader and a follower refuse, with Apache Kafka's error codes."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from support.log.logs import NOW_MS, append, batch, make_runtime, open_log, read_all

from raftwerk.log.config import LogConfig
from raftwerk.log.errors import NoSpaceError
from raftwerk.wire.errors import ErrorCode, ProtocolError
from raftwerk.wire.records import (
    CorruptBatchError,
    TimestampType,
    compute_crc,
    encode_batch,
    iter_records,
    read_header,
    verify_crc,
)


def patched(at: int, form: str, value: int, *, fix_crc: bool = True, **options: object) -> memoryview:
    data = batch(3, **options)  # type: ignore[arg-type]
    struct.pack_into(form, data, at, value)
    if fix_crc:
        struct.pack_into(">I", data, 17, compute_crc(data, 0, read_header(data)))
    return data


REFUSED: list[tuple[str, Callable[[], memoryview], ErrorCode]] = [
    ("nothing", lambda: memoryview(bytearray()), ErrorCode.INVALID_RECORD),
    ("half a header", lambda: batch()[:40], ErrorCode.INVALID_RECORD),
    ("half a batch", lambda: batch()[:-1], ErrorCode.INVALID_RECORD),
    ("a tail after the batch", lambda: memoryview(bytearray(batch()) + b"xx"), ErrorCode.INVALID_RECORD),
    ("a length below the header's", lambda: patched(8, ">i", 48, fix_crc=False), ErrorCode.CORRUPT_MESSAGE),
    ("a negative length", lambda: patched(8, ">i", -1, fix_crc=False), ErrorCode.CORRUPT_MESSAGE),
    ("a length beyond all bytes", lambda: patched(8, ">i", 2**31 - 1, fix_crc=False), ErrorCode.INVALID_RECORD),
    ("magic 1", lambda: patched(16, ">b", 1), ErrorCode.INVALID_RECORD),
    ("magic 3", lambda: patched(16, ">b", 3), ErrorCode.CORRUPT_MESSAGE),
    ("a wrong CRC", lambda: patched(17, ">I", 1, fix_crc=False), ErrorCode.CORRUPT_MESSAGE),
    ("a flipped bit", lambda: patched(70, ">b", 77, fix_crc=False), ErrorCode.CORRUPT_MESSAGE),
    ("too many records", lambda: patched(57, ">i", 4), ErrorCode.INVALID_RECORD),
    ("too few records", lambda: patched(57, ">i", 2), ErrorCode.INVALID_RECORD),
    ("no records", lambda: patched(57, ">i", 0), ErrorCode.INVALID_RECORD),
    ("a negative offset delta", lambda: patched(23, ">i", -1), ErrorCode.INVALID_RECORD),
    ("codec 5", lambda: patched(21, ">h", 5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    ("codec 7", lambda: patched(21, ">h", 7), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    ("a control batch", lambda: batch(is_control=True), ErrorCode.INVALID_RECORD),
    ("a producer id without sequence", lambda: batch(producer_id=4, producer_epoch=0), ErrorCode.INVALID_RECORD),
    ("a producer id alone", lambda: batch(producer_id=4), ErrorCode.INVALID_RECORD),
    ("over max.message.bytes", lambda: batch(value=bytes(3000)), ErrorCode.MESSAGE_TOO_LARGE),
    ("a time far ahead", lambda: batch(timestamp=NOW_MS + 3_600_001), ErrorCode.INVALID_TIMESTAMP),
    ("the broker's timestamp type", lambda: patched(21, ">h", 8), ErrorCode.INVALID_TIMESTAMP),
]


def test_a_log_that_begins_within_the_first_batch_ends_where_it_did_when_nothing_is_appended() -> None:
    """Its replica's high watermark is not below its start, and a leader's must not be above the end of its log."""
    runtime, disk = make_runtime()
    log = open_log(runtime)
    log.truncate_fully_and_start_at(2)
    with pytest.raises(CorruptBatchError):
        log.append_as_follower(patched(70, ">b", 77, fix_crc=False), may_skip=True)
    assert (log.log_start_offset, log.log_end_offset) == (2, 2)
    log.append_as_follower(batch(3)[:-1], may_skip=True)
    assert (log.log_start_offset, log.log_end_offset) == (2, 2), "the batch is incomplete"
    disk.fill(0)
    with pytest.raises(NoSpaceError):
        log.append_as_follower(batch(3), may_skip=True)
    assert (log.log_start_offset, log.log_end_offset) == (2, 2)
    disk.fill(1_000_000)
    log.append_as_follower(batch(3), may_skip=True)
    assert (log.log_start_offset, log.log_end_offset) == (2, 3)


def test_only_an_empty_log_that_may_skip_offsets_begins_anew_within_a_batch() -> None:
    """Any other one would lose its records, or give offsets that its leader does not have."""
    log = open_log(make_runtime()[0])
    log.truncate_fully_and_start_at(2)
    with pytest.raises(ProtocolError):
        log.append_as_follower(batch(3))
    assert (log.log_start_offset, log.log_end_offset) == (2, 2)
    log.append_as_follower(batch(3), may_skip=True)
    content = read_all(log)
    with pytest.raises(ProtocolError):
        log.append_as_follower(batch(4), may_skip=True)
    assert (log.log_start_offset, log.log_end_offset, read_all(log)) == (2, 3, content)


@pytest.mark.parametrize(("make", "code"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_a_leader_refuses(make: Callable[[], memoryview], code: ErrorCode) -> None:
    runtime, _ = make_runtime()
    log = open_log(runtime, LogConfig(max_message_bytes=2000))
    append(log)
    before = read_all(log)
    with pytest.raises(ProtocolError) as refused:
        log.append_as_leader(make(), 0, NOW_MS)
    assert refused.value.code is code
    assert log.log_end_offset == 1
    assert read_all(log) == before
    append(log)


def test_a_leader_refuses_a_record_count_that_the_bytes_cannot_hold() -> None:
    log = open_log(make_runtime()[0])
    data = batch(3)
    struct.pack_into(">i", data, 57, 1000)
    struct.pack_into(">i", data, 23, 999)
    struct.pack_into(">I", data, 17, compute_crc(data, 0, read_header(data)))
    with pytest.raises(ProtocolError) as refused:
        log.append_as_leader(data, 0, NOW_MS)
    assert refused.value.code is ErrorCode.INVALID_RECORD


def test_a_leader_writes_offsets_in_place_and_changes_nothing_else() -> None:
    log = open_log(make_runtime()[0])
    append(log, 3)
    data = memoryview(bytearray(batch(2)) + bytearray(batch(4)))
    info = log.append_as_leader(data, 5, NOW_MS)
    assert (info.first_offset, info.last_offset, info.size_bytes) == (3, 8, len(data))
    assert info.log_append_time_ms == -1
    stored = log.read(3, 1000, end_offset=9)
    assert stored == bytes(data)
    first = read_header(stored)
    assert (first.base_offset, first.partition_leader_epoch) == (3, 5)
    assert read_header(stored, first.size_bytes).base_offset == 5
    assert verify_crc(stored, 0, first)


def test_internal_batches_may_be_control_batches_of_any_time() -> None:
    log = open_log(make_runtime()[0])
    data = batch(is_control=True, timestamp=NOW_MS * 2)
    assert log.append_as_leader(data, 1, NOW_MS, internal=True).last_offset == 0


def test_log_append_time_is_written_with_a_valid_crc() -> None:
    log = open_log(make_runtime()[0], LogConfig(message_timestamp_type=TimestampType.LOG_APPEND_TIME))
    info = log.append_as_leader(batch(2), 3, NOW_MS)
    assert info.log_append_time_ms == info.max_timestamp == NOW_MS
    stored = log.read(0, 1000, end_offset=2)
    header = read_header(stored)
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert (header.base_offset, header.partition_leader_epoch, header.max_timestamp) == (0, 3, NOW_MS)
    assert verify_crc(stored, 0, header)
    assert [record.timestamp for record in iter_records(stored)] == [NOW_MS, NOW_MS]


@pytest.mark.parametrize("is_stamped", [True, False])
def test_a_duplicate_has_the_time_that_is_stored_whatever_the_topic_says_by_now(is_stamped: bool) -> None:
    """The present timestamp type decided, so that a producer was told its own time as the broker's, or none."""
    configs = [LogConfig(message_timestamp_type=one) for one in TimestampType]
    first, now = reversed(configs) if is_stamped else configs
    log = open_log(make_runtime()[0], first)
    told = [log.append_as_leader(batch(2, producer_id=1, producer_epoch=0, base_sequence=0), 3, NOW_MS)]
    log.config = now
    told.append(log.append_as_leader(batch(2, producer_id=1, producer_epoch=0, base_sequence=0), 3, NOW_MS + 5))
    assert [info.duplicate for info in told] == [False, True]
    assert [info.log_append_time_ms for info in told] == [NOW_MS if is_stamped else -1] * 2
    log.raise_start(2)
    again = log.append_as_leader(batch(2, producer_id=1, producer_epoch=0, base_sequence=0), 3, NOW_MS + 5)
    assert (again.duplicate, again.first_offset) == (True, 0)


@pytest.mark.parametrize("base_offset", [1, -1, 2**62, -(2**63)])
def test_the_base_offset_of_a_clients_batch_is_0(base_offset: int) -> None:
    """Apache Kafka 4.2 looks at it before the CRC (UnifiedLog.analyzeAndValidateRecords)."""
    log = open_log(make_runtime()[0])
    data = memoryview(encode_batch([(None, b"v", (), 5)], base_offset=base_offset))
    for _ in range(2):
        with pytest.raises(ProtocolError) as refused:
            log.append_as_leader(data, 0, NOW_MS)
        assert refused.value.code is ErrorCode.INVALID_RECORD
        data[-1] ^= 1
    assert log.append_as_leader(data, 0, NOW_MS, internal=True).first_offset == 0


def follower_batch(base: int, epoch: int = 0, count: int = 1) -> bytearray:
    return encode_batch([(None, b"v", (), 5)] * count, base_offset=base, leader_epoch=epoch)


def test_a_follower_appends_batches_unchanged() -> None:
    log = open_log(make_runtime()[0])
    data = follower_batch(0, 2, 3) + follower_batch(3, 2) + follower_batch(4, 7)
    info = log.append_as_follower(memoryview(data))
    assert (info.first_offset, info.last_offset, info.size_bytes) == (0, 4, len(data))
    assert read_all(log) == bytes(data)
    assert log.epoch_cache.entries == [(2, 0), (7, 4)]


def test_a_follower_ignores_an_incomplete_last_batch() -> None:
    log = open_log(make_runtime()[0])
    whole = follower_batch(0)
    assert log.append_as_follower(memoryview(whole + follower_batch(1)[:-3])).last_offset == 0
    assert log.append_as_follower(memoryview(follower_batch(1)[:-3])).size_bytes == 0
    assert read_all(log) == bytes(whole)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (follower_batch(3), ErrorCode.OFFSET_OUT_OF_RANGE),
        (follower_batch(1), ErrorCode.OFFSET_OUT_OF_RANGE),
        (follower_batch(2, 1) + follower_batch(2, 1), ErrorCode.OFFSET_OUT_OF_RANGE),
        (follower_batch(2, epoch=0), ErrorCode.CORRUPT_MESSAGE),
        (follower_batch(2, 1)[:-1] + b"x", ErrorCode.CORRUPT_MESSAGE),
        (bytearray(100), ErrorCode.CORRUPT_MESSAGE),
    ],
    ids=["gap", "overlap", "repeated", "older epoch", "wrong CRC", "zeros"],
)
def test_a_follower_refuses(data: bytearray, code: ErrorCode) -> None:
    log = open_log(make_runtime()[0])
    append(log, 2, epoch=1)
    with pytest.raises(ProtocolError) as refused:
        log.append_as_follower(memoryview(data))
    assert refused.value.code is code
    assert log.log_end_offset == 2


def test_a_follower_takes_no_batch_of_an_epoch_above_its_leaders() -> None:
    """Those before it are taken, as by Apache Kafka (KAFKA-18723)."""
    log = open_log(make_runtime()[0])
    sound, forged = follower_batch(0, 2, 3), follower_batch(3, 2**31 - 1)
    assert log.append_as_follower(memoryview(sound + forged), 2).last_offset == 2
    with pytest.raises(
        ProtocolError, match=r"at offset 3 is of leader epoch 2147483647, and its leader is of epoch 2\."
    ) as refused:
        log.append_as_follower(memoryview(forged), 2)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    assert (log.log_end_offset, log.epoch_cache.entries) == (3, [(2, 0)])


def test_a_follower_takes_no_batch_whose_offsets_have_no_room() -> None:
    log = open_log(make_runtime()[0])
    log.append_as_follower(memoryview(follower_batch(0)))
    with pytest.raises(ProtocolError) as refused:
        log.append_as_follower(memoryview(follower_batch(2**63 - 3, count=4)), may_skip=True)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert append(log) == 1


def test_reads_outside_the_log() -> None:
    log = open_log(make_runtime()[0])
    append(log, 2)
    log.truncate_fully_and_start_at(10)
    append(log, 2)
    for offset in (9, 13, -1):
        with pytest.raises(ProtocolError) as refused:
            log.read(offset, 100, end_offset=12)
        assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.read(12, 100, end_offset=12) == b""
    assert log.read(10, 100, end_offset=10) == b""
    assert log.read(10, 0, end_offset=12, min_one_batch=False) == b""
    assert log.read(10, 0, end_offset=12) == log.read(11, 1000, end_offset=12)


def test_topic_settings_are_checked() -> None:
    config = LogConfig().with_overrides(
        {"segment.ms": "5", "message.timestamp.type": "LogAppendTime", "cleanup.policy": "compact"}
    )
    assert (config.segment_ms, config.message_timestamp_type) == (5, TimestampType.LOG_APPEND_TIME)
    for key, value in (("segment.ms", "x"), ("segment.bytes", "10"), ("message.timestamp.type", "Never")):
        with pytest.raises(ProtocolError, match=key) as refused:
            LogConfig().with_overrides({key: value})
        assert refused.value.code is ErrorCode.INVALID_CONFIG
