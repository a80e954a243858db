"""What a leader finds in the records of clients' batches, and what it refuses."""

from __future__ import annotations

import random
import struct
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from support.log.logs import NOW_MS, make_runtime, open_log, read_all
from support.log.raw_batches import raw_batch
from support.processor_speed import times_slower

from raftwerk.log import record_validation
from raftwerk.log.config import LogConfig
from raftwerk.log.errors import RefusedRecordsError
from raftwerk.log.record_validation import LoopBudget, NeedsThreadError
from raftwerk.log.validation import validate
from raftwerk.wire.compression import Compression, compress
from raftwerk.wire.errors import ErrorCode, ProtocolError
from raftwerk.wire.produce import RecordError
from raftwerk.wire.records import (
    BATCH_HEADER_SIZE,
    TimestampType,
    compute_crc,
    encode_batch,
    iter_records,
    read_header,
    verify_crc,
)

COMPACT = LogConfig(cleanup_policy=("compact",))
PLAIN = bytes(encode_batch([(b"k", b"v%d" % n, (), 1000 + n) for n in range(3)])[BATCH_HEADER_SIZE:])
HUGE_RECORD = b"\xfe\xff\xff\xff\x0f" + PLAIN[1:]
"""Its length is 2^31-1."""


LOOP_S_MAX = 0.02
"""Processor time on the loop until a batch is left to a thread. A slower machine has as many times more."""


def many_records(count: int) -> bytes:
    """The body of so many records with a key of one byte."""
    parts = []
    for number in range(count):
        record = bytearray(b"\0\0")
        value = 2 * number
        while value > 0x7F:
            record.append(value & 0x7F | 0x80)
            value >>= 7
        record.append(value)
        record += b"\x02k\0\0"
        parts.append(bytes((2 * len(record),)) + record)
    return b"".join(parts)


def one_record(size_bytes: int) -> bytes:
    """The body of one record with a value of so many zeros."""
    return bytes(encode_batch([(b"k", bytes(size_bytes), (), 1000)])[BATCH_HEADER_SIZE:])


MALFORMED: list[tuple[str, Callable[[], memoryview]]] = [
    ("garbage", lambda: raw_batch(b"\x55" * 100)),
    ("three records declared, one there", lambda: raw_batch(one_record(1), 3)),
    ("two records declared, three there", lambda: raw_batch(PLAIN, 2)),
    ("offset deltas that do not count up", lambda: raw_batch(one_record(1) * 3, 3)),
    ("a record of 2^31-1 bytes", lambda: raw_batch(HUGE_RECORD)),
    ("a byte after the last record", lambda: raw_batch(PLAIN + b"\0")),
    *[
        (f"{codec.name}: {what}", lambda body=body, codec=codec: raw_batch(body, 3, codec))
        for codec in Compression
        if codec
        for what, body in (
            ("not compressed at all", PLAIN),
            ("garbage", b"\x55" * 100),
            ("cut off", compress(codec, PLAIN)[:-9]),
            ("one record there", compress(codec, one_record(1))),
            ("deltas that do not count up", compress(codec, one_record(1) * 3)),
            ("a record of 2^31-1 bytes", compress(codec, HUGE_RECORD)),
            ("nothing in it", compress(codec, b"")),
        )
    ],
    ("gzip, marked as not compressed", lambda: raw_batch(compress(Compression.GZIP, PLAIN))),
    ("gzip, marked as zstd", lambda: raw_batch(compress(Compression.GZIP, PLAIN), 3, Compression.ZSTD)),
    ("2^31-1 compressed records", lambda: raw_batch(compress(Compression.GZIP, PLAIN), 2**31 - 1, Compression.GZIP)),
]


@pytest.mark.parametrize("make", [row[1] for row in MALFORMED], ids=[row[0] for row in MALFORMED])
@pytest.mark.parametrize("config", [LogConfig(), COMPACT, LogConfig(compression_type=Compression.LZ4)])
def test_what_no_consumer_could_read_is_refused(make: Callable[[], memoryview], config: LogConfig) -> None:
    log = open_log(make_runtime()[0], config)
    with pytest.raises(ProtocolError) as refused:
        log.append_as_leader(make(), 0, NOW_MS)
    assert refused.value.code is ErrorCode.INVALID_RECORD
    with pytest.raises(ProtocolError) as refused:
        validate(make(), config, NOW_MS)
    assert refused.value.code is ErrorCode.INVALID_RECORD
    assert log.log_end_offset == 0


def test_the_brokers_own_batches_and_followers_copies_are_not_looked_into() -> None:
    log = open_log(make_runtime()[0])
    log.append_as_leader(raw_batch(b"\x55" * 100), 0, NOW_MS, internal=True)
    follower = open_log(make_runtime()[0])
    follower.append_as_follower(memoryview(read_all(log)))
    assert read_all(follower) == read_all(log)


@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize("stated", [0, 5_000_000])
def test_the_greatest_timestamp_is_taken_from_the_records(codec: Compression, stated: int) -> None:
    log = open_log(make_runtime()[0])
    sent = raw_batch(compress(codec, PLAIN), 3, codec, stated)
    assert read_header(sent).max_timestamp != 1002
    assert log.append_as_leader(sent, 0, NOW_MS).max_timestamp == 1002
    stored = read_all(log)
    header = read_header(stored)
    assert header.max_timestamp == 1002 and verify_crc(stored, 0, header)
    assert [record.timestamp for record in iter_records(stored)] == [1000, 1001, 1002]
    assert log.max_timestamp() is not None and log.max_timestamp().timestamp == 1002  # type: ignore[union-attr]


def keyless(places: list[int], count: int = 100, **options: Any) -> memoryview:
    records = [(None if n in places else b"k", b"v", (), 1000) for n in range(count)]
    return memoryview(encode_batch(records, **options))


@pytest.mark.parametrize("codec", Compression)
def test_records_without_a_key_are_named(codec: Compression) -> None:
    log = open_log(make_runtime()[0], COMPACT)
    places = list(range(5, 100, 10))
    with pytest.raises(RefusedRecordsError) as refused:
        log.append_as_leader(keyless(places, compression=codec), 0, NOW_MS)
    text = "Compacted topic cannot accept message without key."
    assert refused.value.code is ErrorCode.INVALID_RECORD
    assert list(refused.value.record_errors) == [RecordError(place, text) for place in places]
    assert log.log_end_offset == 0


@pytest.mark.parametrize("codec", Compression)
def test_every_records_timestamp_is_compared_with_the_limits(codec: Compression) -> None:
    config = LogConfig(message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=500)
    log = open_log(make_runtime()[0], config)
    times = [0, -1000, -1001, 500, 501, 0]
    records = [(b"k", b"v", (), NOW_MS + delta) for delta in times]
    with pytest.raises(RefusedRecordsError) as refused:
        log.append_as_leader(memoryview(encode_batch(records, compression=codec)), 0, NOW_MS)
    assert refused.value.code is ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in refused.value.record_errors] == [2, 4]
    assert str(NOW_MS - 1001) in str(refused.value.record_errors[0].message)
    log.config = LogConfig(message_timestamp_before_max_ms=1000, message_timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert log.append_as_leader(memoryview(encode_batch(records, compression=codec)), 0, NOW_MS).last_offset == 5


def test_where_the_broker_sets_the_time_no_record_is_refused_for_its_own() -> None:
    """Only the one without a key is named, whatever time the client has given to the others."""
    config = LogConfig(cleanup_policy=("compact",), message_timestamp_type=TimestampType.LOG_APPEND_TIME)
    log = open_log(make_runtime()[0], config)
    records = [(b"k", b"v", (), 1000), (b"k", b"v", (), -500), (None, b"v", (), 1000), (b"k", b"v", (), 1 << 50)]
    with pytest.raises(RefusedRecordsError) as refused:
        log.append_as_leader(memoryview(encode_batch(records)), 0, NOW_MS)
    assert refused.value.code is ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in refused.value.record_errors] == [2]


def test_records_without_a_timestamp_have_no_limit() -> None:
    log = open_log(make_runtime()[0], LogConfig(message_timestamp_before_max_ms=1000))
    records = [(b"k", b"v", (), timestamp) for timestamp in (NOW_MS, -1, NOW_MS)]
    assert log.append_as_leader(memoryview(encode_batch(records)), 0, NOW_MS).max_timestamp == NOW_MS
    assert log.append_as_leader(memoryview(encode_batch([(b"k", b"v", (), -1)])), 0, NOW_MS).max_timestamp == -1


def test_timestamps_that_do_not_fit_are_refused() -> None:
    records = [(b"k", b"v", (), timestamp) for timestamp in (0, 2**62)]
    batch = encode_batch(records)
    struct.pack_into(">q", batch, 27, 2**63 - 1)
    struct.pack_into(">I", batch, 17, compute_crc(batch, 0, read_header(batch)))
    log = open_log(make_runtime()[0], LogConfig(message_timestamp_after_max_ms=2**63 - 1))
    with pytest.raises(RefusedRecordsError) as refused:
        log.append_as_leader(memoryview(batch), 0, NOW_MS)
    assert refused.value.code is ErrorCode.INVALID_TIMESTAMP


def test_size_comes_before_keys() -> None:
    log = open_log(make_runtime()[0], LogConfig(cleanup_policy=("compact",), max_message_bytes=500))
    with pytest.raises(ProtocolError) as refused:
        log.append_as_leader(keyless([0]), 0, NOW_MS)
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_errors_of_a_large_batch_are_bounded() -> None:
    log = open_log(make_runtime()[0], COMPACT)
    with pytest.raises(RefusedRecordsError) as refused:
        log.append_as_leader(keyless(list(range(3000)), 3000), 0, NOW_MS)
    assert [error.batch_index for error in refused.value.record_errors] == list(range(1000))


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec])
@pytest.mark.parametrize("target", [None, Compression.ZSTD])
def test_a_bomb_is_refused_with_bounded_memory(codec: Compression, target: Compression | None) -> None:
    bomb = raw_batch(compress(codec, one_record(110_000_000)), 1, codec)
    config = LogConfig(compression_type=target, max_message_bytes=1 << 28)
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError) as refused:
            validate(bomb, config, NOW_MS)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert peak < 2_000_000


@pytest.mark.parametrize("target", [None, Compression.GZIP])
def test_a_bomb_that_does_not_state_its_size(target: Compression | None) -> None:
    compressor = zstandard.ZstdCompressor(write_content_size=False)
    bomb = raw_batch(compressor.compress(one_record(110_000_000)), 1, Compression.ZSTD)
    config = LogConfig(compression_type=target)
    began = time.thread_time()
    with pytest.raises(NeedsThreadError):
        open_log(make_runtime()[0], config).append_as_leader(bomb, 0, NOW_MS, budget=LoopBudget())
    assert time.thread_time() - began < LOOP_S_MAX * times_slower()
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError) as refused:
            validate(bomb, config, NOW_MS)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert peak < 1.3 * record_validation.DECOMPRESSED_BYTES_MAX


@pytest.mark.parametrize(
    ("config", "codec"),
    [(config, codec) for config in (LogConfig(), COMPACT) for codec in Compression if codec]
    + [(LogConfig(compression_type=Compression.GZIP), codec) for codec in Compression if codec != Compression.GZIP],
)
def test_the_loop_is_not_held_by_many_records(config: LogConfig, codec: Compression) -> None:
    batch = raw_batch(compress(codec, MANY), 200_000, codec, 1000)
    config = replace(config, max_message_bytes=1 << 24)
    log = open_log(make_runtime()[0], config)
    began = time.thread_time()
    with pytest.raises(NeedsThreadError):
        log.append_as_leader(batch, 0, NOW_MS, budget=LoopBudget())
    assert time.thread_time() - began < LOOP_S_MAX * times_slower()
    validated = validate(batch, config, NOW_MS)
    assert log.append_as_leader(validated, 0, NOW_MS, validated_by=config).last_offset == 199_999


def test_a_batch_that_states_more_records_than_can_be_in_it_is_not_decompressed() -> None:
    """Nothing is done for it on the loop or in a thread."""
    batch = raw_batch(compress(Compression.ZSTD, PLAIN), 1 << 30, Compression.ZSTD, 1002)
    for budget in (LoopBudget(), None):
        with pytest.raises(ProtocolError, match="more than a batch may hold"):
            open_log(make_runtime()[0]).append_as_leader(batch, 0, NOW_MS, budget=budget)


def test_lz4_blocks_that_depend_on_each_other_are_refused() -> None:
    """Clients in Java cannot read them."""
    body = bytearray(compress(Compression.LZ4, PLAIN))
    log = open_log(make_runtime()[0])
    log.append_as_leader(raw_batch(bytes(body), 3, Compression.LZ4, 1002), 0, NOW_MS)
    body[4] &= ~0x20
    with pytest.raises(ProtocolError, match="depend on each other") as refused:
        log.append_as_leader(raw_batch(bytes(body), 3, Compression.LZ4, 1002), 0, NOW_MS)
    assert refused.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec])
def test_a_thread_is_asked_for_by_large_batches_alone(codec: Compression) -> None:
    """A change of the thread takes longer than a look at a few records."""
    log = open_log(make_runtime()[0], LogConfig(segment_bytes=1 << 20))

    def sent(size_bytes: int) -> memoryview:
        value = random.Random(1).randbytes(size_bytes)  # it hardly gets smaller by compression
        return memoryview(encode_batch([(b"k", value, (), 1000)], compression=codec))

    assert log.append_as_leader(sent(1000), 0, NOW_MS, budget=LoopBudget()).first_offset == 0
    with pytest.raises(NeedsThreadError):
        log.append_as_leader(sent(40_000), 0, NOW_MS, budget=LoopBudget())


MANY = many_records(200_000)


@given(st.data())
def test_a_request_has_one_budget(data: st.DataObject) -> None:
    """Batches are taken while there is budget, and what is refused for the lack of it changes nothing."""
    log = open_log(make_runtime()[0], LogConfig(compression_type=data.draw(st.sampled_from([None, *Compression]))))
    budget = LoopBudget()
    for _ in range(20):
        codec = data.draw(st.sampled_from(Compression))
        sent = bytes(encode_batch([(b"k", bytes(data.draw(st.integers(0, 20_000))), (), 1000)], compression=codec))
        left, end = budget.bytes_left, log.log_end_offset
        try:
            log.append_as_leader(memoryview(bytearray(sent)), 0, NOW_MS, budget=budget)
        except NeedsThreadError:
            assert (budget.bytes_left, log.log_end_offset) == (left, end)
            validated = validate(memoryview(bytearray(sent)), log.config, NOW_MS)
            log.append_as_leader(validated, 0, NOW_MS, validated_by=log.config)
        else:
            assert 0 <= budget.bytes_left < left
        assert log.log_end_offset == end + 1


@given(st.data())
def test_validation_in_a_thread_gives_the_same_batches(data: st.DataObject) -> None:
    config = LogConfig(
        compression_type=data.draw(st.sampled_from([None, *Compression])),
        message_timestamp_type=data.draw(st.sampled_from(TimestampType)),
    )
    sent = b"".join(
        raw_batch(compress(codec, PLAIN), 3, codec, data.draw(st.sampled_from([0, 7_000])))
        for codec in data.draw(st.lists(st.sampled_from(Compression), min_size=1, max_size=3))
    )
    logs = [open_log(make_runtime()[0], config) for _ in range(2)]
    infos = [
        logs[0].append_as_leader(memoryview(bytearray(sent)), 4, NOW_MS),
        logs[1].append_as_leader(validate(memoryview(bytearray(sent)), config, NOW_MS), 4, NOW_MS, validated_by=config),
    ]
    assert infos[0] == infos[1]
    assert read_all(logs[0]) == read_all(logs[1])
