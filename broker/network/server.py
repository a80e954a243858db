"""A listener: accepts connections, closes idle ones and those that break the protocol."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ...runtime.loop import set_buffers
from ...runtime.tls_contexts import report_failed_handshakes
from ..log_limiter import LogLimiter
from .connection import Connection, ConnectionLimits
from .connection_quota import ConnectionQuota
from .dispatch import Dispatcher
from .frame_reader import SCRATCH_BYTES
from .listener_security import ListenerSecurity
from .request import NO_OBSERVER, RequestObserver
from .request_memory import RequestMemory, default_limit_bytes

logger = logging.getLogger("raftwerk.broker")

IDLE_TICKS = 10  # idle connections are closed after the time-out, at most a tenth late
FILES_LEFT_MIN = 16
"""The number of files that is reserved for the node itself, for checkpoints and connections to other nodes."""


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
        self.accepted_total = 0
        self.rejected_total = 0
        self._rejections = LogLimiter()
        self._server: asyncio.Server | None = None
        self._idle_timer: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Begin to listen. Raises OSError when the port is in use."""
        loop = asyncio.get_running_loop()
        host = self.config.host or None
        make = self.make_connection
        options = {}
        if self.security is not None:
            await self.security.start()
            options = self.security.server_options()
            if self.security.tls is not None:
                report_failed_handshakes(self.security.tls, partial(self.log_rejection, "a client"))
        self._server = await loop.create_server(make, host, self.config.port, backlog=self.config.backlog, **options)
        for listening in self._server.sockets:
            set_buffers(listening, self.config.send_buffer_bytes, self.config.receive_buffer_bytes)
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

    def stop_accepting(self) -> None:
        """Close the listening socket; connections stay open."""
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
        self.dispatcher.stop()
        self.login_dispatcher.stop()
        for connection in list(self.connections):
            connection.close()
        await asyncio.sleep(0)
        for connection in list(self.connections):
            connection.abort()

    def opened(self, connection: Connection, files_left: int) -> None:
        """Add a connection. Close it at once where a limit is reached, of connections or of open files."""
        if files_left < FILES_LEFT_MIN and not self.config.is_protected:
            self.log_rejection(connection.peer, "the node can open hardly any more files (ulimit -n)")
            connection.abort()
            return
        if self._quota is not None:
            reason = self._quota.refusal(connection.peer, is_protected=self.config.is_protected)
            if reason is not None:
                self.log_rejection(connection.peer, reason)
                connection.abort()
                return
            self._quota.opened(connection.peer)
            if not self.config.is_protected:
                self._limit_rate(connection, self._quota, asyncio.get_running_loop().time())
        self.accepted_total += 1
        self.connections[connection] = None

    def _limit_rate(self, connection: Connection, quota: ConnectionQuota, now_s: float) -> None:
        delay_s = quota.delay_s(now_s)
        closes_after_s = quota.closes_after_s(connection.peer, now_s)
        if closes_after_s > 0:
            self.log_rejection(connection.peer, "its address opens more connections than connection_creation_rate")
            asyncio.get_running_loop().call_later(closes_after_s, connection.abort)
            delay_s = max(delay_s, closes_after_s + 1)
        if delay_s > 0:
            connection.delay(delay_s)

    def closed(self, connection: Connection) -> None:
        """Remove a connection."""
        if connection in self.connections:
            del self.connections[connection]
            if self._quota is not None:
                self._quota.closed(connection.peer)

    def log_failure(self, error: BaseException) -> None:
        """Log a bug that closed a connection."""
        logger.error("a connection on listener %s failed", self.listener_name, exc_info=error)

    def log_rejection(self, peer: str, reason: str) -> None:
        """Log why a connection was closed, once in ten minutes for each address and kind of reason."""
        self.rejected_total += 1
        if self._rejections.should_log(peer, reason, asyncio.get_running_loop().time()):
            logger.warning("closed a connection from %s on listener %s: %s", peer, self.listener_name, reason)

    def _schedule_idle_check(self) -> None:
        delay = max(self.config.max_idle_ms, IDLE_TICKS) / 1000 / IDLE_TICKS
        self._idle_timer = asyncio.get_running_loop().call_later(delay, self._close_idle)

    def _close_idle(self) -> None:
        for connection in list(self.connections):
            connection.close_if_idle(IDLE_TICKS)
        self._schedule_idle_check()
