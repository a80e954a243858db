"""A leader's look into the records of clients' batches: are they what the headers say, and may the topic have them.

Every batch is decompressed, and every record walked over, as by Apache Kafka's leader. Records that the topic does not
take are named one by one (KIP-467). The greatest timestamp is taken from the records; where the header says otherwise,
the header is rewritten.

A few bytes can hold much work: compressed records, or records that are compressed anew. A request has a `LoopBudget`
for what is done on the event loop; beyond it `NeedsThreadError` asks for the same in a thread, without a budget.
Source: LogValidator, DefaultRecordBatch and DefaultRecord of Apache Kafka.
"""

from __future__ import annotations

from ..runtime.ports import Buffer
from ..wire.compression import Compression, CompressionError, TooLargeError, compress, decompress
from ..wire.errors import ErrorCode, ProtocolError
from ..wire.produce import RecordError
from ..wire.record_scan import Fault, list_records, scan_compiled, scan_fields
from ..wire.records import (
    BATCH_HEADER_SIZE,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    BatchHeader,
    CorruptBatchError,
    TimestampType,
    read_header,
    set_max_timestamp,
)
from .config import LogConfig
from .errors import RefusedRecordsError

DECOMPRESSED_BYTES_MAX = 100 * 1024 * 1024
"""No batch may hold more, which is what a request may have by default (`socket.request.max.bytes`)."""
RECORD_ERRORS_MAX = 1_000
"""So many records of a batch are named when it is refused."""

_LOOP_BYTES = 2 * 1024 * 1024 if scan_compiled else 8 * 1024
_DECOMPRESSED_WEIGHT = 16 if scan_compiled else 1
_RECOMPRESSED_WEIGHT = 512
_RECORD_ERROR_COST = 1024
_COMPRESSED_ON_LOOP_BYTES_MAX = 32 * 1024
_RECORD_BYTES_MIN = 7
_LZ4_FLAGS_AT, _LZ4_INDEPENDENT_BLOCKS = 4, 0x20
CODEC_MASK = 0x07
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
_CREATE_TIME = TimestampType.CREATE_TIME


class NeedsThreadError(Exception):
    """There is more to look into than the event loop has time for. Nothing has changed."""


class LoopBudget:
    """What one request may have looked into on the event loop, in bytes of records that are not compressed.

    All of it takes less than ten milliseconds.
    """

    __slots__ = ("bytes_left",)

    def __init__(self) -> None:
        self.bytes_left = _LOOP_BYTES

    def renew(self) -> None:
        """Another request begins."""
        self.bytes_left = _LOOP_BYTES

    def spend(self, size_bytes: int) -> None:
        """Take so much of it. `NeedsThreadError` where less is left."""
        left = self.bytes_left - size_bytes
        if left < 0:
            raise NeedsThreadError
        self.bytes_left = left


def check_records(
    batches: memoryview, position: int, header: BatchHeader, config: LogConfig, now_ms: int, budget: LoopBudget | None
) -> tuple[BatchHeader, Buffer]:
    """Walk over the records of the batch at `position`, whose header and CRC are sound; without a budget, all of them.

    Returns the header, rewritten in place where its max timestamp was wrong, and the decompressed records. Raises
    `NeedsThreadError` and `ProtocolError`: INVALID_RECORD, INVALID_TIMESTAMP, MESSAGE_TOO_LARGE.
    """
    _, length, _, _, _, attributes, _, base_ms, max_ms, _, _, _, count = header
    body: Buffer = batches[position + BATCH_HEADER_SIZE : position + length + LOG_OVERHEAD]
    codec = attributes & CODEC_MASK
    if codec:
        body = _decompressed(codec, body, count, config, budget)
    elif budget is not None:
        left = budget.bytes_left - (len(body) * _RECOMPRESSED_WEIGHT if config.compression_type else len(body))
        if left < 0:
            raise NeedsThreadError
        budget.bytes_left = left
    fault, index, oldest, newest, without_key = scan_fields(body, count)
    if fault:
        raise _invalid(f"Record {index} of {count} in the batch is malformed: {_REASONS[Fault(fault)]}.")
    newest += base_ms
    if config.message_timestamp_type is _CREATE_TIME:
        if (
            now_ms - base_ms - oldest > config.message_timestamp_before_max_ms
            or newest - now_ms > config.message_timestamp_after_max_ms
            or newest > _INT64_MAX
            or (without_key and config.is_compacted)
        ):
            _refuse_some(body, header, config, now_ms, budget)
        if newest != max_ms and (newest >= 0 or max_ms != NO_TIMESTAMP):
            set_max_timestamp(batches, position, max(newest, NO_TIMESTAMP))
            rewritten = read_header(batches, position)
            header = header._replace(max_timestamp=rewritten.max_timestamp, crc=rewritten.crc)
    elif without_key and config.is_compacted:
        _refuse_some(body, header, config, now_ms, budget)
    return header, body


_REASONS = {
    Fault.CUT_OFF: "the records end before it does",
    Fault.BAD_VARINT: "a number has too many bytes",
    Fault.WRONG_LENGTH: "its fields do not end where its length says",
    Fault.WRONG_OFFSET_DELTA: "its offset delta is not its place in the batch",
    Fault.BAD_SIZE: "a size is negative or too large",
    Fault.TRAILING_BYTES: "there are bytes after the last record",
}


def _decompressed(codec: int, body: Buffer, count: int, config: LogConfig, budget: LoopBudget | None) -> Buffer:
    if count * _RECORD_BYTES_MIN > DECOMPRESSED_BYTES_MAX:
        raise _invalid(f"{count} records are more than a batch may hold.")
    weight = _DECOMPRESSED_WEIGHT if config.compression_type in (None, codec) else _RECOMPRESSED_WEIGHT
    limit = DECOMPRESSED_BYTES_MAX
    if budget is not None:
        limit = min(budget.bytes_left // weight, limit)
        if len(body) > min(limit, _COMPRESSED_ON_LOOP_BYTES_MAX) or count * _RECORD_BYTES_MIN > limit:
            raise NeedsThreadError
    if codec == Compression.LZ4 and len(body) > _LZ4_FLAGS_AT and not body[_LZ4_FLAGS_AT] & _LZ4_INDEPENDENT_BLOCKS:
        raise _invalid("The blocks of the lz4 frame depend on each other.")
    try:
        records = decompress(codec, body, limit)
    except TooLargeError:
        if budget is not None:
            raise NeedsThreadError from None
        raise ProtocolError(
            ErrorCode.MESSAGE_TOO_LARGE, f"The records of the batch have more than {limit} bytes when decompressed."
        ) from None
    except CompressionError as error:
        raise _invalid(f"The records cannot be decompressed: {error}.") from error
    if budget is not None:
        budget.spend(len(records) * weight)
    return records


def _refuse_some(body: Buffer, header: BatchHeader, config: LogConfig, now_ms: int, budget: LoopBudget | None) -> None:
    """Raise `RefusedRecordsError` with the records that the topic does not take, if there are any."""
    oldest_ms = now_ms - config.message_timestamp_before_max_ms
    newest_ms = min(now_ms + config.message_timestamp_after_max_ms, _INT64_MAX)
    if config.message_timestamp_type is not _CREATE_TIME:
        oldest_ms, newest_ms = 2 * _INT64_MIN, 2 * _INT64_MAX
    base_ms = header.base_timestamp
    is_compacted = config.is_compacted
    listed = list_records(
        body,
        header.record_count,
        without_key=is_compacted,
        oldest=_to_int64(oldest_ms - base_ms),
        newest=_to_int64(newest_ms - base_ms),
        exempt=_to_int64(NO_TIMESTAMP - base_ms),
        most=RECORD_ERRORS_MAX,
    )
    if not listed:
        return
    if budget is not None:
        budget.bytes_left -= len(listed) * _RECORD_ERROR_COST
    errors = []
    code, what = ErrorCode.INVALID_RECORD, "record"
    for index, delta, has_key in listed:
        if is_compacted and not has_key:
            errors.append(RecordError(index, "Compacted topic cannot accept message without key."))
            continue
        code, what = ErrorCode.INVALID_TIMESTAMP, "timestamp"
        text = f"Timestamp {base_ms + delta} is out of range: it may be from {oldest_ms} to {newest_ms}."
        errors.append(RecordError(index, text))
    message = f"One or more records have been rejected due to invalid {what}: {errors[0].message}"
    raise RefusedRecordsError(code, message, errors)


def recompressed(body: Buffer, codec: Compression, config: LogConfig) -> bytes:
    """The records, which are not compressed, with the topic's codec and level."""
    if codec is Compression.GZIP and config.compression_gzip_level >= 0:
        return compress(codec, body, config.compression_gzip_level)
    return compress(codec, body, config.compression_zstd_level if codec is Compression.ZSTD else None)


def _to_int64(number: int) -> int:
    return min(max(number, _INT64_MIN), _INT64_MAX)


def _invalid(message: str) -> CorruptBatchError:
    return CorruptBatchError(ErrorCode.INVALID_RECORD, message)
