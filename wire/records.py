"""Record batches of format 2: the header that brokers check, and the records that clients see.

A batch is 61 bytes of header and a body of records, compressed as a whole. The CRC32C covers everything from the
attributes on, so that a leader can set the base offset and the leader epoch in place without recomputing it.
Source: Apache Kafka's documentation, section "Message Format"; KIP-98.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple, TypeAlias

from crc32c import crc32c

from ..runtime.ports import Buffer
from .compression import Compression, CompressionError, compress, decompress
from .errors import ErrorCode, ProtocolError

BATCH_HEADER_SIZE = 61
"""Bytes of header before the first record."""
LOG_OVERHEAD = 12
"""Bytes of base offset and length, which the length does not count."""
MAGIC_V2 = 2
NO_PRODUCER_ID = -1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1
DEFAULT_DECOMPRESSED_LIMIT_BYTES = 256 * 1024 * 1024

_HEADER = struct.Struct(">qiibIhiqqqhii")
_CHECKED_PART = struct.Struct(">hiqqqhii")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_UINT32 = struct.Struct(">I")
_INT64 = struct.Struct(">q")
_CONTROL_KEY = struct.Struct(">hh")
_PARTITION_LEADER_EPOCH_AT = 12
_CRC_AT = 17
_ATTRIBUTES_AT = 21
_MAX_TIMESTAMP_AT = 35

_COMPRESSION_MASK = 0x07
_LOG_APPEND_TIME_FLAG = 0x08
_TRANSACTIONAL_FLAG = 0x10
_CONTROL_FLAG = 0x20
_DELETE_HORIZON_FLAG = 0x40

RecordHeaders: TypeAlias = tuple[tuple[str, bytes | None], ...]


class TimestampType(IntEnum):
    """Bit 3 of a batch's attributes: who set the timestamps."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class ControlRecordType(IntEnum):
    """Types of control records. Source: KIP-98, KIP-595, KIP-630, KIP-853."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class CorruptBatchError(ProtocolError):
    """A batch that is not what it says; `code` is CORRUPT_MESSAGE (its framing) or INVALID_RECORD (its records)."""


class _HeaderFields(NamedTuple):
    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int


class BatchHeader(_HeaderFields):
    """The 61 bytes before a batch's records, as they stand; `check_header` judges them.

    A tuple, as one is built for every batch that passes through a broker.
    """

    __slots__ = ()

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole batch."""
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record; wraps to 0 after 2^31-1. -1 without a producer id."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF

    @property
    def compression(self) -> int:
        """Codec number; compare with `Compression`. 5 to 7 are not assigned."""
        return self.attributes & _COMPRESSION_MASK

    @property
    def timestamp_type(self) -> TimestampType:
        if self.attributes & _LOG_APPEND_TIME_FLAG:
            return TimestampType.LOG_APPEND_TIME
        return TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & _TRANSACTIONAL_FLAG)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & _CONTROL_FLAG)

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID


class Record(NamedTuple):
    """One record as a consumer sees it; `timestamp` in milliseconds since the epoch, -1 for none."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: RecordHeaders = ()


class NewRecord(NamedTuple):
    """One record to be written; `timestamp` in milliseconds since the epoch, -1 for none."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp: int = NO_TIMESTAMP


RecordLike: TypeAlias = NewRecord | tuple[bytes | None, bytes | None, Sequence[tuple[str, bytes | None]], int]


def read_header(buf: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`, unjudged. `CorruptBatchError(CORRUPT_MESSAGE)` with fewer than 61 bytes left."""
    try:
        return tuple.__new__(BatchHeader, _HEADER.unpack_from(buf, position))
    except struct.error as error:
        left = len(buf) - position
        raise CorruptBatchError(ErrorCode.CORRUPT_MESSAGE, f"batch header needs 61 bytes, {left} left") from error


def check_header(header: BatchHeader, bytes_left: int) -> None:
    """Raise `CorruptBatchError` unless length, magic and counts fit each other and the bytes that are there."""
    if header.magic != MAGIC_V2:
        raise CorruptBatchError(ErrorCode.INVALID_RECORD, f"magic {header.magic} is not supported, only 2")
    if header.batch_length < BATCH_HEADER_SIZE - LOG_OVERHEAD or header.size_bytes > bytes_left:
        raise CorruptBatchError(
            ErrorCode.CORRUPT_MESSAGE, f"batch length {header.batch_length} with {bytes_left} bytes there"
        )
    if header.record_count < 0 or header.last_offset_delta < 0 or header.record_count > header.last_offset_delta + 1:
        raise CorruptBatchError(
            ErrorCode.INVALID_RECORD,
            f"{header.record_count} records with a last offset delta of {header.last_offset_delta}",
        )


def read_sound(view: memoryview, position: int) -> BatchHeader | None:
    """The header at `position` if `check_header` and `verify_crc` find nothing wrong with the batch, else None.

    For those who check millions of batches. `struct.error` with fewer than 61 bytes left.
    """
    header = tuple.__new__(BatchHeader, _HEADER.unpack_from(view, position))
    _, length, _, magic, crc, _, delta, _, _, _, _, _, count = header
    end = position + length + LOG_OVERHEAD
    if (
        magic == MAGIC_V2
        and length >= BATCH_HEADER_SIZE - LOG_OVERHEAD
        and end <= len(view)
        and 0 <= count <= delta + 1
        and delta >= 0
        and crc32c(view[position + _ATTRIBUTES_AT : end]) == crc
    ):
        return header
    return None


def iter_headers(buf: Buffer, *, allow_partial_tail: bool = False) -> Iterator[tuple[int, BatchHeader]]:
    """Positions and headers of the batches in `buf`, each checked with `check_header`; CRCs are not.

    A cut-off last batch raises `CorruptBatchError`, or ends the iteration where `allow_partial_tail` is set (a fetch
    response may end in one).
    """
    position, end = 0, len(buf)
    while position < end:
        left = end - position
        if allow_partial_tail and (
            left < BATCH_HEADER_SIZE or _INT32.unpack_from(buf, position + 8)[0] > left - LOG_OVERHEAD
        ):
            return
        header = read_header(buf, position)
        check_header(header, left)
        yield position, header
        position += header.batch_length + LOG_OVERHEAD


def compute_crc(buf: Buffer, position: int, header: BatchHeader) -> int:
    """CRC32C of the batch at `position`, from its attributes to its end."""
    view = memoryview(buf)
    return crc32c(view[position + _ATTRIBUTES_AT : position + header.batch_length + LOG_OVERHEAD])


def verify_crc(buf: Buffer, position: int, header: BatchHeader) -> bool:
    """Whether the batch's bytes match the CRC in its header."""
    return compute_crc(buf, position, header) == header.crc


def set_base_offset(buf: bytearray | memoryview, position: int, offset: int) -> None:
    """Give the batch its place in the log; outside the CRC."""
    _INT64.pack_into(buf, position, offset)


def set_partition_leader_epoch(buf: bytearray | memoryview, position: int, epoch: int) -> None:
    """Say which leader appended the batch; outside the CRC."""
    _INT32.pack_into(buf, position + _PARTITION_LEADER_EPOCH_AT, epoch)


def set_log_append_time(buf: bytearray | memoryview, position: int, timestamp_ms: int) -> None:
    """Stamp the batch with the broker's time: timestamp type, max timestamp, and the CRC anew."""
    header = read_header(buf, position)
    _INT16.pack_into(buf, position + _ATTRIBUTES_AT, header.attributes | _LOG_APPEND_TIME_FLAG)
    _INT64.pack_into(buf, position + _MAX_TIMESTAMP_AT, timestamp_ms)
    _UINT32.pack_into(buf, position + _CRC_AT, compute_crc(buf, position, header))


def _write_varint(out: bytearray, value: int) -> None:
    value = (value << 1) ^ (value >> 63)
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _read_varint(data: Buffer, position: int) -> tuple[int, int]:
    """A zig-zag varint of at most 64 bits, and the position after it. `IndexError` past the end."""
    byte = data[position]
    position += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position
    value = byte & 0x7F
    shift = 7
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
        if shift > 63:
            raise _invalid("varint over 10 bytes")


def _invalid(reason: str) -> CorruptBatchError:
    return CorruptBatchError(ErrorCode.INVALID_RECORD, reason)


def _read_bytes(data: memoryview, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = _read_varint(data, position)
    if length < 0:
        if length != -1:
            raise _invalid(f"field of length {length}")
        return None, position
    stop = position + length
    if stop > end:
        raise _invalid(f"field of {length} bytes, {end - position} left")
    return bytes(data[position:stop]), stop


def _read_record_headers(data: memoryview, position: int, end: int, count: int) -> tuple[RecordHeaders, int]:
    if count < 0 or count > end - position:
        raise _invalid(f"{count} record headers, {end - position} bytes left")
    headers = []
    for _ in range(count):
        key, position = _read_bytes(data, position, end)
        value, position = _read_bytes(data, position, end)
        if key is None:
            raise _invalid("record header with a null key")
        headers.append((str(key, "utf-8"), value))
    return tuple(headers), position


def _read_record(data: memoryview, position: int, base: tuple[int, int]) -> tuple[Record, int]:
    """The record at `position`; `base` is the batch's base offset and base timestamp."""
    length, position = _read_varint(data, position)
    end = position + length
    if length < 0 or end > len(data):
        raise _invalid(f"record of {length} bytes, {len(data) - position} left")
    timestamp_delta, position = _read_varint(data, position + 1)
    offset_delta, position = _read_varint(data, position)
    key, position = _read_bytes(data, position, end)
    value, position = _read_bytes(data, position, end)
    count, position = _read_varint(data, position)
    headers: RecordHeaders = ()
    if count:
        headers, position = _read_record_headers(data, position, end, count)
    if position != end:
        raise _invalid(f"record ends {end - position} bytes from where its length says")
    return Record(base[0] + offset_delta, base[1] + timestamp_delta, key, value, headers), end


def iter_records(batch: Buffer, *, limit_bytes: int = DEFAULT_DECOMPRESSED_LIMIT_BYTES) -> Iterator[Record]:
    """The records of the one batch at the start of `batch`, decompressed to at most `limit_bytes`.

    The CRC is not checked (`verify_crc` does). Records of a batch with log-append time all carry its max timestamp.
    Raises `CorruptBatchError` at the point where the batch stops being one.
    """
    header = read_header(batch)
    check_header(header, len(batch))
    body = memoryview(batch)[BATCH_HEADER_SIZE : header.size_bytes]
    try:
        data = memoryview(decompress(header.compression, body, limit_bytes))
    except CompressionError as error:
        raise CorruptBatchError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    base = header.base_offset, header.base_timestamp
    append_time = header.max_timestamp if header.timestamp_type is TimestampType.LOG_APPEND_TIME else None
    position = 0
    try:
        for _ in range(header.record_count):
            record, position = _read_record(data, position, base)
            yield record if append_time is None else record._replace(timestamp=append_time)
    except (IndexError, UnicodeDecodeError) as error:
        raise _invalid(f"malformed record: {error}") from error
    if position != len(data):
        raise _invalid(f"{len(data) - position} bytes after the last of {header.record_count} records")


def iter_all_records(
    buf: Buffer, *, limit_bytes: int = DEFAULT_DECOMPRESSED_LIMIT_BYTES
) -> Iterator[tuple[BatchHeader, Record]]:
    """The records of every whole batch in `buf` with their batch's header, control records included.

    A cut-off last batch is passed over, as a fetch response may end in one.
    """
    view = memoryview(buf)
    for position, header in iter_headers(view, allow_partial_tail=True):
        for record in iter_records(view[position : position + header.size_bytes], limit_bytes=limit_bytes):
            yield header, record


def _encode_record(out: bytearray, record: RecordLike, offset_delta: int, base_timestamp: int) -> None:
    key, value, headers, timestamp = record
    body = bytearray(1)
    _write_varint(body, timestamp - base_timestamp)
    _write_varint(body, offset_delta)
    for field in (key, value):
        if field is None:
            body.append(1)
        else:
            _write_varint(body, len(field))
            body += field
    _write_varint(body, len(headers))
    for name, content in headers:
        name_bytes = name.encode()
        _write_varint(body, len(name_bytes))
        body += name_bytes
        _write_varint(body, -1 if content is None else len(content))
        body += content or b""
    _write_varint(out, len(body))
    out += body


def encode_batch(
    records: Sequence[RecordLike],
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    compression: int = Compression.NONE,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    is_control: bool = False,
    is_transactional: bool = False,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
) -> bytearray:
    """One batch of `(key, value, headers, timestamp_ms)` records with consecutive offsets.

    `ValueError` without records: an empty batch is left only by compaction.
    """
    if not records:
        raise ValueError("a batch needs at least one record")
    base_timestamp = records[0][3]
    body = bytearray()
    for delta, record in enumerate(records):
        _encode_record(body, record, delta, base_timestamp)
    attributes = (
        compression
        | (_LOG_APPEND_TIME_FLAG if timestamp_type is TimestampType.LOG_APPEND_TIME else 0)
        | (_TRANSACTIONAL_FLAG if is_transactional else 0)
        | (_CONTROL_FLAG if is_control else 0)
    )
    max_timestamp = max(record[3] for record in records)
    last_delta = len(records) - 1
    checked = bytearray(
        _CHECKED_PART.pack(
            attributes,
            last_delta,
            base_timestamp,
            max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            len(records),
        )
    )
    checked += compress(compression, body) if compression else body
    batch = bytearray(_INT64.pack(base_offset))
    batch += struct.pack(">iibI", len(checked) + 9, leader_epoch, MAGIC_V2, crc32c(checked))
    batch += checked
    return batch


def encode_control_record(record_type: int, value: bytes, timestamp: int = NO_TIMESTAMP) -> NewRecord:
    """A control record for `encode_batch(..., is_control=True)`; `value` is the type's own message."""
    return NewRecord(_CONTROL_KEY.pack(0, record_type), value, (), timestamp)


def control_record_type(key: bytes | None) -> int:
    """The type in a control record's key (compare with `ControlRecordType`). `CorruptBatchError` when it has none."""
    if key is None or len(key) < _CONTROL_KEY.size:
        raise _invalid("control record without a type in its key")
    version, record_type = _CONTROL_KEY.unpack_from(key)
    if version < 0:
        raise _invalid(f"control record key of version {version}")
    return int(record_type)
