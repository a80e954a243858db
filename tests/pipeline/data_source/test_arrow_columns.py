"""Record batches into Arrow columns, compared with the wire room's record-by-record reader."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyarrow", reason="no pyarrow: the data source is NOT tested")
from support.wire.all_records import iter_all_records

from raftwerk.log.cleaner.batch_filter import emptied
from raftwerk.pipeline.errors import PipelineError
from raftwerk.pipeline.source.arrow_columns import ARROW_TYPES, OffsetRange, decode, next_offset
from raftwerk.wire.compression import Compression
from raftwerk.wire.fetch import AbortedTransaction
from raftwerk.wire.records import (
    ControlRecordType,
    NewRecord,
    TimestampType,
    compute_crc,
    encode_batch,
    encode_control_record,
    read_header,
)

ALL = OffsetRange("t", 3, 0, 1 << 60)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

blobs = st.one_of(st.none(), st.binary(max_size=40), st.integers(60, 70).map(bytes), st.integers(8190, 8195).map(bytes))
record_headers = st.lists(st.tuples(st.text(max_size=5), st.one_of(st.none(), st.binary(max_size=5))), max_size=3)
records = st.lists(st.builds(NewRecord, blobs, blobs, record_headers, st.integers(0, 1 << 41)), min_size=1, max_size=80)
batches = st.lists(st.tuples(records, st.sampled_from(Compression), st.sampled_from(TimestampType)), max_size=5)


def encoded(parts: Sequence[tuple[list[NewRecord], Compression, TimestampType]]) -> bytes:
    out = bytearray()
    offset = 0
    for part, codec, kind in parts:
        out += encode_batch(part, base_offset=offset, compression=codec, timestamp_type=kind)
        offset += len(part)
    return bytes(out)


def rows(data: bytes, wanted: OffsetRange = ALL, aborted: Sequence[AbortedTransaction] = ()) -> list[dict[str, Any]]:
    return [row for batch in decode(data, aborted, wanted, list(ARROW_TYPES)) for row in batch.to_pylist()]


@settings(max_examples=60)
@given(parts=batches, first=st.integers(0, 100), size=st.integers(0, 200))
def test_as_the_slow_reader_says(parts: list[Any], first: int, size: int) -> None:
    data = encoded(parts)
    wanted = OffsetRange("t", 3, first, first + size)
    expected = [
        {
            "key": record.key,
            "value": record.value,
            "topic": "t",
            "partition": 3,
            "offset": record.offset,
            "timestamp": EPOCH + timedelta(milliseconds=record.timestamp),
            "timestampType": int(header.timestamp_type),
            "headers": [{"key": key, "value": value} for key, value in record.headers] or None,
        }
        for header, record in iter_all_records(data)
        if wanted.from_offset <= record.offset < wanted.until_offset
    ]
    assert rows(data, wanted) == expected


def test_columns_are_those_asked_for() -> None:
    data = encoded([([NewRecord(b"k", b"v")], Compression.ZSTD, TimestampType.CREATE_TIME)])
    (batch,) = decode(data, (), ALL, ["offset", "value"])
    assert batch.to_pylist() == [{"offset": 0, "value": b"v"}]


def test_a_cut_off_last_batch_is_left_for_the_next_fetch() -> None:
    one = ([NewRecord(b"k", b"v")] * 3, Compression.NONE, TimestampType.CREATE_TIME)
    data = encoded([one, one])[:-1]
    assert [row["offset"] for row in rows(data)] == [0, 1, 2]
    assert next_offset(data, ALL) == 3


def transaction(producer: int, offset: int, count: int = 2) -> bytes:
    batch = [NewRecord(b"", b"%d" % producer)] * count
    return bytes(encode_batch(batch, base_offset=offset, producer_id=producer, producer_epoch=0, is_transactional=True))


def marker(producer: int, offset: int, kind: ControlRecordType) -> bytes:
    record = encode_control_record(kind, b"\0\0\0\0\0\0")
    return bytes(
        encode_batch(
            [record],
            base_offset=offset,
            producer_id=producer,
            producer_epoch=0,
            is_transactional=True,
            is_control=True,
        )
    )


def test_aborted_transactions_and_markers_are_left_out() -> None:
    data = b"".join(
        [
            transaction(1, 0),
            transaction(2, 2),
            marker(1, 4, ControlRecordType.ABORT),
            transaction(1, 5),
            marker(1, 7, ControlRecordType.COMMIT),
            marker(2, 8, ControlRecordType.ABORT),
            bytes(encode_batch([NewRecord(None, b"plain")], base_offset=9)),
        ]
    )
    aborted = [AbortedTransaction(2, 2), AbortedTransaction(1, 0)]
    assert [row["offset"] for row in rows(data, aborted=aborted)] == [5, 6, 9]
    assert [row["offset"] for row in rows(data)] == [0, 1, 2, 3, 5, 6, 9]
    assert next_offset(data, ALL) == 10


def test_compaction_may_have_emptied_a_marker() -> None:
    """The last batch of a producer stays in the log when its record has gone."""
    abort = emptied(read_header(marker(1, 2, ControlRecordType.ABORT)))[1]
    data = transaction(1, 0) + abort + transaction(2, 3)
    assert [row["offset"] for row in rows(data, aborted=[AbortedTransaction(1, 0)])] == [3, 4]


def poisoned(codec: Compression, damage: Any, *, mend_crc: bool) -> bytes:
    good = [([NewRecord(b"k", b"v" * 50)] * 4, codec, TimestampType.CREATE_TIME)]
    data = bytearray(encoded(good))
    damage(data)
    if mend_crc:
        struct.pack_into(">I", data, 17, compute_crc(data, 0, read_header(data)))
    return bytes(data)


def flip(at: int) -> Any:
    def damage(data: bytearray) -> None:
        data[at] ^= 0xFF

    return damage


def set_codec(data: bytearray) -> None:
    data[22] |= 7


@pytest.mark.parametrize(
    ("codec", "damage", "mend_crc", "reason"),
    [
        (Compression.NONE, flip(70), False, "its CRC does not match its bytes"),
        (Compression.NONE, set_codec, True, "unknown compression codec 7"),
        (Compression.GZIP, flip(61), True, "malformed gzip data"),
        (Compression.ZSTD, flip(61), True, "malformed zstd data"),
        (Compression.NONE, flip(61), True, "do not fill it|malformed"),
    ],
)
def test_poison_names_its_offset_and_the_way_out(codec: Compression, damage: Any, mend_crc: bool, reason: str) -> None:
    sentence = rf"^t-3: the records from offset 0 on cannot be read: .*({reason}).*; look at .*startingOffsets\.$"
    with pytest.raises(PipelineError, match=sentence):
        rows(poisoned(codec, damage, mend_crc=mend_crc))


@settings(max_examples=400)
@given(at=st.integers(61, 320), value=st.integers(0, 255))
def test_any_byte_may_be_wrong(at: int, value: int) -> None:
    """With a CRC that matches, so that the records themselves are what is judged: rows or a sentence, nothing else."""
    good = [([NewRecord(b"k", b"v" * 50, [("h", b"x")])] * 4, Compression.NONE, TimestampType.CREATE_TIME)]
    data = bytearray(encoded(good))
    data[at % len(data)] = value
    struct.pack_into(">I", data, 17, compute_crc(data, 0, read_header(data)))
    try:
        rows(bytes(data))
    except PipelineError:
        pass
