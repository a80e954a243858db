"""One client connection: frames in, responses out in the order of the requests.

Apache Kafka handles one request of a connection at a time. Here requests of some APIs (Produce, Fetch) overlap: each
starts as soon as it is read, and its response waits in a queue until all earlier ones are ready. Any other request
starts when all earlier ones are answered, so that a client sees the effects of its own requests in order. Reading stops
while too many requests or bytes are in flight or wait for a thread, while many bytes of responses wait for an earlier
one, while the client does not read its responses, and while a quota delays the connection. One that has used up its
share of an iteration of the loop (`loop_budget.py`) goes on in a later one, between any two frames.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from ...runtime.files.file_slice import Sendable
from ...runtime.loop import files_left_after
from ...security.principals import ANONYMOUS
from .decoded_memory import DecodedItems, Releasable
from .frame_reader import READ_BYTES, SHORT_READ_BYTES, BadFrameError, FrameReader
from .loop_budget import BYTES_PER_UNIT, FREED_BYTES_PER_UNIT, READ_BYTES_PER_UNIT, UNITS_PER_SHARE, UNITS_PER_WAKE_UP
from .request import NO_BODY, Request
from .response_queue import WRITE_BUFFER_BYTES, ResponseQueue, memory_bytes

if TYPE_CHECKING:
    from .dispatch import Dispatcher
    from .listener_security import ListenerSecurity
    from .server import Server

DEFERRED_BYTES_MAX = 8 * 1024 * 1024
"""Of one connection while memory is not short. By default a producer has five requests of a megabyte in flight."""
LOGIN_TIMEOUT_S = 30.0
"""How long a peer may take to authenticate itself, after a delay by the creation rate of connections.

Apache Kafka waits for `connections.max.idle.ms`.
"""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of one connection.

    `ordered_start`: whether requests that do not overlap wait for earlier ones. Controller listeners set it to False.
    """

    max_frame_bytes: int = 100 * 1024 * 1024
    max_in_flight: int = 1000
    max_in_flight_bytes: int = 64 * 1024 * 1024
    ordered_start: bool = True


class Connection(asyncio.BufferedProtocol):
    """A protocol for `loop.create_server`, and the `RequestSink` of its requests. The server owns it."""

    def __init__(self, server: Server, *, is_admitted: bool = False) -> None:
        self._server = server
        self._is_admitted = is_admitted  # by the server's limits; else it asks when it is made
        self.was_made = False
        self._limits = server.limits
        self.runner = self._dispatcher = server.dispatcher
        self.memory = server.memory
        self._observer = server.observer
        self._budget = server.budget
        self._units = server.dispatcher.units
        self.listener_name = server.listener_name
        self.peer = "?"
        self.principal = ANONYMOUS
        self.writable_topics: dict[str, object] = {}
        self.sasl = None if server.security is None else server.security.new_session()
        self.software = ("unknown", "unknown")
        self.on_close: list[Callable[[], None]] = []
        self._idle_ticks = 0  # of the server's idle timer, since the last byte in either direction
        self._unsent_bytes = 0  # at the last of these ticks
        self._loop = asyncio.get_running_loop()
        self.opened_at = self._loop.time()
        self._transport: asyncio.Transport | None = None
        self._responses: ResponseQueue | None = None
        self.sends_files = False
        self._reader = FrameReader(server.scratch, server.limits.max_frame_bytes, self._on_frame, server.memory, self)
        self._pending: deque[Request] = deque()  # started and not answered, in order
        self._in_flight_bytes = 0
        self._deferred_bytes = 0  # of the requests in flight, those that wait for a thread
        self._early_bytes = 0  # of responses in memory that wait for those of earlier requests
        self._reading = False  # inside a read or resume: flush at its end
        self._flush_scheduled = False
        self._blocked = False  # a frame waits until earlier requests are done
        self._write_paused = False
        self._read_paused = False
        self._iteration = -1  # of the budget, to which the share belongs
        self._share_left = 0
        self._units_kept = 0  # of the budget: no frame may start in this read or resume when no more are left
        self._delay_timer: asyncio.TimerHandle | None = None  # by a quota
        self._yielding = False  # a frame waits for a later iteration of the loop
        self._waits_to_read = False  # the rest of a big frame is read in a later iteration of the loop
        self._close_when_drained = False
        self._is_closing = False
        self._login_timer: asyncio.TimerHandle | None = None  # until the login, or until the session expires

    @property
    def in_flight(self) -> int:
        """The number of requests that are started and not answered."""
        return len(self._pending)

    @property
    def is_gone(self) -> bool:
        """See `RequestSink`."""
        return self._transport is None

    # -- called by the transport --

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Set up the response queue, and tell the server."""
        self._transport = cast(asyncio.Transport, transport)
        self.was_made = True
        peername = transport.get_extra_info("peername")
        self.peer = str(peername[0]) if peername else "?"
        if not self._is_admitted and not self._ask_for_admission(self._transport):
            self._transport.abort()
            return
        self._responses = ResponseQueue(self._transport, self._on_files_sent, self._on_broken)
        has_socket = transport.get_extra_info("socket") is not None
        self.sends_files = has_socket and transport.get_extra_info("sslcontext") is None
        self._server.opened(self)
        security = self._server.security
        if security is not None and self.sasl is not None:
            self._expect_login(security)
        elif security is not None:
            self._set_principal(security, transport)

    def _ask_for_admission(self, transport: asyncio.Transport) -> bool:
        connected = transport.get_extra_info("socket")  # simulated ones are no files
        admission = self._server.admit(
            self.peer, files_left_after(connected.fileno()) if hasattr(connected, "fileno") else sys.maxsize
        )
        if admission is None:
            return False
        if admission.is_closed_then:
            self._loop.call_later(admission.delay_s, transport.abort)
        if admission.delay_s:
            self._set_delay(admission.delay_s + admission.is_closed_then)
            self._loop.call_soon(self._update_reading)  # uvloop begins to read after this method, even if it pauses
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the server and all requests in flight."""
        self._transport = None
        self._stop_login_timer()
        if self._delay_timer is not None:
            self._delay_timer.cancel()
            self._delay_timer = None
        part = self._reader.close()
        if part is not None:
            self._budget.wait(partial(self._free, part))
        pending, self._pending = self._pending, deque()
        for request in pending:
            if request.memory is not None:
                request.memory.release()
            if request.on_gone is not None:
                request.on_gone()
        if self._responses is not None:
            self._responses.close()
        self._server.closed(self)
        callbacks, self.on_close = self.on_close, []
        for callback in callbacks:
            callback()

    def _free(self, part: memoryview) -> None:
        """Give the memory of a large request back, as the last one that refers to it."""
        self._budget.units_left -= UNITS_PER_WAKE_UP + len(part) // FREED_BYTES_PER_UNIT

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes are received."""
        return self._reader.buffer(READ_BYTES if self._budget.units_left > 0 else SHORT_READ_BYTES)

    def buffer_updated(self, nbytes: int) -> None:
        """Handle the frames in what was received."""
        self._idle_ticks = 0
        self._run_reader(nbytes)
        if self._reader.is_in_big_frame:
            self._pay_for_reading(1 + nbytes // READ_BYTES_PER_UNIT)
            self._update_reading()

    def eof_received(self) -> bool:
        """The client sends no more. Requests that were received are still carried out."""
        is_carrying_out = self._blocked or any(request.is_waited_for for request in self._pending)
        if self._transport is not None and (is_carrying_out or self._is_sending_files):
            self._close_when_drained = True
            return True
        return False

    def pause_writing(self) -> None:
        """Stop reading: the client does not read its responses."""
        self._write_paused = True
        self._update_reading()

    def resume_writing(self) -> None:
        """Go on after the transport has sent what it held."""
        self._idle_ticks = 0
        self._write_paused = False
        if self._responses is not None:
            self._responses.drained()
        self._on_files_sent()

    def _on_files_sent(self) -> None:
        self._resume()
        self._update_reading()
        self._close_if_due()

    def _on_broken(self, error: OSError) -> None:
        if not isinstance(error, ConnectionError):
            self._server.log_rejection(self.peer, str(error))
        self.abort()

    @property
    def _is_sending_files(self) -> bool:
        return self._responses is not None and self._responses.is_sending_files

    @property
    def _is_write_blocked(self) -> bool:
        return self._write_paused or self._is_sending_files

    # -- authentication --

    def _expect_login(self, security: ListenerSecurity) -> None:
        self._use(self._server.login_dispatcher)
        self._reader.limit_frames(security.max_receive_bytes, "sasl.server.max.receive.size")
        begins_at = self._loop.time() if self._delay_timer is None else self._delay_timer.when()
        self._login_timer = self._loop.call_at(begins_at + LOGIN_TIMEOUT_S, self._on_no_login)

    def _on_no_login(self) -> None:
        self._server.log_rejection(self.peer, f"it did not authenticate itself within {LOGIN_TIMEOUT_S:g} s")
        self.abort()

    def on_authenticated(self, session_lifetime_ms: int) -> None:
        """Serve all APIs from now on, until the session expires."""
        security, transport = self._server.security, self._transport
        if security is None or transport is None or not self._set_principal(security, transport):
            return
        self._stop_login_timer()
        self._use(self._server.dispatcher)
        self._reader.limit_frames(self._limits.max_frame_bytes, "socket.request.max.bytes")
        if session_lifetime_ms:
            self._login_timer = self._loop.call_later(session_lifetime_ms / 1000, self._on_session_expired)

    def _set_principal(self, security: ListenerSecurity, transport: asyncio.BaseTransport) -> bool:
        """Whether the peer is somebody; else it is disconnected."""
        try:
            self.principal = security.principal_of(transport, self.listener_name, self.peer, self.sasl)
            self.writable_topics.clear()
        except ValueError as error:
            self.reject(str(error))
            return False
        return True

    def _on_session_expired(self) -> None:
        """Take only a new login from now on: a peer that sends anything else is disconnected (KIP-368)."""
        self._use(self._server.login_dispatcher)

    def _use(self, dispatcher: Dispatcher[Any]) -> None:
        self._dispatcher = dispatcher
        self._units = dispatcher.units

    def _stop_login_timer(self) -> None:
        if self._login_timer is not None:
            self._login_timer.cancel()
            self._login_timer = None

    # -- called by the memory of requests --

    def on_memory_granted(self) -> None:
        """Go on reading the large frame that waited for memory."""
        try:
            self._reader.go_on()
        except BadFrameError as error:
            self.reject(str(error))
        self._update_reading()

    def on_frame_too_slow(self) -> None:
        """Close: this connection's large frame keeps memory for which others wait."""
        self._server.log_rejection(self.peer, "a large request did not arrive in time while memory was short")
        self.abort()

    # -- requests in --

    def delay(self, seconds: float) -> None:
        """Start no request of this connection before this time has passed, nor before the end of an earlier delay."""
        self._set_delay(seconds)
        self._update_reading()

    def _set_delay(self, seconds: float) -> None:
        ends_at = self._loop.time() + seconds
        timer = self._delay_timer
        if self._transport is None or (timer is not None and timer.when() >= ends_at):
            return
        if timer is not None:
            timer.cancel()
        self._delay_timer = self._loop.call_at(ends_at, self._end_delay)
        self._units_kept = sys.maxsize  # no further frame of what is being read starts

    def _end_delay(self) -> None:
        self._delay_timer = None
        self._resume()
        self._update_reading()
        self._close_if_due()

    def _end_yield(self) -> None:
        self._yielding = False
        self._resume()
        self._close_if_due()

    def _pay_for_reading(self, units: int) -> None:
        budget = self._budget
        self._units_granted()
        budget.units_left -= units
        self._share_left -= units
        if not self._waits_to_read and budget.granted(self._share_left) == 0:
            self._waits_to_read = True
            budget.wait(self._read_on)

    def _read_on(self) -> None:
        self._waits_to_read = False
        self._budget.units_left -= UNITS_PER_WAKE_UP
        self._update_reading()

    def _run_reader(self, nbytes: int | None) -> None:
        self._reading = True
        budget = self._budget
        granted = self._units_granted()
        units_at_start = budget.units_left
        self._units_kept = units_at_start - granted
        try:
            if nbytes is None:
                self._reader.resume()
            else:
                self._reader.received(nbytes)
        except BadFrameError as error:
            self.reject(str(error))
        except Exception as error:  # a bug here must not leave a half-read connection open
            self._server.log_failure(error)
            self.reject("internal error")
        finally:
            self._reading = False
            self._share_left -= units_at_start - budget.units_left
        self._flush()

    def _units_granted(self) -> int:
        """How many units this connection may use now. Nothing that this looks at changes during a read or resume."""
        transport = self._transport
        if transport is None or transport.is_closing() or self._delay_timer is not None or self._is_write_blocked:
            return 0
        budget = self._budget
        if self._iteration != budget.iteration:
            self._iteration = budget.begin_share()
            self._share_left = UNITS_PER_SHARE
        return budget.granted(self._share_left)

    def _on_frame(self, frame: memoryview) -> bool:
        is_granted = self._budget.units_left > self._units_kept
        if is_granted and not self._is_closing and (not self._pending or self._may_start(frame)):
            quota = self._dispatcher.request_quota
            if quota is None or not quota.is_on:
                self._dispatcher.start(self, frame, self._begin)
            else:
                quota.start(self._dispatcher.start, self, frame, self._begin)
            return True
        self._hold_frame()
        return False

    def _hold_frame(self) -> None:
        transport = self._transport
        if transport is None or self._is_closing or transport.is_closing():
            return
        self._blocked = True
        if self._budget.units_left <= self._units_kept and not (
            self._yielding or self._delay_timer is not None or self._is_write_blocked
        ):
            self._yielding = True
            self._budget.wait(self._end_yield)
        self._update_reading()

    def _may_start(self, frame: memoryview) -> bool:
        limits = self._limits
        if len(self._pending) >= limits.max_in_flight or self._in_flight_bytes >= limits.max_in_flight_bytes:
            return False
        if self._early_bytes >= WRITE_BUFFER_BYTES:
            return False
        if self._deferred_bytes and (self._deferred_bytes >= DEFERRED_BYTES_MAX or self.memory.is_short):
            return False
        if not limits.ordered_start:
            return True
        overlapping, last = self._dispatcher.overlapping, self._pending[-1]
        key = (frame[0] << 8) | frame[1] if len(frame) >= 2 else -1
        return key in overlapping and last.api_key in overlapping and not last.is_waited_for

    def _begin(self, request: Request) -> None:
        self._pending.append(request)
        frame_bytes = request.frame_bytes
        self._in_flight_bytes += frame_bytes
        budget = self._budget
        budget.units_left -= self._units.get(request.api_key, 1)
        if frame_bytes >= BYTES_PER_UNIT:
            budget.units_left -= frame_bytes // BYTES_PER_UNIT
            request.memory = self._reader.take_claim()
        self._observer.on_begun(request)

    def _resume(self) -> None:
        if self._transport is None or self._reading or not self._blocked:
            return
        if (self._delay_timer is not None) or self._is_write_blocked or self._yielding:
            return
        self._blocked = False
        self._run_reader(None)
        self._update_reading()

    def _update_reading(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing() or self._close_when_drained:
            return
        pause = self._blocked or self._is_write_blocked or self._reader.is_starved or self._waits_to_read
        if self._delay_timer is not None and not self._reader.is_in_big_frame:
            pause = True  # what is read now would be kept in memory; a frame that has memory already is read to its end
        if pause == self._read_paused:
            return
        self._read_paused = pause
        if pause:
            transport.pause_reading()
        else:
            transport.resume_reading()

    def defer(self, request: Request, size_bytes: int) -> Callable[[], None] | None:
        """Account for a copy that waits. No more requests start while there are too many of them."""
        memory = request.memory
        if memory is None or isinstance(memory, DecodedItems):  # its other parts need the frame, and its items count
            memory = claim = self.memory.claim(self, size_bytes)
            claim.complete()
            if not claim.keep(size_bytes):
                claim.release()
                return None
        else:  # the copy takes the place of the frame, and outlives the connection
            request.memory = None
            request.body = NO_BODY
        self._deferred_bytes += size_bytes
        return partial(self._end_deferral, memory, size_bytes)

    def _end_deferral(self, memory: Releasable, size_bytes: int) -> None:
        memory.release()
        self._deferred_bytes -= size_bytes
        self._schedule_flush()

    # -- responses out --

    def complete(self, request: Request, response: Sequence[Sendable]) -> None:
        """Queue the response. All responses that are ready in order are sent with the next flush."""
        if request.memory is not None:  # also of an answer for which nobody waits any more
            request.memory.release()
        responses = self._responses
        if request.response is not None or self._transport is None or responses is None or self._is_closing:
            return
        self._idle_ticks = 0
        self._observer.on_completed(request)
        request.response = response
        pending = self._pending
        if not pending or pending[0] is not request:
            self._early_bytes += memory_bytes(response)
            return
        while pending:
            ready = pending[0].response
            if ready is None:
                break
            first = pending.popleft()
            self._in_flight_bytes -= first.frame_bytes
            if first is not request:
                self._early_bytes -= memory_bytes(ready)
            responses.put(ready)
        if not self._reading:
            self._schedule_flush()
        elif responses.memory_bytes >= WRITE_BUFFER_BYTES:
            self._units_kept = sys.maxsize  # the client has to take these before more are made in this read

    def _schedule_flush(self) -> None:
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush_and_resume)

    def _flush_and_resume(self) -> None:
        self._flush_scheduled = False
        self._flush()
        self._resume()
        self._close_if_due()

    def _close_if_due(self) -> None:
        if self._is_write_blocked or self._transport is None:
            return
        if self._is_closing:
            self._transport.close()
        elif self._close_when_drained and not self._blocked and not self._pending:
            self.close()

    def _flush(self) -> None:
        if self._responses is not None and self._transport is not None:
            self._responses.flush()

    def reject(self, reason: str, kind: str | None = None) -> None:
        """Log the reason, and close after the answered requests' responses have been sent."""
        transport = self._transport
        if transport is None or self._is_closing or transport.is_closing():
            return
        self._server.log_rejection(self.peer, reason, kind)
        self.close()

    def close(self) -> None:
        """Close after the responses in the queue have been sent."""
        if self._transport is not None:
            self._flush()
            self._is_closing = True
            if not self._is_sending_files:
                self._transport.close()

    def close_if_idle(self, ticks_max: int) -> None:
        """The idle timer ticks. Close after more ticks than this without a byte in either direction.

        A client that does not read its responses is not waited for, nor one whose connection is to be closed already.
        """
        transport = self._transport
        if transport is None:
            return
        unsent_bytes = transport.get_write_buffer_size()
        if unsent_bytes != self._unsent_bytes:
            self._unsent_bytes = unsent_bytes
            self._idle_ticks = 0
        self._idle_ticks += 1
        if self._idle_ticks <= ticks_max:
            return
        if self._is_closing or transport.is_closing():
            self.abort()
        elif self.in_flight:
            return
        elif unsent_bytes or self._is_sending_files:
            self._server.log_rejection(self.peer, "it did not read its responses for connections.max.idle.ms")
            self.abort()
        else:
            self.close()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()
