"""A simulated connection: a transport at each end, and a pipe for each direction.

A segment that arrives at a cut link is kept, as TCP would repeat it, and delivered some time after the link heals. On a
link that rejects, an arriving segment is answered with a reset. Where the delivery of metadata is stalled, only the
answers to fetches of the metadata log are kept.
"""

from __future__ import annotations

import asyncio
import errno
import zlib
from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum
from typing import TYPE_CHECKING, Any

from ....runtime.ports import File

if TYPE_CHECKING:
    from .event_loop import ProcessLoop
    from .network import SimNetwork

WINDOW_BYTES = 256 * 1024
_ACK_EVERY_BYTES = WINDOW_BYTES // 4
_READ_BYTES = 128 * 1024
_HIGH_WATER_BYTES = 64 * 1024


class Signal(Enum):
    """A segment that is not bytes: the end of the stream, or a reset."""

    END = "end"
    RESET = "reset"


Segment = bytes | Signal
Address = tuple[str, int]


class Pipe:
    """One direction of a connection: segments arrive in order, and at most a window of bytes is on the way."""

    def __init__(self, network: SimNetwork, source: str, target: str, number: int) -> None:
        self.source = source
        self.target = target
        self.number = number
        self.last_arrival_s = 0.0
        self._network = network
        self._window_used = 0
        self._unacked = 0
        self._undelivered: deque[Segment] = deque()
        self._undelivered_acks = 0
        self.unsent: deque[bytes] = deque()
        self.unsent_bytes = 0
        self.carries_requests = False
        """Whether it leads from the client to the server."""
        self.carries_metadata = False
        """Whether it has the answers to fetches of the metadata log."""
        self.on_sent: Callable[[bytes], None] | None = None
        """Is called with what is written into it; it only looks."""
        self.on_read: Callable[[bytes], None] | None = None
        """Is called with what the receiving process is about to read; it only looks."""
        self._is_new = True
        self.sender: SimTransport
        self.receiver: SimTransport

    def free_window(self) -> int:
        """Bytes that the kernel takes now; what the transport buffers in the process is not counted."""
        return max(WINDOW_BYTES - self._window_used, 0)

    def send(self, data: bytes) -> None:
        """Queue the data and send what the window allows."""
        if self._is_new:
            self._is_new = False
            self.receiver.outgoing.carries_metadata = self._network.fetches_metadata(self.receiver.local, data)
        if self._network.observer is not None:
            self._network.observer.on_sent(self, data)
        if self.on_sent is not None:
            self.on_sent(data)
        self.unsent.append(data)
        self.unsent_bytes += len(data)
        self.send_unsent()

    def send_unsent(self) -> None:
        """Send as much of the queue as the window allows."""
        while self.unsent and self._window_used < WINDOW_BYTES:
            chunk = self.unsent.popleft()
            free = self.free_window()
            if len(chunk) > free:
                self.unsent.appendleft(chunk[free:])
                chunk = chunk[:free]
            self.unsent_bytes -= len(chunk)
            self._window_used += len(chunk)
            self.transmit(chunk)

    def transmit(self, segment: Segment) -> None:
        """Send one segment; it arrives after the link's latency, and not before an earlier one."""
        arrival_s = max(self._network.arrival_time(self.source, self.target), self.last_arrival_s)
        self.last_arrival_s = arrival_s
        self._network.schedule(arrival_s, self._arrive, segment)

    def consumed(self, length: int) -> None:
        """The receiving process has read `length` bytes; acknowledge them to the sender when they are many."""
        self._unacked += length
        if self._unacked >= _ACK_EVERY_BYTES:
            acked, self._unacked = self._unacked, 0
            self._network.schedule(self._network.arrival_time(self.target, self.source), self._acknowledge, acked)

    def discard_unsent(self) -> None:
        """Forget what was not sent."""
        self.unsent.clear()
        self.unsent_bytes = 0

    @property
    def has_undelivered(self) -> bool:
        """Whether segments or acknowledgements wait for a link to heal."""
        return bool(self._undelivered) or self._undelivered_acks > 0

    def redeliver(self) -> None:
        """Deliver what waited for the link to heal, if it is still up: TCP's retransmission."""
        if self._undelivered_acks and self._network.passes(self.target, self.source):
            acked, self._undelivered_acks = self._undelivered_acks, 0
            self._acknowledge(acked)
        network, here, there = self._network, self.source, self.target
        while (
            self._undelivered
            and network.carries(self)
            and not (network.rejects(here, there) or network.rejects(there, here))
        ):
            self._deliver(self._undelivered.popleft())

    def _arrive(self, segment: Segment) -> None:
        network, here, there = self._network, self.source, self.target
        if network.rejects(here, there) and network.passes(here, there):
            if segment is not Signal.RESET:
                network.schedule(network.arrival_time(there, here), self.sender.reset)
        elif network.rejects(there, here) and network.passes(here, there) and segment is not Signal.RESET:
            self._deliver(segment)
            self.receiver.reset()  # its acknowledgement is answered with a reset; the sender repeats the segment
            self._undelivered.append(segment)
            network.remember_undelivered(self)
        elif self._undelivered or not network.carries(self):
            self._undelivered.append(segment)
            self._network.remember_undelivered(self)
        else:
            self._deliver(segment)

    def _deliver(self, segment: Segment) -> None:
        if isinstance(segment, Signal):
            self._network.hash_segment(self.number, -1, segment is Signal.RESET)
        else:
            self._network.hash_segment(self.number, len(segment), zlib.crc32(segment))
            if self._network.observer is not None:
                self._network.observer.on_delivered(self, len(segment))
        self.receiver.on_segment(segment)

    def _acknowledge(self, length: int) -> None:
        if not self._network.passes(self.target, self.source):
            self._undelivered_acks += length
            self._network.remember_undelivered(self)
            return
        self._window_used -= length
        self.send_unsent()
        self.sender.on_drained()


def send_some(file: File, offset: int, length: int, transport: asyncio.Transport) -> int:
    """Send as many bytes of the file as the kernel takes now; how many. `OSError` when the file is too short.

    `transport` is a `SimTransport`.
    """
    length = min(length, transport.get_extra_info("socket").free_window())
    data = file.pread(offset, length)
    if length and not data:
        raise OSError(errno.EIO, "the file ends before what is to be sent", file.path)
    transport.write(data)
    return len(data)


class SimTransport(asyncio.Transport):
    """One end of a connection, in one process; see `asyncio.Transport`."""

    def __init__(self, network: SimNetwork, process: ProcessLoop, local: Address, remote: Address, number: int) -> None:
        super().__init__({"sockname": local, "peername": remote})
        self.process = process
        self.local = local
        self.remote = remote
        self.number = number
        self.closed = False
        self.outgoing: Pipe
        self.incoming: Pipe
        self._network = network
        self._protocol: asyncio.BaseProtocol | None = None
        self._closing = False
        self._inbox = bytearray()
        self._end_arrived = False
        self._reading = True
        self._read_scheduled = False
        self._writing_paused = False
        self._high_water = _HIGH_WATER_BYTES
        self._low_water = _HIGH_WATER_BYTES // 4

    # -- opening and closing

    def open(self, protocol: asyncio.BaseProtocol) -> None:
        """Connect the protocol; bytes, or the end of the stream, may have arrived before."""
        self._protocol = protocol
        protocol.connection_made(self)
        if self.closed:
            self.process.call_soon(self._connection_lost, _reset())
        self._schedule_read()

    def close_by_kernel(self, final_signal: Signal | None) -> None:
        """The process has ended: its kernel sends `final_signal` to the peer; None after a loss of power."""
        if not self.closed:
            self.outgoing.discard_unsent()
            self._finish(final_signal)

    def reset(self) -> None:
        """This end gets a reset that the peer did not send."""
        self._on_reset()

    # -- segments from the network

    def on_segment(self, segment: Segment) -> None:
        """A segment has arrived."""
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
        """The peer has acknowledged bytes."""
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
        """See `asyncio.Transport`."""
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
        """See `asyncio.Transport`."""
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        """See `asyncio.Transport`."""
        if self._closing or self.closed:
            return
        self._closing = True
        if not self.outgoing.unsent:
            self._finish(Signal.END)
            self.process.call_soon(self._connection_lost, None)

    def abort(self) -> None:
        """See `asyncio.Transport`."""
        if not self.closed:
            self._closing = True
            self.outgoing.discard_unsent()
            self._finish(Signal.RESET)
            self.process.call_soon(self._connection_lost, None)

    def is_closing(self) -> bool:
        """See `asyncio.Transport`."""
        return self._closing or self.closed

    def pause_reading(self) -> None:
        """See `asyncio.Transport`."""
        self._reading = False

    def resume_reading(self) -> None:
        """See `asyncio.Transport`."""
        self._reading = True
        self._schedule_read()

    def is_reading(self) -> bool:
        """See `asyncio.Transport`."""
        return self._reading and not self.is_closing()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """See `asyncio.Transport`."""
        if high is None:
            high = _HIGH_WATER_BYTES if low is None else 4 * low
        self._high_water = high
        self._low_water = high // 4 if low is None else low
        self._pause_if_full()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """`socket` gives the outgoing pipe, whose window `SimDisk.send` needs."""
        return self.outgoing if name == "socket" else super().get_extra_info(name, default)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """See `asyncio.Transport`."""
        return self._low_water, self._high_water

    def get_write_buffer_size(self) -> int:
        """See `asyncio.Transport`."""
        return self.outgoing.unsent_bytes

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """See `asyncio.Transport`."""
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """See `asyncio.Transport`."""
        if self._protocol is None:
            raise OSError(errno.ENOTCONN, "not connected")
        return self._protocol

    def can_write_eof(self) -> bool:
        """See `asyncio.Transport`."""
        return False

    # -- inside

    def _finish(self, final_signal: Signal | None) -> None:
        self.closed = True
        self._network.forget(self)
        if final_signal is not None:
            self.outgoing.transmit(final_signal)

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
        """Let a process that waits for events read at once."""
        process = self.process
        if self._read_scheduled or process.paused or process.blocked or process.dead:
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
        size = self._network.read_size(min(len(self._inbox), _READ_BYTES))
        if isinstance(protocol, asyncio.BufferedProtocol):
            target = memoryview(protocol.get_buffer(size))
            data = self._take(min(size, len(target)))
            target[: len(data)] = data
            protocol.buffer_updated(len(data))
        elif isinstance(protocol, asyncio.Protocol):
            protocol.data_received(self._take(size))

    def _take(self, size: int) -> bytes:
        data = bytes(self._inbox[:size])
        del self._inbox[:size]
        self.incoming.consumed(size)
        if self.incoming.on_read is not None:
            self.incoming.on_read(data)
        return data


def _reset() -> ConnectionResetError:
    return ConnectionResetError(errno.ECONNRESET, "connection reset by peer")
