"""Stands between the TLS layer of the event loop and a connection, so that nothing is lost that has arrived.

The TLS layers of asyncio and uvloop end a connection as soon as the client does, in both directions, and they drop what
they have decrypted by then and have not delivered, because reading is paused or the buffer was too small. Here all that
arrives is taken from the layer at once. What its connection does not read now is kept, and the socket under the TLS
layer is not read meanwhile, so that this is never more than one read of it. The end is told when all before it was
read. A connection that has requests to carry out then stays until it closes itself; what it writes goes to nobody.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

RECEIVED_BYTES = 320 * 1024
"""More than the loops read from a socket at once."""


class TlsConnection(asyncio.Transport, asyncio.BufferedProtocol):
    """The protocol of a TLS layer, and the transport of the connection's own protocol.

    `socket_transport` is that of the encrypted bytes. `received` is memory that the connections of a server share.
    """

    def __init__(
        self, protocol: asyncio.BufferedProtocol, socket_transport: asyncio.Transport, received: memoryview
    ) -> None:
        super().__init__()
        self._protocol = protocol
        self._socket_transport = socket_transport
        self._received = received
        self._loop = asyncio.get_running_loop()
        self._tls: asyncio.Transport | None = None
        self._peername = socket_transport.get_extra_info("peername")
        self._kept = b""
        """What was received and not read yet."""
        self._is_paused = True  # until the connection is made
        self._has_ended = False  # the client sends no more
        self._is_lost = False  # there is no TLS layer any more
        self._is_closing = False
        self._is_end_told = False  # by `eof_received`
        self._is_loss_told = False

    def begin(self, tls: asyncio.Transport) -> None:
        """The handshake is done: make the connection. `tls` takes what is to be encrypted."""
        self._tls = tls
        self._is_paused = False
        self._protocol.connection_made(self)
        if self._is_lost and self._is_closing:  # it was reset since the handshake
            self._loop.call_soon(self._tell_loss, None)
        else:
            self._loop.call_soon(self._go_on)

    # -- called by the TLS layer --

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where it decrypts to."""
        return self._received

    def buffer_updated(self, nbytes: int) -> None:
        """Pass on what was decrypted, as far as it is read now."""
        if self._is_closing:
            return  # what stops the socket now would keep the client's close_notify from the layer
        if self._kept or self._is_paused:
            self._kept += bytes(self._received[:nbytes])
            self._read_socket(False)
        else:
            self._pass_on(self._received[:nbytes])

    def eof_received(self) -> None:
        """The client has ended the connection by the rules of TLS. The layer closes it now."""
        self._has_ended = True
        self._tell_end_if_due()

    def connection_lost(self, exc: Exception | None) -> None:
        """The layer has closed the connection, or the client has ended it without a word."""
        self._is_lost = True
        if self._is_closing or exc is not None:
            self._tell_loss(exc)
        else:
            self._has_ended = True
            self._tell_end_if_due()

    def pause_writing(self) -> None:
        """The client does not read."""
        if not self._is_loss_told:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """It does again."""
        if not self._is_loss_told:
            self._protocol.resume_writing()

    # -- called by the connection --

    def pause_reading(self) -> None:
        """Pass on nothing from now on, also not what is being passed on."""
        self._is_paused = True
        self._read_socket(False)

    def resume_reading(self) -> None:
        """Pass on what was kept, and what comes."""
        if self._is_paused:
            self._is_paused = False
            self._loop.call_soon(self._go_on)

    def is_reading(self) -> bool:
        """Whether what comes is passed on."""
        return not self._is_paused

    def write(self, data: Any) -> None:
        """Send this, if there is still somebody to take it."""
        if self._tls is not None and not self._has_ended:
            self._tls.write(data)

    def writelines(self, list_of_data: Any) -> None:
        """Send all of these."""
        if self._tls is not None and not self._has_ended:
            self._tls.writelines(list_of_data)

    def close(self) -> None:
        """Send what was written, and close."""
        self._end(is_abort=False)

    def abort(self) -> None:
        """Close at once."""
        self._end(is_abort=True)

    def is_closing(self) -> bool:
        """Whether the connection has closed it. The client may have ended it before."""
        return self._is_closing

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """As for other transports."""
        if name == "peername":
            return self._peername  # also when the socket is closed already
        return default if self._tls is None else self._tls.get_extra_info(name, default)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """As for other transports."""
        if self._tls is not None and not self._is_lost:
            self._tls.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        """As for other transports."""
        return 0 if self._tls is None or self._has_ended else self._tls.get_write_buffer_size()

    # ----------------------------------------------------------------

    def _pass_on(self, received: memoryview) -> None:
        """Pass it on until the connection pauses that; the rest is kept."""
        protocol, position, size_bytes = self._protocol, 0, len(received)
        while position < size_bytes and not self._is_paused and not self._is_closing:
            buffer = cast(memoryview, protocol.get_buffer(size_bytes - position))
            passed = min(len(buffer), size_bytes - position)
            buffer[:passed] = received[position : position + passed]
            position += passed
            protocol.buffer_updated(passed)
        if not self._is_closing:
            self._kept = bytes(received[position:])

    def _go_on(self) -> None:
        if self._is_paused or self._is_closing:
            return
        if self._kept:
            kept, self._kept = self._kept, b""
            self._pass_on(memoryview(kept))
        if not self._is_paused and not self._is_closing:
            self._read_socket(True)
            self._tell_end_if_due()

    def _read_socket(self, is_read: bool) -> None:
        transport = self._socket_transport
        if self._is_lost or transport.is_closing():
            return
        if is_read:
            transport.resume_reading()
        else:
            transport.pause_reading()

    def _tell_end_if_due(self) -> None:
        if (
            self._has_ended
            and not self._kept
            and not self._is_paused
            and not self._is_end_told
            and not self._is_closing
        ):
            self._is_end_told = True
            if not self._protocol.eof_received():
                self.close()

    def _end(self, *, is_abort: bool) -> None:
        tls, was_closing, self._is_closing = self._tls, self._is_closing, True
        self._kept = b""
        if tls is None or self._is_lost:
            self._loop.call_soon(self._tell_loss, None)
        elif is_abort:
            tls.abort()
        elif not was_closing:
            self._read_socket(True)  # for the client's close_notify
            tls.close()

    def _tell_loss(self, error: Exception | None) -> None:
        self._is_closing = True
        self._kept = b""
        if not self._is_loss_told and self._tls is not None:
            self._is_loss_told = True
            self._protocol.connection_lost(error)
