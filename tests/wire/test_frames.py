from __future__ import annotations

import random
import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftwerk.wire import frames
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.codec import decode_request
from raftwerk.wire.errors import WireFormatError
from raftwerk.wire.frames import TAGGED_FIELDS_MAX, RequestHeader, parse_request_header
from raftwerk.wire.primitives import read_tags

api_keys = st.sampled_from(ApiKey)


@given(api_keys, st.integers(0, 20), st.integers(-(2**31), 2**31 - 1), st.none() | st.text(max_size=40), st.binary())
def test_a_request_comes_back(key: int, version: int, correlation_id: int, client_id: str | None, body: bytes) -> None:
    header = RequestHeader(key, version, correlation_id, client_id)
    frame = b"".join(frames.encode_request(header, body))
    assert struct.unpack(">i", frame[:4])[0] == len(frame) - 4
    read, position = frames.parse_request_header(memoryview(frame)[4:])
    assert read == header
    assert frame[4 + position :] == body


@given(api_keys, st.integers(0, 20), st.integers(-(2**31), 2**31 - 1), st.lists(st.binary(), max_size=3))
def test_a_response_comes_back(key: int, version: int, correlation_id: int, body: list[bytes]) -> None:
    frame = b"".join(frames.encode_response(key, version, correlation_id, body))
    assert struct.unpack(">i", frame[:4])[0] == len(frame) - 4
    read, position = frames.parse_response_header(key, version, memoryview(frame)[4:])
    assert read == correlation_id
    assert frame[4 + position :] == b"".join(body)


def test_buffers_are_passed_on_uncopied() -> None:
    body = bytearray(100)
    assert frames.encode_request(RequestHeader(0, 9, 1, "c"), body)[1] is body
    assert frames.encode_response(0, 9, 1, [body])[1] is body


def test_the_response_to_api_versions_has_no_tags() -> None:
    for version in range(6):
        assert frames.response_header(ApiKey.API_VERSIONS, version, 7) == b"\0\0\0\7"
    assert frames.response_header(ApiKey.METADATA, 9, 7) == b"\0\0\0\7\0"


def test_api_versions_of_the_future_has_a_flexible_header() -> None:
    frame = struct.pack(">hhih", ApiKey.API_VERSIONS, 99, 5, 2) + b"me\0rest"
    header, position = frames.parse_request_header(frame)
    assert header == RequestHeader(ApiKey.API_VERSIONS, 99, 5, "me")
    assert frame[position:] == b"rest"


def test_unknown_tags_are_skipped() -> None:
    tags = b"\x02\x05\x03abc\x80\x01\x00"
    frame = struct.pack(">hhih", ApiKey.METADATA, 12, 5, -1) + tags + b"rest"
    _, position = frames.parse_request_header(frame)
    assert frame[position:] == b"rest"
    frame = struct.pack(">i", 5) + tags + b"rest"
    assert frames.parse_response_header(ApiKey.METADATA, 12, frame) == (5, 4 + len(tags))


@pytest.mark.parametrize("key", [-1, -32768, 4, 5, 6, 7, 93, 1000, 32767])
def test_unknown_apis(key: int) -> None:
    with pytest.raises(WireFormatError, match=f"unknown API key {key}"):
        frames.parse_request_header(struct.pack(">hhih", key, 0, 1, -1))


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\0\3\0",
        struct.pack(">hhih", 3, 9, 1, -2),
        struct.pack(">hhih", 3, 9, 1, 32767) + b"short",
        struct.pack(">hhih", 3, 9, 1, 2) + b"\xff\xfe\0",
        struct.pack(">hhih", 3, 9, 1, -1),
        struct.pack(">hhih", 3, 9, 1, -1) + b"\xff\xff\xff\xff\x0f",
        struct.pack(">hhih", 3, 9, 1, -1) + b"\xff\xff\xff\xff\xff\xff",
        struct.pack(">hhih", 3, 9, 1, -1) + b"\x01\x00\xff\xff\x03",
    ],
)
def test_malformed_request_headers(frame: bytes) -> None:
    with pytest.raises(WireFormatError):
        frames.parse_request_header(frame)
    with pytest.raises(WireFormatError):
        frames.parse_request_header(memoryview(bytearray(frame)))


def test_random_bytes_raise_only_wire_format_error() -> None:
    rng = random.Random(1)
    for _ in range(5000):
        data = rng.randbytes(rng.randrange(40))
        if len(data) > 2 and rng.random() < 0.8:
            data = struct.pack(">h", rng.randrange(93)) + data[2:]
        for parse in (frames.parse_request_header, lambda frame: frames.parse_response_header(3, 12, frame)):
            try:
                parse(data)
            except WireFormatError:
                pass


@given(st.integers(0, 2**32 - 1))
def test_varints(value: int) -> None:
    out = bytearray()
    frames.write_uvarint(out, value)
    assert frames.read_uvarint(out, 0) == (value, len(out))


@pytest.mark.parametrize("count", [TAGGED_FIELDS_MAX, TAGGED_FIELDS_MAX + 1])
def test_a_section_has_no_more_tagged_fields_than_are_read_in_one_step(count: int) -> None:
    section = bytes([count]) + b"".join(bytes([tag, 0]) for tag in range(count))
    header = struct.pack(">hhih", ApiKey.METADATA, 12, 7, -1)
    readers: list[Callable[[], object]] = [
        lambda: parse_request_header(header + section),
        lambda: decode_request(ApiKey.METADATA, 12, b"\1\0\0" + section),
        lambda: read_tags(memoryview(section), 0, lambda tag, start: None),
    ]
    for read in readers:
        if count <= TAGGED_FIELDS_MAX:
            read()
        else:
            with pytest.raises(WireFormatError, match="101 tagged fields in one section, at most 100 are read"):
                read()
