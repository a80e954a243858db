"""The frame reader against a naive oracle, for every split of the stream into reads."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raftwerk.broker.network.frame_reader import GROWTH, SMALL_FRAME_BYTES, BadFrameError, FrameReader
from raftwerk.runtime.ports import Buffer

MAX = 8 * 1024 * 1024


class UnlimitedMemory:
    """Grants everything. It is its own claim."""

    held_bytes = 0

    def claim(self, owner: object, frame_bytes: int) -> UnlimitedMemory:
        return self

    def grow(self, size_bytes: int) -> bool:
        self.held_bytes = size_bytes
        return True

    keep = grow

    def on_progress(self) -> None:
        pass

    complete = release = on_progress


MEMORY: Any = UnlimitedMemory()
OWNER: Any = None


def make_reader(
    taken: list[bytes], takes: Callable[[], bool] | None = None, scratch_bytes: int = SMALL_FRAME_BYTES * 3
) -> FrameReader:
    """Appends frames to `taken`; refuses while `takes` says False."""

    def on_frame(frame: Buffer) -> bool:
        if takes is not None and not takes():
            return False
        taken.append(bytes(frame))
        return True

    return FrameReader(memoryview(bytearray(scratch_bytes)), MAX, on_frame, MEMORY, OWNER)


def feed(reader: FrameReader, data: bytes, sizes: Iterable[int]) -> None:
    position, steps = 0, iter(sizes)
    while position < len(data):
        view = reader.buffer()
        assert len(view) > 0
        count = min(len(view), len(data) - position, next(steps, 1 << 30))
        view[:count] = data[position : position + count]
        position += count
        reader.received(count)


def stream_of(frames: Sequence[bytes]) -> bytes:
    return b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)


lengths = st.one_of(
    st.integers(1, 40), st.integers(SMALL_FRAME_BYTES - 3, SMALL_FRAME_BYTES + 8), st.integers(60_000, 120_000)
)


@given(st.lists(lengths, max_size=8), st.lists(st.integers(1, 50_000), max_size=40))
@settings(max_examples=150)
def test_frames_are_those_sent_for_every_split_into_reads(frame_lengths: list[int], sizes: list[int]) -> None:
    frames = [bytes([index % 251]) * length for index, length in enumerate(frame_lengths)]
    taken: list[bytes] = []
    feed(make_reader(taken), stream_of(frames), sizes)
    assert taken == frames


@given(
    st.lists(lengths, min_size=1, max_size=6), st.lists(st.integers(1, 50_000), max_size=20), st.lists(st.booleans())
)
@settings(max_examples=100)
def test_refused_frames_are_passed_again_in_order(
    frame_lengths: list[int], sizes: list[int], answers: list[bool]
) -> None:
    frames = [bytes([index % 251]) * length for index, length in enumerate(frame_lengths)]
    taken: list[bytes] = []
    script = iter(answers)
    reader = make_reader(taken, takes=lambda: next(script, True))
    feed(reader, stream_of(frames), sizes)
    for _ in range(len(answers) + 1):
        reader.resume()
    assert taken == frames


def test_every_single_byte_boundary() -> None:
    frames = [b"abc", b"d" * 300, b"e"]
    taken: list[bytes] = []
    feed(make_reader(taken), stream_of(frames), [1] * 10_000)
    assert taken == frames


def test_a_large_size_alone_allocates_little_and_the_frame_grows_with_its_bytes() -> None:
    taken: list[bytes] = []
    reader = make_reader(taken)
    frame = b"z" * (3 * 1024 * 1024 + 17)
    data = stream_of([frame, b"next"])
    for position in range(0, len(data), 10_000):
        feed(reader, data[position : position + 10_000], [])
        if not taken:
            assert len(reader.buffer()) <= GROWTH * (position + SMALL_FRAME_BYTES)
    assert taken == [frame, b"next"]


@pytest.mark.parametrize(
    ("start", "reason"),
    [
        (struct.pack(">i", 0), "a frame of 0 bytes"),
        (struct.pack(">i", -1), "a frame of -1 bytes"),
        (struct.pack(">i", -(2**31)), "a frame of -2147483648 bytes"),
        (struct.pack(">i", 2**31 - 1), "more than socket.request.max.bytes=8388608"),
        (struct.pack(">i", MAX + 1), "more than socket.request.max.bytes=8388608"),
        (b"GET / HTTP/1.1\r\n", "the client speaks HTTP"),
        (b"POST /topics HTTP/1.1\r\n", "the client speaks HTTP"),
        (b"HTTP/1.1 200 OK\r\n", "the client speaks HTTP"),
        (bytes.fromhex("160301020001000c"), "the client speaks TLS"),
        (b"SSH-2.0-OpenSSH", "the client speaks SSH"),
    ],
)
def test_other_protocols_are_recognised(start: bytes, reason: str) -> None:
    with pytest.raises(BadFrameError, match=reason):
        feed(make_reader([]), start, [])


def test_http_is_recognised_under_a_limit_that_would_let_it_pass() -> None:
    reader = FrameReader(memoryview(bytearray(200_000)), 2**31 - 1, lambda frame: True, MEMORY, OWNER)
    with pytest.raises(BadFrameError, match="HTTP"):
        feed(reader, b"GET / HTTP/1.1\r\n\r\n", [])


def test_frames_before_a_bad_one_are_handled() -> None:
    taken: list[bytes] = []
    with pytest.raises(BadFrameError):
        feed(make_reader(taken), stream_of([b"good"]) + struct.pack(">i", -5), [])
    assert taken == [b"good"]
