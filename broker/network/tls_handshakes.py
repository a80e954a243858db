"""The connections of a listener with TLS, from when they are accepted until their handshakes are done.

They count for the limits from the beginning. Otherwise a client that begins handshakes and goes no further would have
as many connections and open files as it likes.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from ...runtime.accepted_sockets import AcceptedSocket
from ...runtime.loop import TaskSet, files_left_after
from ...runtime.tls_contexts import TlsContext
from .tls_connection import RECEIVED_BYTES, TlsConnection

if TYPE_CHECKING:
    from .connection import Connection
    from .server import Admission, Server

TLS_HANDSHAKE_TIMEOUT_S = 10.0


class TlsHandshakes:
    """Owned by the server, whose connections it makes."""

    def __init__(self, server: Server, tls: TlsContext) -> None:
        self._server = server
        self._tls = tls
        self._tasks = TaskSet()
        self._received = memoryview(bytearray(RECEIVED_BYTES))

    def __len__(self) -> int:
        return len(self._tasks)

    def stop(self) -> None:
        """Close all connections whose handshakes are not done."""
        self._tasks.cancel_soon()

    def on_accepted(self, accepted: AcceptedSocket) -> None:
        """Count a connection, and begin its handshake where no limit is reached."""
        admission = self._server.admit(accepted.peer, files_left_after(accepted.fileno()))
        if admission is None:
            accepted.close()
            return
        connection = self._server.make_admitted_connection()
        task = self._tasks.spawn(self._run(connection, accepted, admission), "TLS handshake")
        task.add_done_callback(lambda _: self._on_done(connection, accepted))

    async def _run(self, connection: Connection, accepted: AcceptedSocket, admission: Admission) -> None:
        await asyncio.sleep(admission.delay_s)
        if not admission.is_closed_then:
            # What a client did wrong is told by `report_failed_handshakes`.
            with contextlib.suppress(OSError):
                made: list[TlsConnection] = []

                def make(transport: asyncio.Transport) -> TlsConnection:
                    made.append(TlsConnection(connection, transport, self._received))
                    return made[0]

                transport = await accepted.begin_tls(make, self._tls, TLS_HANDSHAKE_TIMEOUT_S)
                made[0].begin(transport)

    def _on_done(self, connection: Connection, accepted: AcceptedSocket) -> None:
        if not connection.was_made:
            accepted.close()
            self._server.release(accepted.peer)
