from __future__ import annotations

import gzip
import mmap
import random
import struct
import tracemalloc

import cramjam
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from raftwerk.wire.compression import Compression, CompressionError, TooLargeError, compress, decompress

CODECS = [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD]


@given(st.binary(max_size=2000), st.sampled_from(Compression))
def test_data_comes_back(data: bytes, codec: Compression) -> None:
    assert bytes(decompress(codec, compress(codec, data), len(data))) == data


@pytest.mark.parametrize("codec", CODECS)
def test_large_data_comes_back_and_one_byte_less_is_refused(codec: Compression) -> None:
    data = random.Random(1).randbytes(300_000) + bytes(3_000_000)
    packed = compress(codec, data)
    assert bytes(decompress(codec, packed, 4 << 20)) == data
    with pytest.raises(CompressionError):
        decompress(codec, packed, len(data) - 1)


def test_the_limit_holds_without_compression() -> None:
    with pytest.raises(CompressionError):
        decompress(Compression.NONE, b"abc", 2)


def test_unknown_codecs() -> None:
    for codec in (5, 6, 7):
        with pytest.raises(CompressionError, match="unknown"):
            decompress(codec, b"", 10)


def test_raw_snappy_is_read() -> None:
    assert decompress(Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(b"abc" * 100)), 300) == b"abc" * 100


def test_snappy_is_framed_as_the_java_client_does() -> None:
    packed = compress(Compression.SNAPPY, bytes(40_000))
    assert packed[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    (first,) = struct.unpack_from(">i", packed, 16)
    assert cramjam.snappy.decompress_raw_len(packed[20 : 20 + first]) == 32_768


def test_concatenated_members() -> None:
    assert decompress(Compression.GZIP, gzip.compress(b"abc") + gzip.compress(b"def"), 6) == b"abcdef"
    frame = zstandard.ZstdCompressor().compress
    assert decompress(Compression.ZSTD, frame(b"abc") + frame(b"def"), 6) == b"abcdef"


@pytest.mark.parametrize("codec", CODECS)
def test_damage_raises_only_compression_error(codec: Compression) -> None:
    rng = random.Random(codec)
    packed = compress(codec, b"some text, some more text, and so on " * 50)
    for size in range(len(packed)):
        try:
            decompress(codec, packed[:size], 1 << 20)
        except CompressionError:
            pass
    for _ in range(2000):
        damaged = bytearray(packed)
        damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        try:
            decompress(codec, damaged, 1 << 20)
        except CompressionError:
            pass


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_takes_no_more_memory_than_its_limit_allows(codec: Compression) -> None:
    packed = compress(codec, bytes(50_000_000))
    tracemalloc.start()
    with pytest.raises(CompressionError):
        decompress(codec, packed, 1_000_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 6_000_000


@pytest.mark.parametrize("codec", CODECS)
def test_a_size_that_is_stated_is_refused_before_anything_is_decompressed(
    codec: Compression, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = compress(codec, bytes(2_000_000))
    monkeypatch.delattr("cramjam.lz4.decompress_into")
    monkeypatch.delattr("cramjam.snappy.decompress_raw_into")
    monkeypatch.delattr("cramjam.gzip.decompress_into")
    monkeypatch.delattr("zstandard.ZstdDecompressor")
    with pytest.raises(TooLargeError):
        decompress(codec, packed, 1_000_000)


@pytest.mark.parametrize("codec", CODECS)
def test_much_is_decompressed_into_mapped_memory(codec: Compression) -> None:
    """It is given back without the interpreter's lock, which the event loop needs."""
    data = decompress(codec, compress(codec, bytes(20_000_000)), 30_000_000)
    assert isinstance(data, memoryview)
    assert isinstance(data.obj, mmap.mmap)
    assert bytes(data) == bytes(20_000_000)


@pytest.mark.parametrize("codec", CODECS)
def test_little_takes_little_memory_whatever_the_limit(codec: Compression) -> None:
    """Readers allow a gigabyte, and most batches have some kilobytes."""
    text = b"".join(b"record %d, " % number for number in range(2_000))
    packed = zstandard.ZstdCompressor(write_content_size=False).compress(text) if codec == 4 else compress(codec, text)
    data = decompress(codec, packed, 1 << 30)
    assert bytes(data) == text
    assert isinstance(data, memoryview)
    assert len(memoryview(data.obj)) < 2_000_000


def test_zstd_that_holds_more_than_was_guessed() -> None:
    text = bytes(3_000_000)
    packed = zstandard.ZstdCompressor(write_content_size=False).compress(text)
    assert bytes(decompress(Compression.ZSTD, packed, 3_000_000)) == text
    with pytest.raises(TooLargeError):
        decompress(Compression.ZSTD, packed, 2_999_999)
    framed = compress(Compression.ZSTD, b"first, ") + packed  # the first frame states its own size only
    assert bytes(decompress(Compression.ZSTD, framed, 4_000_000)) == b"first, " + text


def test_gzip_that_states_less_than_it_holds() -> None:
    packed = compress(Compression.GZIP, bytes(2_000_000))
    small = struct.pack("<I", 10)
    with pytest.raises(TooLargeError):
        decompress(Compression.GZIP, packed[:-4] + small, 1_000)
    with pytest.raises(CompressionError, match="malformed gzip data"):
        decompress(Compression.GZIP, packed[:-4] + small, 2_000_000)


def test_a_snappy_block_that_lies_about_its_length() -> None:
    # 4 GiB stated in five bytes.
    with pytest.raises(CompressionError):
        decompress(Compression.SNAPPY, b"\xff\xff\xff\xff\x0f\x00", 1 << 40)


def test_lz4_blocks_stand_on_their_own_as_the_java_client_demands() -> None:
    for data in (b"", b"abc", bytes(200_000)):
        flags = compress(Compression.LZ4, data)[4]
        assert flags >> 6 == 1
        assert flags & 0x20
