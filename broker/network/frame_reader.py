"""Cuts a byte stream into Kafka frames (a big-endian int32 length, then that many bytes), without I/O.

Small frames are slices of a scratch buffer that all connections of a server share: a read fills it, and its frames are
handled before the next read. The bytes of an incomplete small frame are copied and put in front of the next read. A big
frame gets a buffer of its own that the socket fills directly. That buffer grows with the bytes that have arrived, so
that a client cannot cause a large allocation with four bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

SCRATCH_BYTES = 128 * 1024
SMALL_FRAME_BYTES = 32 * 1024
FIRST_ALLOCATION_BYTES = 2 * 1024 * 1024
SIZE_BYTES = 4

_SIZE = struct.Struct(">i")
_NOT_KAFKA = (
    (b"GET ", "an HTTP request; this port speaks the Kafka protocol"),
    (b"HEAD", "an HTTP request; this port speaks the Kafka protocol"),
    (b"POST", "an HTTP request; this port speaks the Kafka protocol"),
    (b"PUT ", "an HTTP request; this port speaks the Kafka protocol"),
    (b"\x16\x03", "a TLS handshake on a listener without TLS"),
)


class BadFrameError(Exception):
    """The peer does not send Kafka frames. The text is the reason for the log."""


class FrameReader:
    """Cuts frames out of what is received into `buffer()`, and passes them to `on_frame`.

    `on_frame(frame)` returns whether it accepted the frame. After a False, the frame and all bytes behind it are kept
    until `resume()`. A frame is writable, and valid only until `on_frame` returns: its memory is used again.
    """

    __slots__ = (
        "_carry",
        "_filled",
        "_frame",
        "_frame_bytes",
        "_max_frame_bytes",
        "_offset",
        "_on_frame",
        "_refused",
        "_scratch",
        "_seen_first",
    )  # fmt: skip

    def __init__(self, scratch: memoryview, max_frame_bytes: int, on_frame: Callable[[memoryview], bool]) -> None:
        self._scratch = scratch
        self._max_frame_bytes = max_frame_bytes
        self._on_frame = on_frame
        self._carry = b""  # the start of a small frame, or all bytes kept after a refusal
        self._offset = 0  # bytes of the carry that were put into the scratch buffer in front of the read
        self._frame: bytearray | None = None  # a big frame being read
        self._frame_bytes = 0
        self._filled = 0
        self._refused: bytearray | None = None  # a big frame that was refused
        self._seen_first = False

    def buffer(self) -> memoryview:
        """Where the next read goes; never empty."""
        if self._frame is not None:
            return memoryview(self._frame)[self._filled :]
        carried = len(self._carry)
        if 0 < carried <= SMALL_FRAME_BYTES + SIZE_BYTES:
            self._scratch[:carried] = self._carry
            self._offset = carried
        else:
            self._offset = 0
        return self._scratch[self._offset :]

    def received(self, size_bytes: int) -> None:
        """`size_bytes` arrived in the buffer that `buffer()` returned last. Raises `BadFrameError`."""
        if self._frame is not None:
            self._fill(size_bytes)
            return
        end = self._offset + size_bytes
        if self._refused is not None or (self._carry and self._offset == 0):  # a read after a refusal
            self._carry = bytes(self._carry) + bytes(self._scratch[self._offset : end])
            return
        self._carry = b""
        self._scan(self._scratch[:end], end)

    def resume(self) -> None:
        """Pass the kept frames to `on_frame` again. Raises `BadFrameError`."""
        refused = self._refused
        if refused is not None:
            self._refused = None
            if not self._on_frame(memoryview(refused)):
                self._refused = refused
                return
        carry = self._carry
        if carry:
            self._carry = b""
            self._offset = 0
            self._scan(memoryview(bytearray(carry)), len(carry))

    def _scan(self, view: memoryview, end: int) -> None:
        position = 0
        on_frame = self._on_frame
        limit = self._max_frame_bytes
        while end - position >= SIZE_BYTES:
            (size,) = _SIZE.unpack_from(view, position)
            if size <= 0 or size > limit or not self._seen_first:
                self._check_size(size, view[position : position + SIZE_BYTES])
            start = position + SIZE_BYTES
            if start + size > end:
                if size > SMALL_FRAME_BYTES:
                    self._begin_big(size, view[start:end])
                    return
                break
            if not on_frame(view[start : start + size]):
                break
            position = start + size
        if position < end:
            self._carry = bytes(view[position:end])

    def _check_size(self, size: int, prefix: memoryview) -> None:
        if not self._seen_first:
            self._seen_first = True
            start = bytes(prefix)
            for signature, what in _NOT_KAFKA:
                if start.startswith(signature):
                    raise BadFrameError(what)
        if size <= 0:
            raise BadFrameError(f"a frame of {size} bytes; a request has at least a header")
        if size > self._max_frame_bytes:
            raise BadFrameError(f"a frame of {size} bytes, more than socket.request.max.bytes={self._max_frame_bytes}")

    def _begin_big(self, size: int, start: memoryview) -> None:
        self._frame = bytearray(min(size, FIRST_ALLOCATION_BYTES))
        self._frame_bytes = size
        self._filled = len(start)
        self._frame[: self._filled] = start

    def _fill(self, size_bytes: int) -> None:
        frame = self._frame
        if frame is None:
            return
        self._filled += size_bytes
        if self._filled < len(frame):
            return
        if len(frame) < self._frame_bytes:
            grown = bytearray(min(self._frame_bytes, 4 * len(frame)))
            grown[: self._filled] = frame
            self._frame = grown
            return
        self._frame = None
        self._offset = 0
        if not self._on_frame(memoryview(frame)):
            self._refused = frame
