"""The two ends of a simulated connection, and the pipe each way between them."""

from __future__ import annotations

import asyncio
import errno
import zlib
from collections import deque
from collections.abc import Iterable
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from ....runtime.ports import File

if TYPE_CHECKING:
    from .event_loop import ProcessLoop

WINDOW_BYTES = 256 * 1024
_ACK_EVERY_BYTES = WINDOW_BYTES // 4
_READ_BYTES = 128 * 1024
_HIGH_WATER_BYTES = 64 * 1024


class Signal(Enum):
    """What a segment may be beside bytes."""

    END = "end"
    RESET = "reset"


Segment = bytes | Signal
Address = tuple[str, int]


class Wire(Protocol):
    """What a pipe needs of the network."""

    def arrival_time(self, source: str, target: str) -> float:
        """When a segment sent now arrives."""
        ...

    def schedule(self, when_s: float, callback: Any, *args: Any) -> None: ...

    def passes(self, source: str, target: str) -> bool:
        """The link is not cut and the target's host has power."""
        ...

    def rejects(self, source: str, target: str) -> bool:
        """What comes this way is answered with a reset."""
        ...

    def hash(self, pipe: int, length: int, checksum: int) -> None: ...

    def read_size(self, available: int) -> int:
        """How many of the available bytes one read gets: a stream has no boundaries."""
        ...

    def forget(self, transport: SimTransport) -> None: ...

    def hold(self, pipe: Pipe) -> None:
        """Something waits in the pipe for a link to heal."""
        ...


class Pipe:
    """One direction of a connection: in order, with at most a window of bytes on the way."""

    def __init__(self, wire: Wire, source: str, target: str, number: int) -> None:
        self.source = source
        self.target = target
        self.number = number
        self.last_arrival_s = 0.0
        self._wire = wire
        self._window_used = 0
        self._unacked = 0
        self._held: deque[Segment] = deque()
        self._held_acks = 0
        self.unsent: deque[bytes] = deque()
        self.unsent_bytes = 0
        self.sender: SimTransport
        self.receiver: SimTransport

    def room(self) -> int:
        """Bytes that the kernel would take now. What a process holds beside them is not counted."""
        return max(WINDOW_BYTES - self._window_used, 0)

    def send(self, data: bytes) -> None:
        self.unsent.append(data)
        self.unsent_bytes += len(data)
        self.pump()

    def pump(self) -> None:
        """Put on the way what the window allows."""
        while self.unsent and self._window_used < WINDOW_BYTES:
            chunk = self.unsent.popleft()
            room = WINDOW_BYTES - self._window_used
            if len(chunk) > room:
                self.unsent.appendleft(chunk[room:])
                chunk = chunk[:room]
            self.unsent_bytes -= len(chunk)
            self._window_used += len(chunk)
            self.transmit(chunk)

    def transmit(self, segment: Segment) -> None:
        arrival_s = max(self._wire.arrival_time(self.source, self.target), self.last_arrival_s)
        self.last_arrival_s = arrival_s
        self._wire.schedule(arrival_s, self._arrive, segment)

    def consumed(self, length: int) -> None:
        """The receiving process has read so much: tell the sender's kernel, at times."""
        self._unacked += length
        if self._unacked >= _ACK_EVERY_BYTES:
            acked, self._unacked = self._unacked, 0
            self._wire.schedule(self._wire.arrival_time(self.target, self.source), self._acknowledge, acked)

    def discard_unsent(self) -> None:
        self.unsent.clear()
        self.unsent_bytes = 0

    @property
    def holds(self) -> bool:
        """Something waits for a cut link to heal."""
        return bool(self._held) or self._held_acks > 0

    def release(self) -> None:
        """The retransmission after a cut: what was held arrives now, if the link is still up."""
        if self._held_acks and self._wire.passes(self.target, self.source):
            acked, self._held_acks = self._held_acks, 0
            self._acknowledge(acked)
        wire, here, there = self._wire, self.source, self.target
        while self._held and wire.passes(here, there) and not (wire.rejects(here, there) or wire.rejects(there, here)):
            self._deliver(self._held.popleft())

    def _arrive(self, segment: Segment) -> None:
        wire, here, there = self._wire, self.source, self.target
        if wire.rejects(here, there) and wire.passes(here, there):
            if segment is not Signal.RESET:
                wire.schedule(wire.arrival_time(there, here), self.sender.break_off)
        elif wire.rejects(there, here) and wire.passes(here, there) and segment is not Signal.RESET:
            self._deliver(segment)
            self.receiver.break_off()  # its acknowledgement is answered so, and the sender goes on repeating
            self._held.append(segment)
            wire.hold(self)
        elif self._held or not self._wire.passes(self.source, self.target):
            self._held.append(segment)
            self._wire.hold(self)
        else:
            self._deliver(segment)

    def _deliver(self, segment: Segment) -> None:
        if isinstance(segment, Signal):
            self._wire.hash(self.number, -1, segment is Signal.RESET)
        else:
            self._wire.hash(self.number, len(segment), zlib.crc32(segment))
        self.receiver.on_segment(segment)

    def _acknowledge(self, length: int) -> None:
        if not self._wire.passes(self.target, self.source):
            self._held_acks += length
            self._wire.hold(self)
            return
        self._window_used -= length
        self.pump()
        self.sender.on_drained()


def send_some(file: File, offset: int, length: int, transport: asyncio.Transport) -> int:
    """As many bytes of the file as the kernel under a `SimTransport` takes now. `OSError` when the file ends before."""
    length = min(length, transport.get_extra_info("socket").room())
    data = file.pread(offset, length)
    if length and not data:
        raise OSError(errno.EIO, "the file ends before what is to be sent", file.path)
    transport.write(data)
    return len(data)


class SimTransport(asyncio.Transport):
    """One end of a connection, in one process."""

    def __init__(self, wire: Wire, process: ProcessLoop, local: Address, remote: Address, number: int) -> None:
        super().__init__({"sockname": local, "peername": remote})
        self.process = process
        self.local = local
        self.remote = remote
        self.number = number
        self.closed = False
        self.outgoing: Pipe
        self.incoming: Pipe
        self._wire = wire
        self._protocol: asyncio.BaseProtocol | None = None
        self._closing = False
        self._inbox = bytearray()
        self._end_arrived = False
        self._reading = True
        self._read_scheduled = False
        self._writing_paused = False
        self._high_water = _HIGH_WATER_BYTES
        self._low_water = _HIGH_WATER_BYTES // 4

    # -- life

    def open(self, protocol: asyncio.BaseProtocol) -> None:
        """Hand the connection to its protocol; bytes may already wait, and its end may have come."""
        self._protocol = protocol
        protocol.connection_made(self)
        if self.closed:
            self.process.call_soon(self._connection_lost, _reset())
        self._schedule_read()

    def drop(self, last_word: Signal | None) -> None:
        """The process is gone: its kernel says `last_word` to the peer, or nothing when the power is gone too."""
        if not self.closed:
            self.outgoing.discard_unsent()
            self._finish(last_word)

    def break_off(self) -> None:
        """A reset from the middle of the network, seen at this end."""
        self._on_reset()

    # -- segments from the network

    def on_segment(self, segment: Segment) -> None:
        if self.closed:
            if not isinstance(segment, Signal):
                self.outgoing.transmit(Signal.RESET)
        elif segment is Signal.RESET:
            self._on_reset()
        elif segment is Signal.END:
            self._end_arrived = True
            self._read_now()
        elif isinstance(segment, bytes):
            self._inbox += segment
            self._read_now()

    def on_drained(self) -> None:
        """The window opened."""
        if self.closed:
            return
        if self._writing_paused and self.outgoing.unsent_bytes <= self._low_water:
            self._writing_paused = False
            self.process.call_soon(self._resume_writing)
        if self._closing and not self.outgoing.unsent:
            self._finish(Signal.END)
            self.process.call_soon(self._connection_lost, None)

    # -- asyncio.Transport

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(f"data must be bytes-like, not {type(data).__name__}")
        if self._closing or self.closed or not data:
            return
        self.outgoing.send(bytes(data))
        self._pause_if_full()

    def _pause_if_full(self) -> None:
        if not self._writing_paused and self.outgoing.unsent_bytes > self._high_water:
            self._writing_paused = True
            if self._protocol is not None:
                self._protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        if self._closing or self.closed:
            return
        self._closing = True
        if not self.outgoing.unsent:
            self._finish(Signal.END)
            self.process.call_soon(self._connection_lost, None)

    def abort(self) -> None:
        if not self.closed:
            self._closing = True
            self.outgoing.discard_unsent()
            self._finish(Signal.RESET)
            self.process.call_soon(self._connection_lost, None)

    def is_closing(self) -> bool:
        return self._closing or self.closed

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self._schedule_read()

    def is_reading(self) -> bool:
        return self._reading and not self.is_closing()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = _HIGH_WATER_BYTES if low is None else 4 * low
        self._high_water = high
        self._low_water = high // 4 if low is None else low
        self._pause_if_full()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """`socket` is what `SimDisk.send` needs: the kernel's buffer."""
        return self.outgoing if name == "socket" else super().get_extra_info(name, default)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low_water, self._high_water

    def get_write_buffer_size(self) -> int:
        return self.outgoing.unsent_bytes

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        if self._protocol is None:
            raise OSError(errno.ENOTCONN, "not connected")
        return self._protocol

    def can_write_eof(self) -> bool:
        return False

    # -- inside

    def _finish(self, last_word: Signal | None) -> None:
        self.closed = True
        self._wire.forget(self)
        if last_word is not None:
            self.outgoing.transmit(last_word)

    def _on_reset(self) -> None:
        if not self.closed:
            self._inbox.clear()
            self.outgoing.discard_unsent()
            self._finish(None)
            self.process.call_soon(self._connection_lost, _reset())

    def _connection_lost(self, error: Exception | None) -> None:
        protocol, self._protocol = self._protocol, None
        if protocol is not None:
            protocol.connection_lost(error)

    def _resume_writing(self) -> None:
        if self._protocol is not None:
            self._protocol.resume_writing()

    def _read_now(self) -> None:
        """A process that waits for events reads at once what arrives."""
        process = self.process
        if self._read_scheduled or process.paused or process.dead:
            self._schedule_read()
        else:
            process.scheduler.run_now(process, self._read)

    def _schedule_read(self) -> None:
        if not self._read_scheduled and (self._inbox or self._end_arrived):
            self._read_scheduled = True
            self.process.call_soon(self._read)

    def _read(self) -> None:
        self._read_scheduled = False
        protocol = self._protocol
        if self._closing or self.closed or not self._reading or protocol is None:
            return
        if self._inbox:
            self._read_some(protocol)
            self._schedule_read()
        elif self._end_arrived:
            self._end_arrived = False
            if not isinstance(protocol, asyncio.Protocol | asyncio.BufferedProtocol) or not protocol.eof_received():
                self.close()

    def _read_some(self, protocol: asyncio.BaseProtocol) -> None:
        size = self._wire.read_size(min(len(self._inbox), _READ_BYTES))
        if isinstance(protocol, asyncio.BufferedProtocol):
            target = memoryview(protocol.get_buffer(size))
            size = min(size, len(target))
            target[:size] = self._inbox[:size]
            del self._inbox[:size]
            self.incoming.consumed(size)
            protocol.buffer_updated(size)
        elif isinstance(protocol, asyncio.Protocol):
            data = bytes(self._inbox[:size])
            del self._inbox[:size]
            self.incoming.consumed(size)
            protocol.data_received(data)


def _reset() -> ConnectionResetError:
    return ConnectionResetError(errno.ECONNRESET, "connection reset by peer")
