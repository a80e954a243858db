"""Removing records from a batch, which keeps its offsets.

Base offset, last offset delta, producer id, epoch and sequence stay the same, so that offsets do not change and a
producer's last batch is still known. Records that stay are copied as bytes. If the batch gets a delete horizon, its
base timestamp becomes the time from which tombstones may be removed (KIP-534), and the timestamp deltas are rewritten.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from crc32c import crc32c

from ...wire.compression import CompressionError, compress, decompress
from ...wire.errors import ErrorCode
from ...wire.records import (
    BATCH_HEADER_SIZE,
    DEFAULT_DECOMPRESSED_LIMIT_BYTES,
    BatchHeader,
    CorruptBatchError,
    TimestampType,
)

DELETE_HORIZON_FLAG = 0x40
CODEC_MASK = 0x07
_PLACE = struct.Struct(">qiibI")
_CHECKED_PART = struct.Struct(">hiqqqhii")
_LENGTH_AFTER_CRC = 9


class RawRecord(NamedTuple):
    """One record in an uncompressed body, from `start` (its length) to `end`; `tail` is after the timestamp."""

    offset_delta: int
    timestamp_delta: int
    key: memoryview | None
    has_value: bool
    start: int
    tail: int
    end: int


def batch_body(batch: memoryview, header: BatchHeader) -> memoryview:
    """The uncompressed records of a batch. `CorruptBatchError`."""
    try:
        body = batch[BATCH_HEADER_SIZE : header.size_bytes]
        return memoryview(decompress(header.compression, body, DEFAULT_DECOMPRESSED_LIMIT_BYTES))
    except CompressionError as error:
        raise CorruptBatchError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error


def raw_records(body: memoryview, count: int) -> Iterator[RawRecord]:
    """The records of a body. `CorruptBatchError` if it does not parse."""
    position = 0
    try:
        for _ in range(count):
            start = position
            length, position = _varint(body, position)
            end = position + length
            timestamp_delta, tail = _varint(body, position + 1)
            offset_delta, position = _varint(body, tail)
            key_length, position = _varint(body, position)
            key = None
            if key_length >= 0:
                key = body[position : position + key_length]
                position += key_length
            value_length, _ = _varint(body, position)
            if position > end or end > len(body) or length < 0:
                raise CorruptBatchError(ErrorCode.INVALID_RECORD, f"record of {length} bytes at {start}")
            yield RawRecord(offset_delta, timestamp_delta, key, value_length >= 0, start, tail, end)
            position = end
    except IndexError:
        raise CorruptBatchError(ErrorCode.INVALID_RECORD, "a record ends early") from None


def delete_horizon_ms(header: BatchHeader) -> int | None:
    """The time from which the batch's tombstones may be removed, None when it has none yet."""
    return header.base_timestamp if header.attributes & DELETE_HORIZON_FLAG else None


def rebuild(
    header: BatchHeader, body: memoryview, kept: list[RawRecord], horizon_ms: int | None
) -> tuple[BatchHeader, bytes]:
    """The batch with only the records `kept`, which are not empty; `horizon_ms` is a new delete horizon, if any."""
    if horizon_ms is None:
        records = b"".join([body[record.start : record.end] for record in kept])
        base_timestamp, flags = header.base_timestamp, 0
    else:
        shift = header.base_timestamp - horizon_ms
        records = b"".join([_shifted(body, record, shift) for record in kept])
        base_timestamp, flags = horizon_ms, DELETE_HORIZON_FLAG
    max_timestamp = header.max_timestamp
    if header.timestamp_type is TimestampType.CREATE_TIME:
        max_timestamp = header.base_timestamp + max(record.timestamp_delta for record in kept)
    rebuilt = header._replace(
        attributes=header.attributes | flags,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        record_count=len(kept),
    )
    return pack(rebuilt, compress(header.compression, records) if header.compression else records)


def emptied(header: BatchHeader) -> tuple[BatchHeader, bytes]:
    """The batch without records. Source: DefaultRecordBatch.writeEmptyHeader of Apache Kafka."""
    attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON_FLAG)
    return pack(
        header._replace(attributes=attributes, base_timestamp=header.max_timestamp, record_count=0),
        b"",
    )


def filler(last: BatchHeader, offset: int) -> tuple[BatchHeader, bytes]:
    """An empty batch that takes just `offset`, with the timestamp and leader epoch of `last`."""
    return pack(
        last._replace(
            base_offset=offset,
            attributes=0,
            last_offset_delta=0,
            base_timestamp=last.max_timestamp,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            record_count=0,
        ),
        b"",
    )


def pack(header: BatchHeader, body: bytes) -> tuple[BatchHeader, bytes]:
    """The batch of this header and (compressed) body; its length and CRC are computed."""
    checked = (
        _CHECKED_PART.pack(
            header.attributes,
            header.last_offset_delta,
            header.base_timestamp,
            header.max_timestamp,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.record_count,
        )
        + body
    )
    header = header._replace(batch_length=len(checked) + _LENGTH_AFTER_CRC, crc=crc32c(checked))
    return header, _PLACE.pack(*header[:5]) + checked


def _shifted(body: memoryview, record: RawRecord, shift: int) -> bytes:
    """The record with its timestamp delta grown by `shift`."""
    attributes = record.tail - _varint_size(record.timestamp_delta) - 1
    delta = _encode_varint(record.timestamp_delta + shift)
    length = 1 + len(delta) + record.end - record.tail
    return b"".join((_encode_varint(length), body[attributes : attributes + 1], delta, body[record.tail : record.end]))


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    byte = data[position]
    position += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position
    value, shift = byte & 0x7F, 7
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
        if shift > 63:
            raise CorruptBatchError(ErrorCode.INVALID_RECORD, "varint over 10 bytes")


def _encode_varint(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _varint_size(value: int) -> int:
    return max(((value << 1) ^ (value >> 63)).bit_length() + 6, 7) // 7
