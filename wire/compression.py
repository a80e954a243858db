"""The compression codecs of record batches, with a limit on the size of decompressed data.

A leader decompresses the batches that clients send in order to look into them. A few kilobytes may decompress to
gigabytes, so every decoder here checks the size in advance, or stops at the limit. A thread that decompresses much
holds the interpreter's lock for short times only: each decoder writes into `scratch_memory` in few long calls.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum

import cramjam
import zstandard

from ..runtime.mapped_memory import scratch_memory
from ..runtime.ports import Buffer


class Compression(IntEnum):
    """The codecs, as bits 0 to 2 of a batch's attributes number them."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class CompressionError(Exception):
    """The data is malformed, or its decompressed size is over the limit."""


class TooLargeError(CompressionError):
    """The decompressed size is over the limit."""


_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
# The Java client compresses each block of this size on its own.
_XERIAL_BLOCK = 1 << 15
_INT32 = struct.Struct(">i")
_UINT32_LE = struct.Struct("<I")
_LZ4_PIECE = 1 << 18
_LZ4_MAGIC = 0x184D2204
_LZ4_START = struct.Struct("<IBB")
_LZ4_BLOCK_MAX = {4: 1 << 16, 5: 1 << 18, 6: 1 << 20, 7: 1 << 22}
_GZIP_MAGIC = b"\x1f\x8b"
_OUTPUT_IS_FULL = "failed to write whole buffer"  # in the text of cramjam's error
_ZSTD_GUESSED_RATIO = 16
_ZSTD_MAX_WINDOW_BYTES = 1 << 27


def _too_large(limit: int) -> TooLargeError:
    return TooLargeError(f"decompressed data exceeds {limit} bytes")


def _compress_snappy(data: Buffer) -> bytes:
    view = memoryview(data)
    out = bytearray(_XERIAL_HEADER)
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK]))
        out += _INT32.pack(len(block))
        out += block
    return bytes(out)


def _snappy_block_size(block: memoryview) -> int:
    """The decompressed size that the block begins with. Two bytes of input give at most 64 bytes of output."""
    if not block:
        raise CompressionError("empty snappy block")
    stated = int(cramjam.snappy.decompress_raw_len(block))
    if stated > len(block) * 32:
        raise CompressionError(f"snappy block of {len(block)} bytes claims to hold {stated}")
    return stated


def _snappy_blocks(data: memoryview) -> list[memoryview]:
    if bytes(data[:8]) != _XERIAL_MAGIC:
        return [data]
    blocks = []
    position = len(_XERIAL_HEADER)
    while position < len(data):
        (length,) = _INT32.unpack_from(data, position)
        position += 4
        if length < 0 or length > len(data) - position:
            raise CompressionError(f"snappy chunk of {length} bytes, {len(data) - position} left")
        blocks.append(data[position : position + length])
        position += length
    return blocks


def _decompress_snappy(data: memoryview, limit: int) -> Buffer:
    blocks = _snappy_blocks(data)
    sizes = [_snappy_block_size(block) for block in blocks]
    if sum(sizes) > limit:
        raise _too_large(limit)
    room = scratch_memory(sum(sizes))
    position = 0
    for block, size in zip(blocks, sizes, strict=True):
        cramjam.snappy.decompress_raw_into(block, room[position : position + size])
        position += size
    return room


def _decompress_gzip(data: memoryview, limit: int) -> Buffer:
    # The last four bytes are the size of the last member, modulo 2^32.
    stated = _UINT32_LE.unpack_from(data, len(data) - _UINT32_LE.size)[0] if data[:2] == _GZIP_MAGIC else 0
    if stated > limit:
        raise _too_large(limit)
    for size in (stated, limit):  # members before the last one make it more
        room = scratch_memory(size)
        try:
            return room[: cramjam.gzip.decompress_into(data, room)]
        except cramjam.DecompressionError as error:
            if _OUTPUT_IS_FULL not in str(error):
                raise
    raise _too_large(limit)


def _compress_lz4(data: Buffer) -> bytes:
    # The Java client refuses frames whose blocks depend on each other.
    compressor = cramjam.lz4.Compressor(block_linked=False, content_checksum=False)
    view = memoryview(data)
    for start in range(0, len(view), _LZ4_PIECE):  # it takes bytes only, and a copy of all would hold the lock for long
        compressor.compress(bytes(view[start : start + _LZ4_PIECE]))
    return bytes(compressor.finish())


def _lz4_frame(data: memoryview) -> tuple[int, int]:
    """The position after the LZ4 frame at the start of `data`, and the most bytes that it can decompress to.

    This reads the sizes of the blocks only. A block decompresses to at most the frame's block size, and to at most 255
    times its own size.
    """
    magic, flags, descriptor = _LZ4_START.unpack_from(data)
    if magic != _LZ4_MAGIC or flags >> 6 != 1:
        raise CompressionError("not an lz4 frame")
    block_max = _LZ4_BLOCK_MAX.get(descriptor >> 4 & 7)
    if block_max is None:
        raise CompressionError("lz4 frame with an unknown block size")
    position = _LZ4_START.size + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0) + 1
    block_tail = 4 if flags & 0x10 else 0
    bound = 0
    while True:
        (word,) = _UINT32_LE.unpack_from(data, position)
        position += 4
        if word == 0:
            position += 4 if flags & 0x04 else 0
            break
        size = word & 0x7FFFFFFF
        bound += size if word >> 31 else min(block_max, size * 255)
        position += size + block_tail
    if position > len(data):
        raise CompressionError("lz4 frame is cut off")
    return position, bound


def _decompress_lz4(data: memoryview, limit: int) -> Buffer:
    end, bound = _lz4_frame(data)
    if bound > limit:
        raise _too_large(limit)
    room = scratch_memory(bound)
    return room[: cramjam.lz4.decompress_into(data[:end], room)]


def _decompress_zstd(data: memoryview, limit: int) -> Buffer:
    stated = zstandard.frame_content_size(data)
    if stated > limit:
        raise _too_large(limit)
    decoder = zstandard.ZstdDecompressor(max_window_size=_ZSTD_MAX_WINDOW_BYTES)
    # The Java client states no size, and what it compresses is seldom larger than the guess.
    room = scratch_memory(min(max(stated, len(data) * _ZSTD_GUESSED_RATIO), limit) + 1)
    position = 0
    with decoder.stream_reader(data, read_across_frames=True) as reader:
        while count := reader.readinto(room[position:]):
            position += count
            if position > limit:
                raise _too_large(limit)
            if position == len(room):
                larger = scratch_memory(limit + 1)
                larger[:position] = room
                room = larger
    return room[:position]


_COMPRESS: dict[int, Callable[[Buffer], bytes]] = {
    Compression.NONE: bytes,
    Compression.GZIP: lambda data: bytes(cramjam.gzip.compress(data)),
    Compression.SNAPPY: _compress_snappy,
    Compression.LZ4: _compress_lz4,
    Compression.ZSTD: lambda data: zstandard.ZstdCompressor().compress(data),
}

_DECOMPRESS: dict[int, Callable[[memoryview, int], Buffer]] = {
    Compression.GZIP: _decompress_gzip,
    Compression.SNAPPY: _decompress_snappy,
    Compression.LZ4: _decompress_lz4,
    Compression.ZSTD: _decompress_zstd,
}


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """`data` compressed, in the framing of the Java client. `level` applies to gzip and zstd."""
    if level is not None and codec == Compression.GZIP:
        return bytes(cramjam.gzip.compress(data, level=level))
    if level is not None and codec == Compression.ZSTD:
        return zstandard.ZstdCompressor(level=level).compress(data)
    return _COMPRESS[codec](data)


def decompress(codec: int, data: Buffer, limit: int) -> Buffer:
    """`data` decompressed, to at most `limit` bytes.

    Raises `TooLargeError` for output beyond the limit, before anything is decompressed where the data says its size;
    `CompressionError` for an unknown codec and for malformed bytes.
    """
    view = memoryview(data)
    if codec == Compression.NONE:
        if len(view) > limit:
            raise _too_large(limit)
        return view
    decoder = _DECOMPRESS.get(codec)
    if decoder is None:
        raise CompressionError(f"unknown compression codec {codec}")
    try:
        return decoder(view, limit)
    except (cramjam.DecompressionError, zstandard.ZstdError, struct.error, OSError, ValueError) as error:
        raise CompressionError(f"malformed {Compression(codec).name.lower()} data: {error}") from error
