"""A listener: accepts connections, closes idle ones and those that break the protocol."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from ...runtime.accepted_sockets import AcceptingSockets
from ...runtime.loop import host_to_listen_on, set_buffers
from ...runtime.tls_contexts import report_failed_handshakes
from ..log_limiter import LogLimiter, kind_of
from .connection import Connection, ConnectionLimits
from .connection_quota import ConnectionQuota
from .dispatch import Dispatcher
from .frame_reader import SCRATCH_BYTES
from .listener_security import ListenerSecurity
from .request import NO_OBSERVER, RequestObserver
from .request_memory import RequestMemory, default_limit_bytes
from .tls_handshakes import TlsHandshakes

logger = logging.getLogger("raftwerk.broker")

IDLE_TICKS = 10  # idle connections are closed after the time-out, at most a tenth late
FILES_LEFT_MIN = 16
"""The number of files that is reserved for the node itself, for checkpoints and connections to other nodes."""
KINDS_OF_REJECTIONS_MAX = 20
"""So many kinds of reasons are logged in ten minutes for one address, even if peers choose a part of a kind."""


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """One listener. `max_idle_ms` is connections.max.idle.ms (negative: never); with port 0 the system chooses one."""

    listener_name: str
    host: str
    port: int
    limits: ConnectionLimits = field(default_factory=ConnectionLimits)
    max_idle_ms: int = 600_000
    backlog: int = 1024
    send_buffer_bytes: int = 100 * 1024
    """socket.send.buffer.bytes; -1 for what the system chooses. A large one costs processor time."""
    receive_buffer_bytes: int = -1
    """socket.receive.buffer.bytes; -1 for what the system chooses."""
    is_protected: bool = False
    """Whether this is the inter-broker listener, which `max.connections` does not limit."""
    security: ListenerSecurity | None = None
    """How peers authenticate themselves and what is encrypted; None for PLAINTEXT."""


class Admission(NamedTuple):
    """How an accepted connection goes on: it is delayed, and then served, or closed."""

    delay_s: float
    is_closed_then: bool = False


_AT_ONCE = Admission(0.0)


class Server:
    """Owns the connections of one listener.

    `memory` is shared with other listeners; by default the listener has its own.
    """

    def __init__(
        self,
        config: ServerConfig,
        dispatcher: Dispatcher[Any],
        quota: ConnectionQuota | None = None,
        observer: RequestObserver = NO_OBSERVER,
        memory: RequestMemory | None = None,
    ) -> None:
        self.config = config
        self._quota = quota
        self.listener_name = config.listener_name
        self.limits = config.limits
        self.dispatcher = dispatcher
        self.observer = observer
        self.security = config.security
        has_sasl = config.security is not None and config.security.mechanisms is not None
        self.login_dispatcher = dispatcher.before_authentication() if has_sasl else dispatcher
        self.budget = dispatcher.budget
        frame_bytes = config.limits.max_frame_bytes
        self.memory = memory or RequestMemory(default_limit_bytes(frame_bytes), frame_bytes)
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.connections: dict[Connection, None] = {}
        self.handshakes: TlsHandshakes | None = None
        self.accepted_total = 0
        self.rejected_total = 0
        self._rejections = LogLimiter(KINDS_OF_REJECTIONS_MAX)
        self._server: asyncio.Server | None = None
        self._accepting: AcceptingSockets | None = None
        self._idle_timer: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Begin to listen. Raises OSError when the port is in use."""
        loop = asyncio.get_running_loop()
        host = host_to_listen_on(self.config.host)
        tls = None
        if self.security is not None:
            await self.security.start()
            tls = self.security.tls
        make, port, backlog = self.make_connection, self.config.port, self.config.backlog
        self._server = await loop.create_server(make, host, port, backlog=backlog, start_serving=tls is None)
        for listening in self._server.sockets:
            set_buffers(listening, self.config.send_buffer_bytes, self.config.receive_buffer_bytes)
        if tls is not None:
            report_failed_handshakes(tls, partial(self.log_rejection, "a client"))
            self.handshakes = TlsHandshakes(self, tls)
            self._accepting = AcceptingSockets(self._server, backlog, self.handshakes.on_accepted)
        if self.config.max_idle_ms >= 0:
            self._schedule_idle_check()

    @property
    def port(self) -> int:
        """The port of the listener, known after `start`."""
        if self._server is None or not self._server.sockets:
            return self.config.port
        return int(self._server.sockets[0].getsockname()[1])

    def make_connection(self) -> Connection:
        """A protocol for one accepted connection."""
        return Connection(self)

    def make_admitted_connection(self) -> Connection:
        """A protocol for a connection that `admit` has counted already."""
        return Connection(self, is_admitted=True)

    def stop_accepting(self) -> None:
        """Close the listening socket; connections stay open."""
        if self._accepting is not None:
            self._accepting.close()
            self._accepting = None
        if self._server is not None:
            self._server.close()
            self._server = None

    async def stop(self) -> None:
        """Stop listening, send the responses that are ready, close every connection."""
        self.stop_accepting()
        if self.security is not None:
            self.security.stop()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        if self.handshakes is not None:
            self.handshakes.stop()
        self.dispatcher.stop()
        self.login_dispatcher.stop()
        for connection in list(self.connections):
            connection.close()
        await asyncio.sleep(0)
        for connection in list(self.connections):
            connection.abort()

    def admit(self, peer: str, files_left: int) -> Admission | None:
        """Count an accepted connection until `release`. None: close it, since a limit is reached.

        `files_left` is how many more files the node can open.
        """
        quota, now_s = self._quota, asyncio.get_running_loop().time()
        is_protected = self.config.is_protected
        reason = None
        if files_left < FILES_LEFT_MIN and not is_protected:
            reason = "the node can open hardly any more files (ulimit -n)"
        elif quota is not None:
            reason = quota.refusal(peer, now_s, is_protected=is_protected)
        if reason is not None:
            self.log_rejection(peer, reason)
            return None
        self.accepted_total += 1
        if quota is None:
            return _AT_ONCE
        quota.opened(peer)
        return _AT_ONCE if is_protected else self._admission(peer, quota, now_s)

    def _admission(self, peer: str, quota: ConnectionQuota, now_s: float) -> Admission:
        closes_after_s = quota.closes_after_s(peer, now_s)
        if closes_after_s <= 0:
            return Admission(quota.delay_s(now_s))
        self.log_rejection(peer, "its address opens more connections than connection_creation_rate")
        return Admission(closes_after_s, is_closed_then=True)

    def release(self, peer: str) -> None:
        """Count a connection of this address no more."""
        if self._quota is not None:
            self._quota.closed(peer)

    def opened(self, connection: Connection) -> None:
        """Add a connection that was admitted."""
        self.connections[connection] = None

    def closed(self, connection: Connection) -> None:
        """Remove a connection."""
        if connection in self.connections:
            del self.connections[connection]
            self.release(connection.peer)

    def log_failure(self, error: BaseException) -> None:
        """Log a bug that closed a connection."""
        logger.error("a connection on listener %s failed", self.listener_name, exc_info=error)

    def log_rejection(self, peer: str, reason: str, kind: str | None = None) -> None:
        """Log why a connection was closed, once in ten minutes for each address and kind of reason.

        The kind is found in the reason where none is given.
        """
        self.rejected_total += 1
        if self._rejections.should_log_of_kind(peer, kind or kind_of(reason), asyncio.get_running_loop().time()):
            logger.warning("closed a connection from %s on listener %s: %s", peer, self.listener_name, reason)

    def _schedule_idle_check(self) -> None:
        delay = max(self.config.max_idle_ms, IDLE_TICKS) / 1000 / IDLE_TICKS
        self._idle_timer = asyncio.get_running_loop().call_later(delay, self._close_idle)

    def _close_idle(self) -> None:
        for connection in list(self.connections):
            connection.close_if_idle(IDLE_TICKS)
        self._schedule_idle_check()
