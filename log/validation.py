"""Validation of batches before they are appended, by their headers and CRC alone.

The errors are those of Apache Kafka (ProduceRequest.validateRecords, LogValidator,
UnifiedLog.analyzeAndValidateRecords); records themselves are not parsed here.
"""

from __future__ import annotations

import struct

from crc32c import crc32c

from ..wire.errors import ErrorCode, ProtocolError
from ..wire.records import (
    BATCH_HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC_V2,
    BatchHeader,
    CorruptBatchError,
    TimestampType,
    read_header,
    set_log_append_time,
    verify_crc,
)
from .config import LogConfig

_HEADER = struct.Struct(">qiibIhiqqqhii")
_PLACE = struct.Struct(">qii")
_CODEC_MASK, _LAST_CODEC = 0x07, 4
_LOG_APPEND_TIME_FLAG, _CONTROL_FLAG = 0x08, 0x20
_ATTRIBUTES_AT = 21
_RECORD_SIZE_MIN = 7


def prepare_for_leader(
    batches: memoryview, first_offset: int, leader_epoch: int, config: LogConfig, now_ms: int, internal: bool
) -> list[BatchHeader]:
    """Check a client's batches, and write the epoch and offsets from `first_offset` on into them, in place.

    Returns their headers after that. `internal` permits control batches. Raises `ProtocolError`.
    """
    headers: list[BatchHeader] = []
    position, end = 0, len(batches)
    while position < end:
        if end - position < BATCH_HEADER_SIZE:
            raise _invalid(f"{end - position} bytes are no record batch")
        fields = _HEADER.unpack_from(batches, position)
        length, attributes, delta = fields[1], fields[5], fields[6]
        stop = position + length + LOG_OVERHEAD
        if fields[3] != MAGIC_V2 or length < BATCH_HEADER_SIZE - LOG_OVERHEAD or stop > end:
            raise _framing_error(fields[3], length, end - position)
        if crc32c(batches[position + _ATTRIBUTES_AT : stop]) != fields[4]:
            raise CorruptBatchError(ErrorCode.CORRUPT_MESSAGE, "Record batch is corrupt: its CRC does not match.")
        if stop - position > config.max_message_bytes:
            raise ProtocolError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"The record batch has {stop - position} bytes, max.message.bytes is {config.max_message_bytes}.",
            )
        header: BatchHeader = tuple.__new__(BatchHeader, (first_offset, length, leader_epoch, *fields[3:]))
        if delta < 0 or fields[12] != delta + 1 or attributes & ~0x1F or (fields[9] >= 0 and fields[11] < 0):
            _check_counts_and_flags(header, internal)
        _check_codec_and_size(header, attributes & _CODEC_MASK)
        if config.message_timestamp_type is TimestampType.LOG_APPEND_TIME:
            set_log_append_time(batches, position, now_ms)
            header = read_header(batches, position)._replace(
                base_offset=first_offset, partition_leader_epoch=leader_epoch
            )
        elif not internal:
            _check_timestamps(header, now_ms, config)
        _PLACE.pack_into(batches, position, first_offset, length, leader_epoch)
        headers.append(header)
        first_offset += delta + 1
        position = stop
    if not headers:
        raise _invalid("There is no record batch.")
    return headers


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
    batches: memoryview, next_offset: int, latest_epoch: int, may_skip: bool = False
) -> list[BatchHeader]:
    """Check batches from a leader, which must continue the log at `next_offset`; returns their headers.

    With `may_skip` offsets may be missing. An incomplete batch at the end is ignored.
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
        if header.base_offset < next_offset or (header.base_offset > next_offset and not may_skip):
            raise ProtocolError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"The log ends at {next_offset}, the batch starts at {header.base_offset}.",
            )
        if header.partition_leader_epoch < latest_epoch:
            raise _corrupt(f"Epoch {header.partition_leader_epoch} after epoch {latest_epoch}.")
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


def _check_counts_and_flags(header: BatchHeader, internal: bool) -> None:
    if header.last_offset_delta < 0:
        raise _invalid(f"Batch has an invalid last offset delta, {header.last_offset_delta}.")
    if header.record_count != header.last_offset_delta + 1:
        raise _invalid(
            f"Inconsistent batch: {header.record_count} records, last offset delta {header.last_offset_delta}."
        )
    if header.is_control and not internal:
        raise _invalid("Clients are not allowed to write control records.")
    if header.has_producer_id and header.base_sequence < 0 and not header.is_control:
        raise _invalid(f"Invalid sequence number {header.base_sequence} in a batch with a producer id.")


def _check_codec_and_size(header: BatchHeader, codec: int) -> None:
    if codec > _LAST_CODEC:
        raise ProtocolError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Compression codec {codec} is unknown.")
    if not codec and header.record_count * _RECORD_SIZE_MIN > header.batch_length - BATCH_HEADER_SIZE + LOG_OVERHEAD:
        raise _invalid(f"{header.record_count} records do not fit in {header.batch_length} bytes.")


def _check_timestamps(header: BatchHeader, now_ms: int, config: LogConfig) -> None:
    oldest_ms, newest_ms = config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms
    if header.attributes & _LOG_APPEND_TIME_FLAG:
        raise ProtocolError(ErrorCode.INVALID_TIMESTAMP, "A producer must not set the timestamp type LogAppendTime.")
    if header.max_timestamp > now_ms + newest_ms or now_ms - header.base_timestamp > oldest_ms:
        raise ProtocolError(
            ErrorCode.INVALID_TIMESTAMP,
            f"Timestamps from {header.base_timestamp} to {header.max_timestamp} are out of range: at {now_ms} they may "
            f"be {oldest_ms} ms older and {newest_ms} ms newer.",
        )


def _invalid(message: str) -> CorruptBatchError:
    return CorruptBatchError(ErrorCode.INVALID_RECORD, message)


def _corrupt(message: str) -> CorruptBatchError:
    return CorruptBatchError(ErrorCode.CORRUPT_MESSAGE, message)
