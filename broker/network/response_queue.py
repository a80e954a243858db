"""The responses that one connection has to send, in order: buffers by its transport, file slices by sendfile.

A slice goes from the page cache to the socket (`FileSlice.send`), which is allowed only while the transport's buffer is
empty. When the socket is full, a few bytes of the slice are given to the transport instead. When the transport has sent
them, the socket is writable, and the rest of the slice follows. Bytes that have left the page cache meanwhile are read
by a thread first, so that a slow client with old data does not block the event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from ...runtime.files.file_slice import FileSlice, Sendable
from ...runtime.ports import Buffer
from .request import JOIN_BYTES

WRITE_BUFFER_BYTES = 1024 * 1024
PIECE_BYTES = 1024 * 1024
BYTES_PER_ITERATION = 4 * PIECE_BYTES
"""After this much from files, the other connections are served first."""
_PUSHED_BYTES = 4096


def _ignore(_error: OSError | None = None) -> None:
    """The callback of a closed queue."""


def memory_bytes(response: Sequence[Sendable]) -> int:
    """How much memory a response takes that waits to be sent."""
    return sum(len(part) for part in response if not isinstance(part, FileSlice))


class ResponseQueue:
    """`on_sent` is called when file slices are sent after a wait, `on_broken` with the error of a failed send."""

    def __init__(
        self, transport: asyncio.Transport, on_sent: Callable[[], None], on_broken: Callable[[OSError], None]
    ) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._on_sent = on_sent
        self._on_broken = on_broken
        self._parts: list[Sendable] = []
        self.memory_bytes = 0
        """Of the responses that `flush` sends, those that are in memory and not in files."""
        self._has_files = False  # among the parts
        self._queue: deque[Sendable] = deque()  # from the first file on
        self._sent = 0  # of the file at its head
        self._is_waiting = False  # for a thread or the next iteration of the loop
        self._may_be_cold = False
        self._wants_drained = False
        self.is_sending_files = False
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)

    def put(self, parts: Sequence[Sendable]) -> None:
        """Add a response; `flush` sends it."""
        for part in parts:
            self._parts.append(part)
            if isinstance(part, FileSlice):
                self._has_files = True
            else:
                self.memory_bytes += len(part)

    def flush(self) -> None:
        """Send everything, or begin to."""
        if self._parts and not self.is_sending_files:
            self._may_be_cold = False
            self._begin()

    def _begin(self) -> None:
        parts, self._parts = self._parts, []
        if self._has_files:
            self._queue.extend(parts)
            self.memory_bytes = 0
            self._has_files = False
            self.is_sending_files = True
            self._go_on()
            return
        size_bytes, self.memory_bytes = self.memory_bytes, 0
        self._write([part for part in parts if not isinstance(part, FileSlice)], size_bytes)

    def drained(self) -> None:
        """The transport's buffer is empty."""
        if self.is_sending_files:
            self._may_be_cold = True
            self._go_on()

    def clear(self) -> None:
        """Drop everything."""
        self._parts.clear()
        self._queue.clear()
        self.is_sending_files = False

    def close(self) -> None:
        """Drop everything, also the callbacks of the connection, which is closed: they would keep it in memory."""
        self.clear()
        self._on_sent, self._on_broken = _ignore, _ignore

    def _want_drained(self) -> None:
        """Have the transport call back when its buffer is empty."""
        if not self._wants_drained:
            self._wants_drained = True
            self._transport.set_write_buffer_limits(high=0)

    def _write(self, buffers: list[Buffer], size_bytes: int) -> None:
        if len(buffers) == 1:
            self._transport.write(buffers[0])
        elif size_bytes <= JOIN_BYTES:
            self._transport.write(b"".join(buffers))
        else:
            self._transport.writelines(buffers)

    def _go_on(self) -> None:
        transport, left = self._transport, BYTES_PER_ITERATION
        while self.is_sending_files and not self._is_waiting:
            if transport.is_closing():
                self.clear()
            elif not self._queue:
                self._finish()
            elif transport.get_write_buffer_size():
                self._want_drained()
                return
            elif not isinstance(self._queue[0], FileSlice):
                self._write_memory()
            elif left <= 0:
                self._is_waiting = True
                self._loop.call_soon(self._resume)
            else:
                left -= self._send_some(self._queue[0])

    def _write_memory(self) -> None:
        buffers: list[Buffer] = []
        size_bytes = 0
        while self._queue and not isinstance(part := self._queue[0], FileSlice):
            buffers.append(part)
            size_bytes += len(part)
            self._queue.popleft()
        self._write(buffers, size_bytes)

    def _send_some(self, part: FileSlice) -> int:
        length = min(len(part) - self._sent, PIECE_BYTES)
        try:
            if self._may_be_cold and not part.is_cached(self._sent, length):
                self._is_waiting = True
                self._may_be_cold = False  # once is enough: the thread has just read these bytes
                part.warm_soon(self._sent, length).add_done_callback(lambda _: self._resume())
                return 0
            sent = part.send(self._sent, length, self._transport)
            if sent < length:
                pushed = part.read(self._sent + sent, min(_PUSHED_BYTES, length - sent))
                self._want_drained()
                self._transport.write(pushed)
                sent += len(pushed)
        except OSError as error:
            self.clear()
            self._on_broken(error)
            return 0
        self._sent += sent
        if self._sent == len(part):
            self._queue.popleft()
            self._sent = 0
        return sent

    def _resume(self) -> None:
        self._is_waiting = False
        if self.is_sending_files:
            self._go_on()
            if not self.is_sending_files:
                self._on_sent()

    def _finish(self) -> None:
        self.is_sending_files = False
        if self._wants_drained:
            self._wants_drained = False
            self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        if self._parts:
            self._begin()
