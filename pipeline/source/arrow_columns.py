"""Turns Kafka record batches into Arrow columns, many records at a time.

A record is a sequence of varints and its length comes first, so its start is known only from the record before. That
walk is the only Python loop over records. Everything else is done for all records of a fetch at once. NumPy decodes
each varint field by gathering its bytes from all records. Keys and values are one Arrow array over the fetched bytes:
its offsets alternate between the start and the end of a field, and `take` copies every second element. The CRC of each
batch is checked first. Record batch v2 is the only format (KIP-98).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...runtime.ports import Buffer
from ...wire.compression import Compression, CompressionError, decompress
from ...wire.errors import ProtocolError
from ...wire.fetch import AbortedTransaction
from ...wire.records import (
    BATCH_HEADER_SIZE,
    AbortedTransactions,
    BatchHeader,
    TimestampType,
    iter_headers,
    verify_crc,
)
from ..errors import PipelineError

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

HEADERS_TYPE = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
ARROW_TYPES: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": HEADERS_TYPE,
}
"""All columns of the Kafka connector, in its order."""

GROUP_BYTES = 16 * 1024 * 1024
"""The size of the records in one Arrow batch, roughly."""
_DECOMPRESSED_LIMIT_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The offsets from `from_offset` to before `until_offset` of a partition."""

    topic: str
    partition: int
    from_offset: int
    until_offset: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(slots=True)
class _BatchGroup:
    """The records of several batches: those of batch i are `data[begins[i]:ends[i]]`, without compression."""

    data: Buffer
    begins: list[int]
    ends: list[int]
    headers: list[BatchHeader]


def next_offset(records: Buffer, offset_range: OffsetRange) -> int | None:
    """The offset after the last complete batch, or None. `PipelineError` for bytes that are no batch."""
    last = None
    for _, header in _batches(memoryview(records), offset_range):
        last = header.next_offset
    return last


def decode(
    records: Buffer, aborted: Sequence[AbortedTransaction], offset_range: OffsetRange, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The records of fetched batches that are in the range, as Arrow batches with these columns.

    Control records and records of `aborted` transactions are left out. `PipelineError` names the offset of a batch that
    is damaged.
    """
    for group in _batch_groups(memoryview(records), aborted, offset_range):
        yield _decode_group(group, offset_range, columns)


# -- batches


def _batch_groups(
    view: memoryview, aborted: Sequence[AbortedTransaction], offset_range: OffsetRange
) -> Iterator[_BatchGroup]:
    picked: list[tuple[int, BatchHeader]] = []
    size = 0
    for position, header in _visible_batches(view, aborted, offset_range):
        picked.append((position, header))
        size += header.size_bytes
        if size >= GROUP_BYTES:
            yield from _join_batches(view, picked, offset_range)
            picked, size = [], 0
    if picked:
        yield from _join_batches(view, picked, offset_range)


def _batches(view: memoryview, offset_range: OffsetRange) -> Iterator[tuple[int, BatchHeader]]:
    try:
        yield from iter_headers(view, allow_partial_tail=True)
    except ProtocolError as error:
        raise damaged_records_error(offset_range, offset_range.from_offset, str(error)) from None


def _visible_batches(
    view: memoryview, aborted: Sequence[AbortedTransaction], offset_range: OffsetRange
) -> Iterator[tuple[int, BatchHeader]]:
    """The batches to decode, with their positions. An aborted transaction ends at its marker (KIP-98)."""
    transactions = AbortedTransactions(aborted)
    for position, header in _batches(view, offset_range):
        if header.base_offset >= offset_range.until_offset:
            return
        if not verify_crc(view, position, header):
            raise damaged_records_error(offset_range, header.base_offset, "its CRC does not match its bytes")
        if transactions.hide(view[position:], header):
            continue
        if header.last_offset >= offset_range.from_offset and header.record_count:
            yield position, header


def _join_batches(
    view: memoryview, picked: list[tuple[int, BatchHeader]], offset_range: OffsetRange
) -> Iterator[_BatchGroup]:
    """One group over the fetched bytes, or as many groups as decompressed bodies need."""
    headers = [header for _, header in picked]
    if all(header.compression == Compression.NONE for header in headers):
        start = picked[0][0]
        begins = [position - start + BATCH_HEADER_SIZE for position, _ in picked]
        ends = [position - start + header.size_bytes for position, header in picked]
        yield _BatchGroup(view[start : start + ends[-1]], begins, ends, headers)
        return
    bodies: list[Buffer] = []
    held: list[BatchHeader] = []
    size = 0
    for position, header in picked:
        body = _decompressed_body(
            view[position + BATCH_HEADER_SIZE : position + header.size_bytes], header, offset_range
        )
        bodies.append(body)
        held.append(header)
        size += len(body)
        if size >= GROUP_BYTES:
            yield _join_bodies(bodies, held)
            bodies, held, size = [], [], 0
    if bodies:
        yield _join_bodies(bodies, held)


def _decompressed_body(data: memoryview, header: BatchHeader, offset_range: OffsetRange) -> Buffer:
    try:
        return decompress(header.compression, data, _DECOMPRESSED_LIMIT_BYTES)
    except CompressionError as error:
        raise damaged_records_error(offset_range, header.base_offset, str(error)) from None


def _join_bodies(bodies: list[Buffer], headers: list[BatchHeader]) -> _BatchGroup:
    ends = np.cumsum([len(body) for body in bodies]).tolist()
    return _BatchGroup(b"".join(bodies), [0, *ends[:-1]], ends, headers)


def damaged_records_error(offset_range: OffsetRange, offset: int, reason: str) -> PipelineError:
    """The error for a batch that cannot be read."""
    return PipelineError(
        f"{offset_range}: the records from offset {offset} on cannot be read: {reason}; look at the file with "
        "`raftwerk log verify`, or begin after them with startingOffsets."
    )


# -- records


def _decode_group(group: _BatchGroup, offset_range: OffsetRange, columns: Sequence[str]) -> pa.RecordBatch:
    counts = [header.record_count for header in group.headers]
    try:
        starts, ends = _walk(group, offset_range)
        fields = _parse(group, starts, ends)
        base = np.repeat(np.array([header.base_offset for header in group.headers], dtype=np.int64), counts)
        fields.offset = base + fields.offset
        keep = (fields.offset >= offset_range.from_offset) & (fields.offset < offset_range.until_offset)
        table = _Rows(group, fields, counts, offset_range, None if keep.all() else np.flatnonzero(keep))
        arrays = [_COLUMNS[name](table) for name in columns]
    except (IndexError, _MalformedRecord) as error:
        first = group.headers[0].base_offset
        raise damaged_records_error(offset_range, first, f"a record is malformed ({error})") from None
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([(name, ARROW_TYPES[name]) for name in columns]))


class _MalformedRecord(Exception):
    """The lengths in a record contradict each other."""


@dataclass(slots=True)
class _Fields:
    """The varint fields of all records. Positions are in the group's data; a length of -1 means null."""

    timestamp_delta: Ints
    offset: Ints
    key_at: Ints
    key_length: Ints
    value_at: Ints
    value_length: Ints
    headers_at: Ints
    header_count: Ints


def _walk(group: _BatchGroup, offset_range: OffsetRange) -> tuple[Ints, Ints]:
    """The start of each record, after its length, and its end."""
    data = bytes(group.data)
    starts: list[int] = []
    append = starts.append
    closing: list[int] = []
    for position, stop, header in zip(group.begins, group.ends, group.headers):
        for _ in range(header.record_count):
            byte = data[position]
            if byte < 128:
                position += 1
                append(position)
                position += byte >> 1
                continue
            following = data[position + 1]
            if following < 128:
                position += 2
                append(position)
                position += (byte & 127 | following << 7) >> 1
                continue
            length, position = _long_varint(data, position)
            append(position)
            position += length
        if position != stop:
            raise damaged_records_error(
                offset_range, header.base_offset, f"its {header.record_count} records do not fill it"
            )
        closing.append(len(starts) - 1)
    begin = np.array(starts, dtype=np.int64)
    # The end that is taken is the start of the next record, which is 1 to 5 bytes too far: its length precedes it.
    end = np.empty_like(begin)
    end[:-1] = begin[1:]
    end[closing] = group.ends
    return begin, end


def _long_varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value >> 1, position
        shift += 7
        if shift > 28:
            raise _MalformedRecord("its length has over five bytes")


def _parse(group: _BatchGroup, starts: Ints, ends: Ints) -> _Fields:
    data = np.frombuffer(group.data, dtype=np.uint8)
    timestamp_delta, position = _varints(data, starts + 1)
    offset_delta, position = _varints(data, position)
    key_length, key_at = _lengths(data, position)
    value_length, value_at = _lengths(data, key_at + np.maximum(key_length, 0))
    header_count, headers_at = _lengths(data, value_at + np.maximum(value_length, 0))
    if (header_count < 0).any() or (offset_delta < 0).any() or (headers_at > ends).any():
        raise _MalformedRecord("a length leads out of it")
    return _Fields(timestamp_delta, offset_delta, key_at, key_length, value_at, value_length, headers_at, header_count)


def _lengths(data: Bytes, position: Ints) -> tuple[Ints, Ints]:
    length, position = _varints(data, position)
    if (length < -1).any() or (length > len(data)).any():
        raise _MalformedRecord("a length leads out of it")
    return length, position


def _varints(data: Bytes, position: Ints) -> tuple[Ints, Ints]:
    """The zigzag varint at each position, and the position after it. `IndexError` when one runs past the end."""
    byte = data[position]
    value = (byte & 127).astype(np.int64)
    position = position + 1
    longer = np.flatnonzero(byte > 127)
    shift = 7
    while len(longer):
        if shift > 63:
            raise _MalformedRecord("a varint has over ten bytes")
        byte = data[position[longer]]
        value[longer] |= (byte & 127).astype(np.int64) << shift
        position[longer] += 1
        longer = longer[byte > 127]
        shift += 7
    return (value >> 1) ^ -(value & 1), position


# -- columns


@dataclass(frozen=True, slots=True)
class _Rows:
    """The decoded records of a group. `rows` are the indexes of those in the range, None for all."""

    group: _BatchGroup
    fields: _Fields
    counts: list[int]
    offset_range: OffsetRange
    rows: Ints | None

    @property
    def length(self) -> int:
        return len(self.fields.offset) if self.rows is None else len(self.rows)

    def picked(self, column: Ints) -> Ints:
        return column if self.rows is None else column[self.rows]

    def by_batch(self, value: Callable[[BatchHeader], int]) -> Ints:
        values = np.array([value(header) for header in self.group.headers], dtype=np.int64)
        return np.repeat(values, self.counts)


def _binary(table: _Rows, at: Ints, length: Ints) -> pa.Array:
    if len(at) == 0:
        return pa.array([], pa.binary())
    edges = np.empty(2 * len(at), dtype=np.int32)
    edges[0::2] = at
    edges[1::2] = at + np.maximum(length, 0)
    fenced = pa.BinaryArray.from_buffers(
        pa.binary(), len(edges) - 1, [None, pa.py_buffer(edges), pa.py_buffer(table.group.data)]
    )
    chosen = np.arange(len(at), dtype=np.int64) if table.rows is None else table.rows
    null = length[chosen] < 0
    return fenced.take(pa.array(chosen * 2, mask=null if null.any() else None))


def _key(table: _Rows) -> pa.Array:
    return _binary(table, table.fields.key_at, table.fields.key_length)


def _value(table: _Rows) -> pa.Array:
    return _binary(table, table.fields.value_at, table.fields.value_length)


def _topic(table: _Rows) -> pa.Array:
    return pa.repeat(pa.scalar(table.offset_range.topic, pa.string()), table.length)


def _partition(table: _Rows) -> pa.Array:
    return pa.repeat(pa.scalar(table.offset_range.partition, pa.int32()), table.length)


def _offset(table: _Rows) -> pa.Array:
    return pa.array(table.picked(table.fields.offset))


def _timestamp(table: _Rows) -> pa.Array:
    sent = table.by_batch(lambda header: header.base_timestamp) + table.fields.timestamp_delta
    if any(header.timestamp_type is TimestampType.LOG_APPEND_TIME for header in table.group.headers):
        appended = table.by_batch(lambda header: header.timestamp_type)
        sent = np.where(appended == 1, table.by_batch(lambda header: header.max_timestamp), sent)
    return pa.array(table.picked(sent) * 1000).cast(ARROW_TYPES["timestamp"])


def _timestamp_type(table: _Rows) -> pa.Array:
    return pa.array(table.picked(table.by_batch(lambda header: header.timestamp_type)).astype(np.int32))


def _headers(table: _Rows) -> pa.Array:
    """The headers, decoded record by record, since few topics have them. A record without headers has null."""
    counts = table.picked(table.fields.header_count)
    if not counts.any():
        return pa.nulls(table.length, HEADERS_TYPE)
    data = memoryview(table.group.data)
    found: list[Any] = [
        _read_headers(data, at, count) if count else None
        for at, count in zip(table.picked(table.fields.headers_at).tolist(), counts.tolist())
    ]
    return pa.array(found, HEADERS_TYPE)


def _read_headers(data: memoryview, position: int, count: int) -> list[dict[str, Any]]:
    headers = []
    for _ in range(count):
        key, position = _read_field(data, position)
        value, position = _read_field(data, position)
        headers.append({"key": str(key or b"", "utf-8", "replace"), "value": value})
    return headers


def _read_field(data: memoryview, position: int) -> tuple[bytes | None, int]:
    raw = shift = 0
    while True:
        byte = data[position]
        position += 1
        raw |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
    length = (raw >> 1) ^ -(raw & 1)
    return (None, position) if length < 0 else (bytes(data[position : position + length]), position + length)


_COLUMNS: dict[str, Callable[[_Rows], pa.Array]] = {
    "key": _key,
    "value": _value,
    "topic": _topic,
    "partition": _partition,
    "offset": _offset,
    "timestamp": _timestamp,
    "timestampType": _timestamp_type,
    "headers": _headers,
}
