"""Cuts a byte stream into Kafka frames (a big-endian int32 length, then that many bytes), without I/O.

Small frames are slices of a scratch buffer that all connections of a server share: a read fills it, and its frames are
handled before the next read. The bytes of an incomplete small frame are copied and put in front of the next read. A big
frame gets a buffer of its own that the socket fills directly. What may be filled of it grows with the bytes that have
arrived, as far as the memory of all connections allows (`request_memory.py`). The buffer of a very big frame is mapped:
it takes memory as it is filled, so it never has to be cleared or copied as a whole.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from ...runtime.mapped_memory import MappedMemory, map_memory
from ...wire.frames import other_protocol
from .request_memory import Claim, ClaimOwner, RequestMemory

SCRATCH_BYTES = 128 * 1024
SMALL_FRAME_BYTES = 32 * 1024
GROWTH = 4
"""A frame may take at most so many times as much memory as bytes have arrived."""
MAPPED_FRAME_BYTES = 2 * 1024 * 1024
"""From this size on, the buffer of a frame is mapped."""
READ_BYTES = 512 * 1024
"""Bytes of a big frame that are read at once."""
SHORT_READ_BYTES = 16 * 1024
"""Bytes of a big frame that are read at once while memory or processor time is short."""
SIZE_BYTES = 4

_SIZE = struct.Struct(">i")


class BadFrameError(Exception):
    """The peer does not send Kafka frames. The text is the reason for the log."""


class _Nobody:
    """Stands in for a connection that is closed, so that the reader no longer refers to it."""

    def on_frame(self, frame: memoryview) -> bool:
        return False

    def on_memory_granted(self) -> None:
        pass

    def on_frame_too_slow(self) -> None:
        pass


_NOBODY = _Nobody()


class FrameReader:
    """Cuts frames out of what is received into `buffer()`, and passes them to `on_frame`.

    `on_frame(frame)` returns whether it accepted the frame. After a False, the frame and all bytes behind it are kept
    until `resume()`. A frame is writable, and valid only until `on_frame` returns: its memory is used again.

    `owner` must not read while `is_starved`; it is told when there is memory again, and then calls `go_on`.
    """

    __slots__ = (
        "_allowed_bytes",
        "_carry",
        "_filled",
        "_frame",
        "_frame_bytes",
        "_limit_name",
        "_max_frame_bytes",
        "_memory",
        "_offset",
        "_on_frame",
        "_owner",
        "_refused",
        "_scratch",
        "_seen_first",
        "claim",
        "is_starved",
    )  # fmt: skip

    def __init__(
        self,
        scratch: memoryview,
        max_frame_bytes: int,
        on_frame: Callable[[memoryview], bool],
        memory: RequestMemory,
        owner: ClaimOwner,
    ) -> None:
        self._scratch = scratch
        self._max_frame_bytes = max_frame_bytes
        self._limit_name = "socket.request.max.bytes"
        self._on_frame = on_frame
        self._memory = memory
        self._owner = owner
        self._carry = b""  # the start of a small frame, or all bytes kept after a refusal
        self._offset = 0  # bytes of the carry that were put into the scratch buffer in front of the read
        self._frame: bytearray | MappedMemory | None = None  # a big frame being read
        self._frame_bytes = 0
        self._filled = 0
        self._allowed_bytes = 0  # bytes of the big frame that may be filled
        self.claim: Claim | None = None
        """The memory of the big frame."""
        self._refused: bytearray | MappedMemory | None = None  # a big frame that was refused
        self._seen_first = False
        self.is_starved = False
        """Whether a big frame waits for memory."""

    @property
    def is_in_big_frame(self) -> bool:
        """Whether a part of a big frame has been read, and more of it is to come."""
        return self._frame is not None

    def limit_frames(self, max_frame_bytes: int, setting: str) -> None:
        """Refuse larger frames from now on. `setting` is the configuration that says so."""
        self._max_frame_bytes, self._limit_name = max_frame_bytes, setting

    def buffer(self, read_bytes: int = READ_BYTES) -> memoryview:
        """Where the next read goes; never empty. Of a big frame, at most `read_bytes` bytes are read."""
        frame = self._frame
        if frame is not None:
            if self._filled == self._allowed_bytes:  # starved, and read nevertheless
                frame = self._enlarge(frame, min(self._frame_bytes, self._filled + SHORT_READ_BYTES))
                self._keep(self._allowed_bytes)
            return memoryview(frame)[self._filled : min(self._allowed_bytes, self._filled + read_bytes)]
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
            self._pass_big(refused)
            if self._refused is not None:
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
            protocol = other_protocol(bytes(prefix))
            if protocol is not None:
                raise BadFrameError(f"the client speaks {protocol}; this listener speaks Kafka's protocol without TLS")
        if size <= 0:
            raise BadFrameError(f"a frame of {size} bytes; a request has at least a header")
        if size > self._max_frame_bytes:
            raise BadFrameError(f"a frame of {size} bytes, more than {self._limit_name}={self._max_frame_bytes}")

    def take_claim(self) -> Claim | None:
        """The claim of the frame that is being passed to `on_frame`, if it is a big one. Its new owner releases it."""
        claim, self.claim = self.claim, None
        return claim

    def go_on(self) -> None:
        """There is memory for the frame that waited."""
        if self.is_starved:
            self.is_starved = False
            self._grow()

    def close(self) -> memoryview | None:
        """Drop what was received, and release its claim. Returns the part of a big frame, which is still in memory."""
        self._owner, self._on_frame = _NOBODY, _NOBODY.on_frame  # else they would keep each other in memory
        frame = self._frame or self._refused
        self._frame = self._refused = None
        self._carry = b""
        claim = self.take_claim()
        if claim is not None:
            claim.release()
        return None if frame is None else memoryview(frame)[: self._filled]

    def _begin_big(self, size: int, start: memoryview) -> None:
        self.claim = self._memory.claim(self._owner, size)
        self._frame_bytes = size
        self._filled = self._allowed_bytes = len(start)
        if size < MAPPED_FRAME_BYTES:
            self._frame = bytearray(start)
        else:
            self._frame = frame = self._map(size)
            frame[: len(start)] = start
        self._grow()

    def _map(self, size_bytes: int) -> MappedMemory:
        try:
            return map_memory(size_bytes)
        except OSError as error:
            raise BadFrameError(f"no memory for a request of {size_bytes} bytes: {error.strerror}") from error

    def _grow(self) -> None:
        """Allow more bytes than have arrived, or wait for memory."""
        frame, claim = self._frame, self.claim
        if frame is None or claim is None:
            return
        size = min(self._frame_bytes, GROWTH * self._filled)
        if claim.grow(size):
            self._enlarge(frame, size)
            return
        self.is_starved = True
        if not self._keep(self._filled):
            raise BadFrameError("the memory for requests is used up (queued.max.request.bytes)")

    def _keep(self, size_bytes: int) -> bool:
        return self.claim is None or self.claim.keep(size_bytes)

    def _enlarge(self, frame: bytearray | MappedMemory, size_bytes: int) -> bytearray | MappedMemory:
        self._allowed_bytes = size_bytes
        if not isinstance(frame, bytearray):
            return frame
        grown = bytearray(size_bytes)
        grown[: self._filled] = frame
        self._frame = grown
        return grown

    def _fill(self, size_bytes: int) -> None:
        frame, claim = self._frame, self.claim
        if frame is None or claim is None:
            return
        self._filled += size_bytes
        claim.on_progress()
        if self._filled < self._allowed_bytes:
            return
        if self._allowed_bytes < self._frame_bytes:
            if not self.is_starved:
                self._grow()
            return
        self._frame = None
        self._offset = 0
        claim.complete()
        self._pass_big(frame)

    def _pass_big(self, frame: bytearray | MappedMemory) -> None:
        if self._on_frame(memoryview(frame)):
            claim = self.take_claim()
            if claim is not None:
                claim.release()
        else:
            self._refused = frame
