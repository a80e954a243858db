"""Connections to Kafka brokers: pipelined requests, matched with their responses by correlation id.

A `Connection` is one TCP connection. A `NodeChannel` connects again after a loss. The caller chooses the version of
each request; `Connection.api_versions` says which ones the broker supports.

There are three errors. `ConnectionLostError`: the connection was lost before the response, and the broker may or may
not have processed the request. `RequestTimedOutError`: the response did not come in time, and the connection is closed,
because responses come in order. `ConnectionError` when connecting (`ConnectionRefusedError` where nothing listens).
"""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from ..runtime.ports import Buffer
from . import codec
from .api_keys import ApiKey
from .errors import WireFormatError
from .frames import RequestHeader, encode_request, other_protocol, parse_response_header

DEFAULT_MAX_FRAME_BYTES = 256 * 1024 * 1024
_SCRATCH_BYTES = 64 * 1024
_SIZE = struct.Struct(">i")
_PendingResponse = tuple[int, int, asyncio.Future[memoryview], asyncio.TimerHandle | None, float]
"""API key and version of a request, the future of its response, the timer of its time-out, and when it was sent."""


class ConnectionLostError(ConnectionError):
    """The connection was lost while a request was waiting for its response."""


class RequestTimedOutError(ConnectionLostError):
    """A response did not come in time. The connection is closed."""


class OtherProtocolError(WireFormatError):
    """The peer speaks another protocol, which `protocol` names."""

    def __init__(self, protocol: str) -> None:
        self.protocol = protocol
        super().__init__(f"it speaks {protocol}, not Kafka's protocol")


class FrameReader:
    """Splits a stream of bytes into frames, each in a buffer of its own.

    Small frames are copied from a scratch buffer. The rest of a large frame is received directly into its own buffer.
    Raises `WireFormatError` for a size that is negative or over `max_frame_bytes`.
    """

    def __init__(self, max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._scratch = memoryview(bytearray(_SCRATCH_BYTES))
        self._filled = 0
        self._large: memoryview | None = None
        self._large_filled = 0

    def get_buffer(self) -> memoryview:
        """The buffer for the next bytes."""
        if self._large is not None:
            return self._large[self._large_filled :]
        return self._scratch[self._filled :]

    def buffer_updated(self, count: int) -> list[memoryview]:
        """Take in `count` bytes from the buffer; returns the complete frames, without their size fields."""
        if self._large is not None:
            self._large_filled += count
            if self._large_filled < len(self._large):
                return []
            frame, self._large = self._large, None
            return [frame]
        self._filled += count
        return self._cut_scratch()

    def _cut_scratch(self) -> list[memoryview]:
        frames = []
        scratch, filled, position = self._scratch, self._filled, 0
        while filled - position >= 4:
            (size,) = _SIZE.unpack_from(scratch, position)
            if size < 0 or size > self._max_frame_bytes:
                protocol = other_protocol(bytes(scratch[position : position + 4]))
                if protocol is not None:
                    raise OtherProtocolError(protocol)
                raise WireFormatError(f"frame of {size} bytes, at most {self._max_frame_bytes} are taken")
            start, stop = position + 4, position + 4 + size
            if stop <= filled:
                frames.append(memoryview(bytearray(scratch[start:stop])))
                position = stop
                continue
            if size + 4 > _SCRATCH_BYTES:
                self._large = memoryview(bytearray(size))
                self._large_filled = filled - start
                self._large[: self._large_filled] = scratch[start:filled]
                position = filled
            break
        if position:
            scratch[: filled - position] = bytes(scratch[position:filled])
        self._filled = filled - position
        return frames


class Connection(asyncio.BufferedProtocol):
    """One connection to a broker. Make it with `connect`, and use it from the same event loop."""

    def __init__(self, client_id: str | None, max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES) -> None:
        self._loop = asyncio.get_running_loop()
        self._throttled_until = 0.0
        self._login_held_up: asyncio.Future[None] | None = None  # by a throttle time
        self._client_id = client_id
        self._reader = FrameReader(max_frame_bytes)
        self._transport: asyncio.Transport | None = None
        self._next_correlation_id = 0
        self._pending: dict[int, _PendingResponse] = {}
        self._writable: asyncio.Future[None] | None = None
        self.peer = "unconnected"
        self.received_bytes = 0
        self.closed: asyncio.Future[Exception | None] = self._loop.create_future()
        """Done when the connection has ended. The result is the reason, or None after `close`."""
        self.on_throttled: Callable[[float], None] | None = None
        """Called when the broker throttles this connection, with the loop's time until when it does not read it."""

    @property
    def is_closed(self) -> bool:
        """Whether the connection has ended or is closing, so that nothing more can be sent."""
        return self.closed.done() or self._transport is None or self._transport.is_closing()

    @property
    def in_flight(self) -> int:
        """The number of requests that wait for their response."""
        return len(self._pending)

    def waiting_s(self) -> float:
        """How long the oldest request without a response has waited for it, be it cancelled or not; 0 without one."""
        for *_, sent_at in self._pending.values():
            return self._loop.time() - sent_at
        return 0.0

    async def request(
        self,
        api_key: int,
        version: int,
        fields: codec.Fields,
        *,
        timeout_s: float | None = None,
        is_of_login: bool = False,
    ) -> codec.Struct:
        """Send a request and wait for its decoded response; first, until the broker no longer throttles the client.

        Others than those of a login wait for one that is held up, too. Raises `ConnectionLostError`,
        `RequestTimedOutError` after `timeout_s`, `WireFormatError` for a malformed response, and `ValueError` for
        fields that do not fit the schema.
        """
        body = codec.encode_request(api_key, version, fields)
        await (self._throttle_time_over() if is_of_login else self.unthrottled(timeout_s))
        response = await self.send_raw(api_key, version, [body], timeout_s=timeout_s)
        answer = codec.decode_response(api_key, version, response)
        self.throttle(answer.get("throttle_time", 0))
        return answer

    def throttle(self, throttle_ms: int) -> None:
        """Take note of the throttle time in a response: for so long the broker does not read the connection (KIP-219).

        That time counts for no request's `timeout_s`, not even for that of a request that was sent before.
        """
        until = self._loop.time() + throttle_ms / 1000
        if throttle_ms > 0 and until > self._throttled_until:
            self._throttled_until = until
            if self.on_throttled is not None:
                self.on_throttled(until)

    async def unthrottled(self, timeout_s: float | None = None) -> None:
        """Wait until the broker reads the connection again, or has closed it.

        Then for a login that was held up by that as well, for at most `timeout_s`: the session may have ended.
        """
        await self._throttle_time_over()
        if self._login_held_up is not None:
            ends: list[asyncio.Future[Any]] = [self.closed, self._login_held_up]
            await asyncio.wait(ends, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)

    @contextmanager
    def first_after_throttling(self) -> Iterator[None]:
        """For a login: where the broker throttles the client, no other request goes before those of the login."""
        if self._throttled_until <= self._loop.time():
            yield
            return
        held_up = self._login_held_up = self._loop.create_future()
        try:
            yield
        finally:
            self._login_held_up = None
            held_up.set_result(None)

    async def _throttle_time_over(self) -> None:
        while not self.closed.done() and (wait_s := self._throttled_until - self._loop.time()) > 0:
            await asyncio.wait([self.closed], timeout=wait_s)

    def send_raw(
        self, api_key: int, version: int, body: Sequence[Buffer], *, timeout_s: float | None = None
    ) -> asyncio.Future[memoryview]:
        """Send an encoded request; the future gives the response's body, in a buffer that belongs to the caller.

        The future fails with the errors of `request`. After a cancellation the response is ignored; the broker still
        processes the request.
        """
        future: asyncio.Future[memoryview] = self._loop.create_future()
        if self.is_closed:
            future.set_exception(ConnectionLostError(f"not connected to {self.peer}"))
            return future
        correlation_id = self._write(api_key, version, body)
        timer = None
        if timeout_s is not None:
            timer = self._loop.call_later(timeout_s, self._on_timeout, correlation_id, timeout_s)
        self._pending[correlation_id] = (api_key, version, future, timer, self._loop.time())
        return future

    def _write(self, api_key: int, version: int, body: Sequence[Buffer]) -> int:
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        header = RequestHeader(api_key, version, correlation_id, self._client_id)
        if self._transport is not None:
            self._transport.writelines(encode_request(header, body))
        return correlation_id

    async def api_versions(self, *, timeout_s: float | None = None) -> dict[int, tuple[int, int]]:
        """The lowest and the highest version of each API that the broker supports."""
        response = await self.request(ApiKey.API_VERSIONS, 0, {}, timeout_s=timeout_s)
        return {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}

    async def drain(self) -> None:
        """Wait while the transport's send buffer is over its limit."""
        while self._writable is not None:
            await asyncio.shield(self._writable)

    def close(self) -> None:
        """Close after the sent bytes are written. Every waiting request fails now with `ConnectionLostError`."""
        if self._transport is not None:
            self._transport.close()
        self._on_gone(None)

    def _shut(self, reason: Exception) -> None:
        if self._transport is not None:
            self._transport.abort()
        self._on_gone(reason)

    def _on_gone(self, reason: Exception | None) -> None:
        if self.closed.done():
            return
        self.closed.set_result(reason)
        if self._writable is not None:
            self._writable.set_result(None)
            self._writable = None
        pending, self._pending = self._pending, {}
        for _, _, future, timer, _ in pending.values():
            if timer is not None:
                timer.cancel()
            if not future.done():
                future.set_exception(self._lost(reason))

    def _lost(self, reason: Exception | None) -> ConnectionLostError:
        if isinstance(reason, RequestTimedOutError):
            return reason
        error = ConnectionLostError(f"connection to {self.peer} lost: {reason or 'closed'}")
        error.__cause__ = reason
        return error

    def _on_timeout(self, correlation_id: int, timeout_s: float) -> None:
        pending = self._pending.get(correlation_id)
        if pending is None or pending[2].done():
            return
        api_key, version, future, _, sent_at = pending
        left_s = max(sent_at, self._throttled_until) + timeout_s - self._loop.time()
        if left_s > 0:
            timer = self._loop.call_later(left_s, self._on_timeout, correlation_id, timeout_s)
            self._pending[correlation_id] = (api_key, version, future, timer, sent_at)
        else:
            self._shut(
                RequestTimedOutError(f"no answer from {self.peer} to {_api_name(api_key)} within {timeout_s:g} s")
            )

    # -- asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio when the connection is up."""
        self._transport = transport  # type: ignore[assignment]
        peer = transport.get_extra_info("peername")
        self.peer = f"{peer[0]}:{peer[1]}" if peer else "unknown peer"

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio when the connection has ended."""
        self._on_gone(exc or ConnectionLostError("closed by the peer"))

    def get_buffer(self, sizehint: int) -> memoryview:
        """Called by asyncio for the buffer of the next bytes."""
        return self._reader.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Called by asyncio when `nbytes` bytes are in the buffer."""
        if self.closed.done():
            return
        self.received_bytes += nbytes
        try:
            for frame in self._reader.buffer_updated(nbytes):
                self._on_frame(frame)
        except WireFormatError as error:
            self._shut(error)

    def eof_received(self) -> bool:
        """Called by asyncio when the peer has closed its side. False closes the connection."""
        return False

    def pause_writing(self) -> None:
        """Called by asyncio when the send buffer is over its limit."""
        if self._writable is None and not self.closed.done():
            self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        """Called by asyncio when the send buffer is below its limit again."""
        if self._writable is not None:
            self._writable.set_result(None)
            self._writable = None

    def _on_frame(self, frame: memoryview) -> None:
        if len(frame) < 4:
            raise WireFormatError(f"response of {len(frame)} bytes has no header")
        pending = self._pending.pop(_SIZE.unpack_from(frame)[0], None)
        if pending is None:
            raise WireFormatError(f"response to a request that is not waiting: {_SIZE.unpack_from(frame)[0]}")
        api_key, version, future, timer, _ = pending
        if timer is not None:
            timer.cancel()
        try:
            _, position = parse_response_header(api_key, version, frame)
        except WireFormatError as error:
            if not future.done():
                future.set_exception(error)
            raise
        if not future.done():
            future.set_result(frame[position:])


class Login(Protocol):
    """How a new connection is encrypted and authenticated (`security/client_login.py`)."""

    def connection_options(self, host: str) -> dict[str, Any]:
        """The options for `loop.create_connection`."""
        ...

    async def log_in(self, connection: Connection, host: str) -> None:
        """Authenticate on a new connection to that host. Raises OSError."""
        ...


def _api_name(api_key: int) -> str:
    try:
        return ApiKey(api_key).name
    except ValueError:
        return f"API {api_key}"


async def connect(
    host: str,
    port: int,
    *,
    client_id: str | None = "raftwerk",
    timeout_s: float | None = 10.0,
    max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES,
    login: Login | None = None,
) -> Connection:
    """Connect to a broker, and log in where `login` is given.

    Raises `ConnectionRefusedError` where nothing listens, `TimeoutError` after `timeout_s`, and OSError of the login.
    A broker may register with any host name: where it cannot be encoded, that is an OSError, too.
    """
    loop = asyncio.get_running_loop()
    options = {} if login is None else login.connection_options(host)
    async with asyncio.timeout(timeout_s):
        try:
            _, connection = await loop.create_connection(
                lambda: Connection(client_id, max_frame_bytes), host, port, **options
            )
        except ValueError as error:
            if isinstance(error, OSError):
                raise  # a certificate that is not accepted is both
            raise ConnectionError(f"{host!r} is not a host name: {error}") from None
        if login is not None:
            try:
                await login.log_in(connection, host)
            except BaseException:
                connection.close()
                raise
    return connection


class Backoff:
    """Exponential back-off with jitter, from `initial_s` to `max_s` seconds."""

    def __init__(self, rng: random.Random, *, initial_s: float = 0.05, max_s: float = 1.0, jitter: float = 0.2) -> None:
        self._rng = rng
        self._initial_s = initial_s
        self._max_s = max_s
        self._jitter = jitter
        self._failures = 0

    def next_s(self) -> float:
        """The pause before the next attempt, in seconds. Each call counts as a failure."""
        # 2.0**1024 would overflow.
        pause = min(self._max_s, self._initial_s * 2.0 ** min(self._failures, 32))
        self._failures += 1
        return pause * self._rng.uniform(1 - self._jitter, 1 + self._jitter)

    def reset(self) -> None:
        """Start again with `initial_s`, after a success."""
        self._failures = 0


class NodeChannel:
    """A connection to one node. It is made on first use, and again after a loss, when the back-off has passed.

    `connect_to` makes a connection to the node, wherever that listens now. A failed request is not sent again, because
    only the caller knows whether that is safe.
    """

    def __init__(self, node_id: int, connect_to: Callable[[int], Awaitable[Connection]], *, rng: random.Random) -> None:
        self.node_id = node_id
        self._connect_to = connect_to
        self._backoff = Backoff(rng)
        self._not_before = 0.0
        self._connection: Connection | None = None
        self._connecting: asyncio.Task[Connection] | None = None
        self._closed = False

    @property
    def current(self) -> Connection | None:
        """The connection, or None while there is none."""
        if self._connection is not None and self._connection.is_closed:
            return None
        return self._connection

    async def connection(self) -> Connection:
        """The connection. Connects first where there is none; all callers share one attempt.

        Raises what `connect_to` raises, and `ConnectionLostError` after `close`.
        """
        if self._closed:
            raise ConnectionLostError(f"the channel to node {self.node_id} is closed")
        live = self.current
        if live is not None:
            return live
        if self._connecting is None:
            self._connecting = asyncio.get_running_loop().create_task(self._connect())
            self._connecting.add_done_callback(self._on_connected)
        try:
            return await asyncio.shield(self._connecting)
        except asyncio.CancelledError:
            if self._closed:
                raise ConnectionLostError(f"the channel to node {self.node_id} is closed") from None
            raise

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        pause_s = self._not_before - loop.time()
        if pause_s > 0:
            await asyncio.sleep(pause_s)
        try:
            connection = await self._connect_to(self.node_id)
        except OSError:
            self._not_before = loop.time() + self._backoff.next_s()
            raise
        self._connection = connection
        connection.closed.add_done_callback(lambda _: self._on_lost(connection))
        return connection

    def _on_connected(self, task: asyncio.Task[Connection]) -> None:
        self._connecting = None
        if not task.cancelled():
            # asyncio reports exceptions that are never read; perhaps no caller waits for this one any more.
            task.exception()

    def _on_lost(self, connection: Connection) -> None:
        # A node that accepts connections and closes them gets the same back-off as one that refuses them.
        if self._connection is connection:
            self._connection = None
            self._not_before = asyncio.get_running_loop().time() + self._backoff.next_s()

    async def request(
        self, api_key: int, version: int, fields: codec.Fields, *, timeout_s: float | None = None
    ) -> codec.Struct:
        """As `Connection.request`; connects first where needed."""
        connection = await self.connection()
        response = await connection.request(api_key, version, fields, timeout_s=timeout_s)
        self._backoff.reset()
        return response

    async def send_raw(
        self, api_key: int, version: int, body: Sequence[Buffer], *, timeout_s: float | None = None
    ) -> memoryview:
        """As `Connection.send_raw`; connects first where needed."""
        connection = await self.connection()
        response = await connection.send_raw(api_key, version, body, timeout_s=timeout_s)
        self._backoff.reset()
        return response

    def close(self) -> None:
        """Close the connection, and do not connect again."""
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        if self._connection is not None:
            self._connection.close()
