"""Validation of batches before they are appended: headers and CRC here, their records in `record_validation.py`.

The errors are those of Apache Kafka (ProduceRequest.validateRecords, LogValidator,
UnifiedLog.analyzeAndValidateRecords).
"""

from __future__ import annotations

import struct

from crc32c import crc32c

from ..wire.errors import ErrorCode, ProtocolError
from ..wire.records import (
    BATCH_HEADER_SIZE,
    CONTROL_FLAG,
    LOG_OVERHEAD,
    MAGIC_V2,
    BatchHeader,
    CorruptBatchError,
    TimestampType,
    read_header,
    set_log_append_time,
    verify_crc,
)
from .cleaner.batch_filter import pack
from .config import MAX_INT64, LogConfig
from .record_validation import LoopBudget, check_records, recompressed

_HEADER = struct.Struct(">qiibIhiqqqhii")
_PLACE = struct.Struct(">qii")
_CODEC_MASK, _LAST_CODEC = 0x07, 4
_ATTRIBUTES_AT = 21
_USUAL_ATTRIBUTES = 0x13
"""A codec up to lz4, and transactional; batches with other bits are looked at closer."""


def prepare_for_leader(
    batches: memoryview,
    first_offset: int,
    leader_epoch: int,
    config: LogConfig,
    now_ms: int,
    *,
    internal: bool = False,
    budget: LoopBudget | None = None,
) -> list[BatchHeader]:
    """Check a client's batches, and write the epoch and offsets from `first_offset` on into them, in place.

    The topic keeps the codec of each batch. Returns their headers after that. `internal` batches are the broker's own:
    they may be control batches, and their records are not validated. Raises `ProtocolError`, and with a budget
    `NeedsThreadError`.
    """
    headers: list[BatchHeader] = []
    position, end = 0, len(batches)
    is_log_append_time = config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
    while position < end:
        header = _check_batch(batches, position, end, first_offset, leader_epoch, config, internal)
        if not internal:
            header, _ = check_records(batches, position, header, config, now_ms, budget)
        if is_log_append_time:
            header = _stamped(batches, position, header, now_ms)
        _PLACE.pack_into(batches, position, first_offset, header[1], leader_epoch)
        headers.append(header)
        first_offset += header[6] + 1
        position += header[1] + LOG_OVERHEAD
    if not headers:
        raise _invalid("There is no record batch.")
    return headers


def validate(batches: memoryview, config: LogConfig, now_ms: int, budget: LoopBudget | None = None) -> memoryview:
    """Check a client's batches as `prepare_for_leader`, and give them the codec of the topic; offsets stay unset.

    This needs nothing but its arguments, so it may run in a thread. Returns what is to be given to `place_validated`.
    Raises `ProtocolError`, and with a budget `NeedsThreadError`.
    """
    parts: list[memoryview | bytes] = []
    position, end = 0, len(batches)
    codec = config.compression_type
    is_changed = False
    while position < end:
        header = _check_batch(batches, position, end, 0, 0, config, False)
        stop = position + header.size_bytes
        header, body = check_records(batches, position, header, config, now_ms, budget)
        if codec is None or codec == header.compression:
            parts.append(batches[position:stop])
        else:
            attributes = header.attributes & ~_CODEC_MASK | codec
            header, batch = pack(header._replace(attributes=attributes), recompressed(body, codec, config))
            _check_size(header.size_bytes, config)
            parts.append(batch)
            is_changed = True
        position = stop
    if not parts:
        raise _invalid("There is no record batch.")
    return memoryview(bytearray(b"".join(parts))) if is_changed else batches


def place_validated(
    batches: memoryview, first_offset: int, leader_epoch: int, config: LogConfig, now_ms: int
) -> list[BatchHeader]:
    """Give batches that `validate` has returned offsets from `first_offset` on and the epoch, in place."""
    headers: list[BatchHeader] = []
    position = 0
    while position < len(batches):
        header = read_header(batches, position)._replace(base_offset=first_offset, partition_leader_epoch=leader_epoch)
        if config.message_timestamp_type is TimestampType.LOG_APPEND_TIME:
            header = _stamped(batches, position, header, now_ms)
        _PLACE.pack_into(batches, position, first_offset, header.batch_length, leader_epoch)
        headers.append(header)
        first_offset = header.next_offset
        position += header.size_bytes
    return headers


def _check_batch(
    batches: memoryview,
    position: int,
    end: int,
    first_offset: int,
    leader_epoch: int,
    config: LogConfig,
    internal: bool,
) -> BatchHeader:
    """The header of the batch at `position` with this offset and leader epoch; its CRC is right, too."""
    if end - position < BATCH_HEADER_SIZE:
        raise _invalid(f"{end - position} bytes are less than a record batch")
    fields = _HEADER.unpack_from(batches, position)
    length, attributes, delta = fields[1], fields[5], fields[6]
    stop = position + length + LOG_OVERHEAD
    if fields[3] != MAGIC_V2 or length < BATCH_HEADER_SIZE - LOG_OVERHEAD or stop > end:
        raise _framing_error(fields[3], length, end - position)
    if fields[0] and not internal:
        raise _invalid(f"The base offset of a record batch from a client must be 0, it is {fields[0]}.")
    if stop - position > config.max_message_bytes and not (internal and attributes & CONTROL_FLAG):
        _check_size(stop - position, config)  # a marker that is refused would leave its transaction open
    if crc32c(batches[position + _ATTRIBUTES_AT : stop]) != fields[4]:
        raise CorruptBatchError(ErrorCode.CORRUPT_MESSAGE, "Record batch is corrupt: its CRC does not match.")
    header: BatchHeader = tuple.__new__(BatchHeader, (first_offset, length, leader_epoch, *fields[3:]))
    if delta < 0 or fields[12] != delta + 1 or attributes & ~_USUAL_ATTRIBUTES or (fields[9] >= 0 and fields[11] < 0):
        _check_counts_and_flags(header, config, internal)
    return header


def _check_size(size_bytes: int, config: LogConfig) -> None:
    if size_bytes > config.max_message_bytes:
        raise ProtocolError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The record batch has {size_bytes} bytes, max.message.bytes is {config.max_message_bytes}.",
        )


def _stamped(batches: memoryview, position: int, header: BatchHeader, now_ms: int) -> BatchHeader:
    set_log_append_time(batches, position, now_ms)
    offset, epoch = header.base_offset, header.partition_leader_epoch
    return read_header(batches, position)._replace(base_offset=offset, partition_leader_epoch=epoch)


def first_batch_around(batches: memoryview, offset: int) -> int | None:
    """Base offset of the first batch, if `offset` lies within it but is not its first."""
    if len(batches) < BATCH_HEADER_SIZE:
        return None
    header = read_header(batches)
    return header.base_offset if 0 <= header.base_offset < offset <= header.last_offset else None


def count_offsets(headers: list[BatchHeader]) -> int:
    """How many offsets the batches have together."""
    return sum(header.last_offset_delta for header in headers) + len(headers)


def prepare_for_follower(
    batches: memoryview, next_offset: int, latest_epoch: int, leader_epoch: int, may_skip: bool = False
) -> list[BatchHeader]:
    """Check batches from the leader of `leader_epoch`, which must continue the log at `next_offset`.

    Returns their headers. With `may_skip` offsets may be missing. An incomplete batch at the end is ignored, and so are
    batches from the first one of a greater epoch on, if others come before it (KAFKA-18723).
    Raises `ProtocolError`: CORRUPT_MESSAGE, OFFSET_OUT_OF_RANGE.
    """
    headers: list[BatchHeader] = []
    position, end = 0, len(batches)
    while end - position >= BATCH_HEADER_SIZE:
        header: BatchHeader = tuple.__new__(BatchHeader, _HEADER.unpack_from(batches, position))
        size = header.batch_length + LOG_OVERHEAD
        if header.magic != MAGIC_V2 or size < BATCH_HEADER_SIZE or header.last_offset_delta < 0:
            raise _corrupt(f"No batch at byte {position} of what the leader sent.")
        if position + size > end:
            break
        is_later = header.base_offset > next_offset
        if header.base_offset < next_offset or (is_later and (not may_skip or header.next_offset > MAX_INT64)):
            raise ProtocolError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"The log ends at {next_offset}, the batch starts at {header.base_offset}.",
            )
        if header.partition_leader_epoch < latest_epoch:
            raise _corrupt(f"Epoch {header.partition_leader_epoch} after epoch {latest_epoch}.")
        if header.partition_leader_epoch > leader_epoch:
            if headers:
                break
            raise _corrupt(
                f"The batch at offset {header.base_offset} is of leader epoch {header.partition_leader_epoch}, "
                f"and its leader is of epoch {leader_epoch}."
            )
        if not verify_crc(batches, position, header):
            raise _corrupt("A batch from the leader is corrupt: its CRC does not match.")
        headers.append(header)
        next_offset = header.base_offset + header.last_offset_delta + 1
        latest_epoch = header.partition_leader_epoch
        position += size
    return headers


def _framing_error(magic: int, length: int, bytes_left: int) -> CorruptBatchError:
    if magic in (0, 1):
        return _invalid(f"Record batches of magic {magic} are not accepted, only 2.")
    if magic != MAGIC_V2:
        return _corrupt(f"Record batch with magic {magic}.")
    if length < BATCH_HEADER_SIZE - LOG_OVERHEAD:
        return _corrupt(f"Record batch with length {length}.")
    return _invalid(f"Record batch of length {length}, {bytes_left - LOG_OVERHEAD} bytes are there.")


def _check_counts_and_flags(header: BatchHeader, config: LogConfig, internal: bool) -> None:
    if header.last_offset_delta < 0:
        raise _invalid(f"Batch has an invalid last offset delta, {header.last_offset_delta}.")
    if header.record_count != header.last_offset_delta + 1:
        raise _invalid(
            f"Inconsistent batch: {header.record_count} records, last offset delta {header.last_offset_delta}."
        )
    if header.is_control and not internal:
        raise _invalid("Clients are not allowed to write control records.")
    if header.has_producer_id and header.base_sequence < 0 and not internal:
        raise _invalid(f"Invalid sequence number {header.base_sequence} in a batch with a producer id.")
    if header.compression > _LAST_CODEC:
        raise ProtocolError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Compression codec {header.compression} is unknown."
        )
    is_stamped = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    if is_stamped and not internal and config.message_timestamp_type is TimestampType.CREATE_TIME:
        raise ProtocolError(ErrorCode.INVALID_TIMESTAMP, "A producer must not set the timestamp type LogAppendTime.")


def _invalid(message: str) -> CorruptBatchError:
    return CorruptBatchError(ErrorCode.INVALID_RECORD, message)


def _corrupt(message: str) -> CorruptBatchError:
    return CorruptBatchError(ErrorCode.CORRUPT_MESSAGE, message)
