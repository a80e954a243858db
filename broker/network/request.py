"""A request, and how it is answered."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Protocol

from ...runtime.files.file_slice import Sendable
from ...runtime.incremental_work import Work
from ...runtime.ports import Buffer
from ...security.principals import KafkaPrincipal
from ...security.sasl.session import SaslSession
from ...wire.codec import begins_with_throttle_time
from ...wire.frames import RequestHeader, response_header_version
from .decoded_memory import RESERVED_PER_BYTE, DecodedItems, Releasable
from .request_memory import RequestMemory

_PLAIN = struct.Struct(">ii")
_FLEXIBLE = struct.Struct(">iiB")
NO_BODY = memoryview(b"")
JOIN_BYTES = 16 * 1024


class RequestSink(Protocol):
    """Where a response goes: a connection, or the envelope that the request came in."""

    listener_name: str
    peer: str
    software: tuple[str, str]
    opened_at: float
    sends_files: bool
    """Whether a response may hold slices of files."""
    on_close: list[Callable[[], None]]
    principal: KafkaPrincipal
    """Who makes the requests."""
    writable_topics: dict[str, object]
    """Kept by `Authorization.may_write`: topics that the principal may write to, each with what that was decided by."""
    sasl: SaslSession | None
    """The state of authentication; None on listeners without SASL."""

    @property
    def memory(self) -> RequestMemory:
        """What all requests of its server share."""
        ...

    @property
    def runner(self) -> WorkRunner:
        """Does the work of its requests in steps."""
        ...

    @property
    def is_gone(self) -> bool:
        """Whether the connection has ended, so that nobody waits for answers."""
        ...

    def complete(self, request: Request, response: Sequence[Sendable]) -> None:
        """Take the response frame with its length. An empty one means that this request gets no response."""
        ...

    def defer(self, request: Request, size_bytes: int) -> Callable[[], None] | None:
        """See `Request.defer`."""
        ...

    def delay(self, seconds: float) -> None:
        """Start none of its requests before this time has passed, because of a quota (KIP-219)."""
        ...

    def on_authenticated(self, session_lifetime_ms: int) -> None:
        """The peer has authenticated itself, for so many milliseconds, or for ever with 0."""
        ...

    def reject(self, reason: str, kind: str | None = None) -> None:
        """Close the connection because of what the peer sent, and log why, as `Server.log_rejection` says."""
        ...


class WorkRunner(Protocol):
    """Does the work of requests within the budget that clients have of the loop."""

    def run_in_steps(self, request: Request, work: Work[None]) -> None:
        """Do the work in later iterations; an error is answered as one of the request's handler."""
        ...

    def decode_in_steps(
        self, request: Request, work: Callable[[DecodedItems], Work[None]], reserved_per_byte: int
    ) -> None:
        """Begin the work when there is memory for the items of a large request. Its body stays valid."""
        ...

    def charge(self, items: int) -> None:
        """So many cheap items are handled in this iteration."""
        ...


class RequestObserver:
    """Sees the requests of connections, to time them. This class does nothing with what it sees.

    Its methods run on the path of every request, so an implementation must be fast and must not raise.
    """

    __slots__ = ()

    def on_begun(self, request: Request) -> None:
        """The request is read to its last byte. An implementation may set `begun_at_s` by its own clock."""

    def on_completed(self, request: Request) -> None:
        """The request has its answer, which may still wait for answers to earlier requests."""


NO_OBSERVER = RequestObserver()


class Request:
    """Header fields, the body's bytes, and its sink. Answer exactly once: `respond`, `no_response` or `reject`.

    The body is valid only until the handler returns: its memory is used again for the next read.
    """

    __slots__ = ("api_key", "api_version", "begun_at_s", "body", "client_id", "correlation_id", "frame_bytes",
                 "is_waited_for", "memory", "on_gone", "response", "sink", "throttle_ms")  # fmt: skip

    begun_at_s: float
    """Set and read by a `RequestObserver` only."""

    def __init__(self, sink: RequestSink, header: RequestHeader, frame: memoryview, body_at: int) -> None:
        self.sink = sink
        self.api_key, self.api_version, self.correlation_id, self.client_id = header
        self.body = frame[body_at:]
        self.frame_bytes = len(frame)
        self.memory: Releasable | None = None  # of a large frame and its items, until the answer
        self.response: Sequence[Sendable] | None = None
        self.throttle_ms = 0  # as the answer says it; -1 for requests of brokers, which no quota limits
        self.on_gone: Callable[[], object] | None = None  # called when the connection ends before the answer
        self.is_waited_for = False  # by all later requests of the connection, also those that may overlap

    def respond(self, body: Buffer | Sequence[Sendable], *, version: int | None = None) -> None:
        """Send `body`, one buffer or several, with a response header of `version` (default: the request's)."""
        flexible = response_header_version(self.api_key, self.api_version if version is None else version)
        if self.throttle_ms > 0:
            body = self._with_throttle_time(body)
        if isinstance(body, (bytes, bytearray, memoryview)):
            length = len(body)
            if length <= JOIN_BYTES:
                self.sink.complete(self, (self._header(length, flexible) + body,))
            else:
                self.sink.complete(self, (self._header(length, flexible), body))
            return
        self.sink.complete(self, (self._header(sum(map(len, body)), flexible), *body))

    def no_response(self) -> None:
        """The request is done and gets no response, since it had acks=0."""
        self.sink.complete(self, ())

    def reject(self, reason: str, kind: str | None = None) -> None:
        """Close the connection instead of answering, and log why, as `Server.log_rejection` says."""
        if self.memory is not None:
            self.memory.release()
        self.sink.reject(reason, kind)

    def free_body(self) -> None:
        """Give back the memory of the body and of its items, which the answer does not need."""
        self.body = NO_BODY
        memory, self.memory = self.memory, None
        if memory is not None:
            memory.release()

    @property
    def is_gone(self) -> bool:
        """Whether nobody waits for the answer, since the connection has ended."""
        return self.sink.is_gone

    @property
    def sender(self) -> object:
        """The connection, as the one whose requests are in order."""
        return self.sink

    def defer(self, size_bytes: int) -> Callable[[], None] | None:
        """Account for so many bytes of the body that are copied and wait; its connection is charged for them.

        Returns what gives the memory back; None where there is no memory. A copy of a large body takes its place,
        unless the request is handled in parts.
        """
        return self.sink.defer(self, size_bytes)

    def run_in_steps(self, work: Work[None]) -> None:
        """Do more of this request's work in later iterations of the loop, within the budget of clients."""
        self.sink.runner.run_in_steps(self, work)

    def decode_in_steps(
        self, work: Callable[[DecodedItems], Work[None]], reserved_per_byte: int = RESERVED_PER_BYTE
    ) -> None:
        """Do work that decodes this request into many items, when there is memory for them, and answers it.

        `reserved_per_byte` is what a byte of it may become.
        """
        self.sink.runner.decode_in_steps(self, work, reserved_per_byte)

    def charge(self, items: int) -> None:
        """Count so many cheap items, such as partitions, that this request handles in this iteration of the loop."""
        self.sink.runner.charge(items)

    def while_needed(self, work: Work[None]) -> Work[None]:
        """The same work, which ends when nobody waits for the answer any more."""
        for step in work:
            if self.is_gone:
                work.close()
                return
            yield step

    def _with_throttle_time(self, body: Buffer | Sequence[Sendable]) -> Buffer | Sequence[Sendable]:
        """The same answer with the throttle time, where it is the first field."""
        if not begins_with_throttle_time(self.api_key, self.api_version):
            return body
        throttle = self.throttle_ms.to_bytes(4, "big")
        if isinstance(body, (bytes, bytearray, memoryview)):
            return throttle + bytes(body[4:])
        first = body[0]
        return (throttle + bytes(first[4:]), *body[1:]) if isinstance(first, (bytes, bytearray, memoryview)) else body

    def _header(self, body_bytes: int, flexible: int) -> bytes:
        if flexible:
            return _FLEXIBLE.pack(body_bytes + 5, self.correlation_id, 0)
        return _PLAIN.pack(body_bytes + 4, self.correlation_id)
