from __future__ import annotations

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from support.wire.all_records import iter_all_records

from raftwerk.wire.compression import Compression
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.records import (
    BATCH_HEADER_SIZE,
    AbortedTransactions,
    BatchHeader,
    ControlRecordType,
    CorruptBatchError,
    NewRecord,
    TimestampType,
    check_header,
    control_record_type,
    encode_batch,
    encode_control_record,
    iter_headers,
    iter_records,
    read_header,
    set_base_offset,
    set_log_append_time,
    set_partition_leader_epoch,
    verify_crc,
)

optional_bytes = st.none() | st.binary(max_size=300)
records = st.builds(
    NewRecord,
    optional_bytes,
    optional_bytes,
    st.lists(st.tuples(st.text(max_size=5), optional_bytes), max_size=3),
    st.integers(-1, 2**45),
)


@given(st.lists(records, min_size=1, max_size=10), st.sampled_from(Compression), st.integers(0, 2**50))
def test_records_come_back(written: list[NewRecord], compression: Compression, base_offset: int) -> None:
    batch = encode_batch(written, base_offset=base_offset, compression=compression)
    header = read_header(batch)
    check_header(header, len(batch))
    assert verify_crc(batch, 0, header)
    assert header.size_bytes == len(batch)
    assert header.compression == compression
    assert header.next_offset == base_offset + len(written)
    assert header.max_timestamp == max(record.timestamp for record in written)
    read = list(iter_records(batch))
    assert [record.offset for record in read] == list(range(base_offset, base_offset + len(written)))
    assert [(r.key, r.value, list(r.headers), r.timestamp) for r in read] == [tuple(record) for record in written]


@given(st.lists(records, min_size=1, max_size=5))
def test_uncompressed_batches_equal_those_of_kafka_python(written: list[NewRecord]) -> None:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=4000,
        producer_epoch=3,
        base_sequence=70,
        batch_size=1 << 20,
    )
    for offset, record in enumerate(written):
        builder.append(offset, record.timestamp, record.key, record.value, list(record.headers))
    theirs = bytearray(builder.build())
    set_partition_leader_epoch(theirs, 0, 9)
    ours = encode_batch(written, leader_epoch=9, producer_id=4000, producer_epoch=3, base_sequence=70)
    assert ours == theirs


@pytest.mark.parametrize("compression", [Compression.GZIP, Compression.NONE])
def test_kafka_python_reads_our_batches(compression: Compression) -> None:
    batch = DefaultRecordBatch(bytes(encode_batch([(b"k", b"v", [("h", b"x")], 5)] * 3, compression=compression)))
    assert batch.validate_crc()
    assert [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in batch] == [
        (offset, 5, b"k", b"v", [("h", b"x")]) for offset in range(3)
    ]


def test_flags_of_the_attributes() -> None:
    header = read_header(encode_batch([(None, b"", (), 7)], is_control=True, is_transactional=True))
    assert header.is_control
    assert header.is_transactional
    assert header.timestamp_type is TimestampType.CREATE_TIME
    assert not header.has_producer_id
    assert header.last_sequence == -1


def test_sequences_wrap_to_zero() -> None:
    header = read_header(encode_batch([(None, b"", (), 7)] * 3, producer_id=1, base_sequence=2**31 - 2))
    assert header.last_sequence == 0


def test_a_leader_stamps_in_place() -> None:
    batch = encode_batch([(None, b"a", (), 7), (None, b"b", (), 9)])
    set_base_offset(batch, 0, 1000)
    set_partition_leader_epoch(batch, 0, 5)
    header = read_header(batch)
    assert (header.base_offset, header.last_offset, header.partition_leader_epoch) == (1000, 1001, 5)
    assert verify_crc(batch, 0, header)
    set_log_append_time(batch, 0, 55)
    header = read_header(batch)
    assert verify_crc(batch, 0, header)
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert [record.timestamp for record in iter_records(batch)] == [55, 55]


def test_control_records_carry_their_type() -> None:
    batch = encode_batch([encode_control_record(ControlRecordType.LEADER_CHANGE, b"value", 3)], is_control=True)
    (record,) = iter_records(batch)
    assert control_record_type(record.key) == ControlRecordType.LEADER_CHANGE
    assert record.value == b"value"
    for key in (None, b"", b"\0\0\0", struct.pack(">hh", -1, 2)):
        with pytest.raises(CorruptBatchError):
            control_record_type(key)


def test_headers_of_several_batches() -> None:
    one, two = encode_batch([(None, b"a", (), 0)]), encode_batch([(None, b"b", (), 0)] * 2, base_offset=1)
    both = one + two
    assert [(position, header.base_offset) for position, header in iter_headers(both)] == [(0, 0), (len(one), 1)]
    for size in (len(one) + 1, len(one) + BATCH_HEADER_SIZE, len(both) - 1):
        with pytest.raises(CorruptBatchError):
            list(iter_headers(both[:size]))
        assert len(list(iter_headers(both[:size], allow_partial_tail=True))) == 1
        assert [record.value for _, record in iter_all_records(both[:size])] == [b"a"]


def test_an_empty_batch_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="at least one"):
        encode_batch([])


@pytest.mark.parametrize(
    ("position", "content", "code"),
    [
        (8, struct.pack(">i", -1), ErrorCode.CORRUPT_MESSAGE),
        (8, struct.pack(">i", 48), ErrorCode.CORRUPT_MESSAGE),
        (8, struct.pack(">i", 2**31 - 1), ErrorCode.CORRUPT_MESSAGE),
        (16, b"\x01", ErrorCode.INVALID_RECORD),
        (16, b"\x00", ErrorCode.INVALID_RECORD),
        (23, struct.pack(">i", -1), ErrorCode.INVALID_RECORD),
        (57, struct.pack(">i", -1), ErrorCode.INVALID_RECORD),
        (57, struct.pack(">i", 4), ErrorCode.INVALID_RECORD),
    ],
)
def test_headers_that_contradict_themselves(position: int, content: bytes, code: ErrorCode) -> None:
    batch = encode_batch([(b"k", b"v", (), 0)] * 3)
    batch[position : position + len(content)] = content
    for read in (lambda: list(iter_headers(batch)), lambda: list(iter_records(batch))):
        with pytest.raises(CorruptBatchError) as caught:
            read()
        assert caught.value.code is code


def test_a_wrong_crc_is_seen() -> None:
    batch = encode_batch([(b"k", b"v", (), 0)])
    for position in range(17, len(batch)):
        batch[position] ^= 0x40
        assert not verify_crc(batch, 0, read_header(batch))
        batch[position] ^= 0x40


def test_fewer_or_more_records_than_the_header_says() -> None:
    for count in (1, 2):
        batch = encode_batch([(b"k", b"v", (), 0)] * 3)
        struct.pack_into(">i", batch, 57, count)
        with pytest.raises(CorruptBatchError, match="after the last"):
            list(iter_records(batch))
    batch = encode_batch([(b"k", b"v", (), 0)])
    struct.pack_into(">i", batch, 23, 2)
    struct.pack_into(">i", batch, 57, 3)
    with pytest.raises(CorruptBatchError):
        list(iter_records(batch))


@pytest.mark.parametrize("compression", Compression)
def test_damaged_bodies_raise_only_corrupt_batch(compression: Compression) -> None:
    rng = random.Random(compression)
    batch = encode_batch([(b"key%d" % i, b"v" * i, [("h", b"x")], i) for i in range(30)], compression=compression)
    for _ in range(2000):
        damaged = bytearray(batch)
        for _ in range(rng.randint(1, 3)):
            damaged[rng.randrange(BATCH_HEADER_SIZE, len(batch))] = rng.choice(
                (0, 0x7F, 0x80, 0xFF, rng.randrange(256))
            )
        try:
            list(iter_records(damaged, limit_bytes=1 << 20))
        except CorruptBatchError:
            pass


def test_decompression_stops_at_the_limit() -> None:
    for compression in (Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD):
        batch = encode_batch([(None, bytes(5_000_000), (), 0)], compression=compression)
        with pytest.raises(CorruptBatchError, match="exceeds"):
            list(iter_records(batch, limit_bytes=1_000_000))


@given(st.lists(st.tuples(st.integers(1, 3), st.sampled_from(["plain", "data", "commit", "abort"])), max_size=30))
def test_batches_of_aborted_transactions_are_hidden(steps: list[tuple[int, str]]) -> None:
    """As the naive oracle says, which knows the outcome of each transaction. Those without a marker are committed."""
    batches: list[tuple[bytes, BatchHeader, bool]] = []
    open_since: dict[int, list[int]] = {}
    aborted: list[tuple[int, int]] = []
    is_hidden: dict[int, bool] = {}
    for offset, (producer, kind) in enumerate(steps):
        is_control, is_plain = kind in ("commit", "abort"), kind == "plain"
        marker = encode_control_record(ControlRecordType[kind.upper()] if is_control else 0, bytes(6), 0)
        data = encode_batch(
            [marker],
            base_offset=offset,
            producer_id=producer,
            is_transactional=not is_plain,
            is_control=is_control,
        )
        batches.append((bytes(data), read_header(data), is_control))
        is_hidden[offset] = is_control
        if kind == "data":
            open_since.setdefault(producer, []).append(offset)
        elif is_control:
            written = open_since.pop(producer, [])
            if kind == "abort" and written:
                aborted.append((producer, written[0]))
                is_hidden |= dict.fromkeys(written, True)
    committed, everything = AbortedTransactions(aborted), AbortedTransactions()
    assert [committed.hide(data, header) for data, header, _ in batches] == list(is_hidden.values())
    assert [everything.hide(data, header) for data, header, _ in batches] == [control for _, _, control in batches]
