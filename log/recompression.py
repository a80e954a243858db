"""Recompression of a client's batches by the leader, for the topics that need it.

With a `compression.type` other than `producer`, batches of another codec are compressed again. With a `cleanup.policy`
that compacts, records without a key are refused. Batches of other topics are not parsed. Source: LogValidator of Apache
Kafka.
"""

from __future__ import annotations

from ..wire.compression import Compression, compress
from ..wire.errors import ErrorCode, ProtocolError
from ..wire.records import BATCH_HEADER_SIZE, MAGIC_V2, BatchHeader, read_header, verify_crc
from .cleaner.batch_filter import CODEC_MASK, batch_body, pack, raw_records
from .config import LogConfig


def recompress(batches: memoryview, config: LogConfig) -> memoryview:
    """The batches as the log will store them. Invalid batches stay as they are; they are refused later.

    Raises `ProtocolError(INVALID_RECORD)`.
    """
    parts: list[memoryview | bytes] = []
    position = 0
    while len(batches) - position >= BATCH_HEADER_SIZE:
        header = read_header(batches, position)
        end = position + header.size_bytes
        is_sound = header.magic == MAGIC_V2 and header.size_bytes >= BATCH_HEADER_SIZE and end <= len(batches)
        if not is_sound or header.compression > max(Compression) or not verify_crc(batches, position, header):
            break
        parts.append(_recompress_batch(header, batches[position:end], config))
        position = end
    if all(isinstance(part, memoryview) for part in parts):
        return batches
    return memoryview(bytearray(b"".join([*parts, batches[position:]])))


def _recompress_batch(header: BatchHeader, batch: memoryview, config: LogConfig) -> memoryview | bytes:
    codec = config.compression_type
    is_other = codec is not None and header.compression != codec and not header.is_control
    if not is_other and not config.is_compacted:
        return batch
    body = batch_body(batch, header)
    if config.is_compacted and not header.is_control:
        for record in raw_records(body, header.record_count):
            if record.key is None:
                raise ProtocolError(
                    ErrorCode.INVALID_RECORD, "Compacted topic cannot accept message without key in topic partition."
                )
    if codec is None or not is_other:
        return batch
    recompressed = header._replace(attributes=header.attributes & ~CODEC_MASK | codec)
    return pack(recompressed, compress(codec, body, _level(config, codec)))[1]


def _level(config: LogConfig, codec: Compression) -> int | None:
    if codec is Compression.GZIP and config.compression_gzip_level >= 0:
        return config.compression_gzip_level
    return config.compression_zstd_level if codec is Compression.ZSTD else None
