"""Record batches of format version 2: their headers, which brokers check, and their records.

A batch is a header of 61 bytes and a body of records, which is compressed as a whole. The CRC32C covers all bytes from
the attributes on. The base offset and the leader epoch stand before them, so a leader sets both in place and the CRC
stays valid.
Source: Apache Kafka's documentation, section "Message Format"; KIP-98.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple, TypeAlias

from crc32c import crc32c

from ..runtime.ports import Buffer
from .compression import Compression, CompressionError, compress, decompress
from .errors import ErrorCode, ProtocolError

BATCH_HEADER_SIZE = 61
"""Bytes of header before the first record."""
LOG_OVERHEAD = 12
"""Bytes of the base offset and the length. The length does not count them."""
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

LOG_APPEND_TIME_FLAG = 0x08
"""Set in the attributes of a batch whose timestamp is the broker's."""
TRANSACTIONAL_FLAG = 0x10
"""Set in the attributes of a batch that belongs to a transaction."""
CONTROL_FLAG = 0x20
"""Set in the attributes of a batch of control records."""
_COMPRESSION_MASK = 0x07
_DELETE_HORIZON_FLAG = 0x40

RecordHeaders: TypeAlias = tuple[tuple[str, bytes | None], ...]


class TimestampType(IntEnum):
    """Bit 3 of a batch's attributes: whether the producer or the broker set the timestamps."""

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
    """A malformed batch. `code` is CORRUPT_MESSAGE for its framing, or INVALID_RECORD for its header and records."""


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
    """The header of a batch. Its values may be wrong until `check_header` has checked them.

    It is a tuple because a broker makes one for every batch.
    """

    __slots__ = ()

    @property
    def size_bytes(self) -> int:
        """The size of the whole batch in bytes."""
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        """The offset of the last record."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset after the last record."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record. It wraps to 0 after 2^31-1; -1 stands for none."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF

    @property
    def compression(self) -> int:
        """The number of the codec, as in `Compression`. The numbers 5 to 7 have no codec."""
        return self.attributes & _COMPRESSION_MASK

    @property
    def timestamp_type(self) -> TimestampType:
        """Whether the producer or the broker set the timestamps."""
        if self.attributes & LOG_APPEND_TIME_FLAG:
            return TimestampType.LOG_APPEND_TIME
        return TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL_FLAG)

    @property
    def is_control(self) -> bool:
        """Whether the batch holds control records, which consumers do not see."""
        return bool(self.attributes & CONTROL_FLAG)

    @property
    def has_producer_id(self) -> bool:
        """Whether an idempotent or transactional producer wrote the batch."""
        return self.producer_id > NO_PRODUCER_ID


class Record(NamedTuple):
    """One record of a batch. `timestamp` is in milliseconds since the epoch, -1 for none."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: RecordHeaders = ()


class NewRecord(NamedTuple):
    """One record to write. `timestamp` is in milliseconds since the epoch, -1 for none."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp: int = NO_TIMESTAMP


RecordLike: TypeAlias = NewRecord | tuple[bytes | None, bytes | None, Sequence[tuple[str, bytes | None]], int]


def read_header(buf: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`, without checks. Raises `CorruptBatchError` when fewer than 61 bytes are left."""
    try:
        return tuple.__new__(BatchHeader, _HEADER.unpack_from(buf, position))
    except struct.error as error:
        left = len(buf) - position
        raise CorruptBatchError(ErrorCode.CORRUPT_MESSAGE, f"batch header needs 61 bytes, {left} left") from error


def check_header(header: BatchHeader, bytes_left: int) -> None:
    """Raise `CorruptBatchError` unless magic, length and counts are consistent and the batch fits in `bytes_left`."""
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


def read_valid_header(view: memoryview, position: int) -> BatchHeader | None:
    """The header at `position` if the batch passes the checks of `check_header` and `verify_crc`, else None.

    Recovery uses it, which checks millions of batches. Raises `struct.error` when fewer than 61 bytes are left.
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
    """Positions and headers of the batches in `buf`. `check_header` checks each of them, but the CRCs are not checked.

    An incomplete last batch raises `CorruptBatchError`. With `allow_partial_tail` it ends the iteration instead,
    because a Fetch response may end with an incomplete batch.
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


def end_of_batches(buf: Buffer) -> int:
    """The offset after the last of the batches in `buf`, which are whole and come from a log. 0 when there is none."""
    position, end, last = 0, len(buf), -1
    while position < end:
        last = position
        position += _INT32.unpack_from(buf, position + 8)[0] + LOG_OVERHEAD
    return 0 if last < 0 else read_header(buf, last).next_offset


def compute_crc(buf: Buffer, position: int, header: BatchHeader) -> int:
    """The CRC32C of the batch at `position`, from its attributes to its end."""
    view = memoryview(buf)
    return crc32c(view[position + _ATTRIBUTES_AT : position + header.batch_length + LOG_OVERHEAD])


def verify_crc(buf: Buffer, position: int, header: BatchHeader) -> bool:
    """Whether the batch's bytes match the CRC in its header."""
    return compute_crc(buf, position, header) == header.crc


def set_base_offset(buf: bytearray | memoryview, position: int, offset: int) -> None:
    """Set the base offset of the batch at `position`. The CRC does not cover it."""
    _INT64.pack_into(buf, position, offset)


def set_partition_leader_epoch(buf: bytearray | memoryview, position: int, epoch: int) -> None:
    """Set the epoch of the leader that appends the batch. The CRC does not cover it."""
    _INT32.pack_into(buf, position + _PARTITION_LEADER_EPOCH_AT, epoch)


def set_log_append_time(buf: bytearray | memoryview, position: int, timestamp_ms: int) -> None:
    """Set the broker's time as the batch's timestamp: the timestamp type, the max timestamp and a new CRC."""
    header = read_header(buf, position)
    _INT16.pack_into(buf, position + _ATTRIBUTES_AT, header.attributes | LOG_APPEND_TIME_FLAG)
    _INT64.pack_into(buf, position + _MAX_TIMESTAMP_AT, timestamp_ms)
    _UINT32.pack_into(buf, position + _CRC_AT, compute_crc(buf, position, header))


def set_max_timestamp(buf: bytearray | memoryview, position: int, timestamp_ms: int) -> None:
    """Set the greatest timestamp of the batch's records, and a new CRC."""
    _INT64.pack_into(buf, position + _MAX_TIMESTAMP_AT, timestamp_ms)
    _UINT32.pack_into(buf, position + _CRC_AT, compute_crc(buf, position, read_header(buf, position)))


def _write_varint(out: bytearray, value: int) -> None:
    value = (value << 1) ^ (value >> 63)
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _read_varint(data: Buffer, position: int) -> tuple[int, int]:
    """A zig-zag varint of at most 64 bits, and the position after it. Raises `IndexError` past the end."""
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
    """The records of the batch at the start of `batch`, decompressed to at most `limit_bytes`.

    The CRC is not checked; `verify_crc` does that. In a batch with log-append time, all records have its max timestamp.
    Raises `CorruptBatchError` at the first malformed record.
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
    """A batch of `(key, value, headers, timestamp_ms)` records with consecutive offsets.

    Raises `ValueError` without records: only compaction makes empty batches.
    """
    if not records:
        raise ValueError("a batch needs at least one record")
    base_timestamp = records[0][3]
    body = bytearray()
    for delta, record in enumerate(records):
        _encode_record(body, record, delta, base_timestamp)
    attributes = (
        compression
        | (LOG_APPEND_TIME_FLAG if timestamp_type is TimestampType.LOG_APPEND_TIME else 0)
        | (TRANSACTIONAL_FLAG if is_transactional else 0)
        | (CONTROL_FLAG if is_control else 0)
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
    """A control record for `encode_batch(..., is_control=True)`. `value` is the encoded message of this type."""
    return NewRecord(_CONTROL_KEY.pack(0, record_type), value, (), timestamp)


def control_record_type(key: bytes | None) -> int:
    """The type in a control record's key, as in `ControlRecordType`. Raises `CorruptBatchError` when there is none."""
    if key is None or len(key) < _CONTROL_KEY.size:
        raise _invalid("control record without a type in its key")
    version, record_type = _CONTROL_KEY.unpack_from(key)
    if version < 0:
        raise _invalid(f"control record key of version {version}")
    return int(record_type)


class AbortedTransactions:
    """The aborted transactions of a Fetch answer, as a consumer with `read_committed` needs them (KIP-98).

    `pairs` are producer ids with the first offsets of their transactions. Without pairs, only markers are left out, as
    with `read_uncommitted`.
    """

    def __init__(self, pairs: Iterable[tuple[int, int]] = ()) -> None:
        self._coming = sorted(((first, producer_id) for producer_id, first in pairs), reverse=True)
        self._aborting: dict[int, None] = {}

    def hide(self, batch: Buffer, header: BatchHeader) -> bool:
        """Whether the consumer does not see the batch at the start of `batch`. Ask for every batch, in their order.

        Control batches are hidden, and so are the batches of an aborted transaction, which ends at its marker.
        """
        while self._coming and self._coming[-1][0] <= header.last_offset:
            self._aborting[self._coming.pop()[1]] = None
        if not header.is_control:
            return header.is_transactional and header.producer_id in self._aborting
        if header.producer_id in self._aborting and _is_abort_marker(batch):
            del self._aborting[header.producer_id]
        return True


def _is_abort_marker(batch: Buffer) -> bool:
    """Whether the control batch ends an aborted transaction. Compaction may have left the batch without its record."""
    marker = next(iter_records(batch), None)
    return marker is not None and control_record_type(marker.key) == ControlRecordType.ABORT
