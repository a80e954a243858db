"""Faults of the network between nodes, for tests and rehearsals: connections fall silent, or are slow.

A node opens every connection to a peer itself, so it is enough that all nodes of one side cut their outgoing
connections to the addresses of the other side: nothing passes in either direction then. As with a real cut, nothing is
lost at once: writes wait, reads stop, a connect hangs until its time-out, and the peer does not see a close. All of
that continues when the cut is healed. On a slow connection each write is sent later, so each request takes as much
longer. Connections that clients opened are not affected.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

Address: TypeAlias = tuple[str, int]


class NetworkFaults:
    """The outgoing connections of a process. It is made once, on the running loop, before the first connection."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self._loop = loop
        self._connect = loop.create_connection
        self._cut: frozenset[Address] = frozenset()
        self._delays_s: Mapping[Address, float] = {}
        self._open: dict[int, _Link] = {}
        self._opened = 0
        self._changed = loop.create_future()
        loop.create_connection = self._create_connection  # type: ignore[method-assign,assignment]

    def cut(self, addresses: Iterable[Address]) -> None:
        """Cut the connections to these addresses, and heal all others."""
        self._cut = frozenset(addresses)
        for link in list(self._open.values()):
            link.set_cut(link.address in self._cut)
        self._changed.set_result(None)
        self._changed = self._loop.create_future()

    def slow(self, delays_s: Mapping[Address, float]) -> None:
        """Send what is written to these addresses so many seconds later, and to all others at once."""
        self._delays_s = dict(delays_s)
        for link in self._open.values():
            link.delay_s = self._delays_s.get(link.address, 0.0)

    async def _create_connection(self, factory: Any, host: str, port: int, **options: Any) -> Any:
        while (host, port) in self._cut:
            await asyncio.shield(self._changed)
        link = _Link(self._loop, (host, port))

        def made() -> Any:
            protocol = factory()  # of a class without `__slots__`
            connected, lost = protocol.connection_made, protocol.connection_lost
            protocol.connection_made = lambda transport: connected(link.over(transport))
            protocol.connection_lost = lambda error: (self._open.pop(number, None), lost(error))
            return protocol

        self._opened += 1
        number = self._opened
        self._open[number] = link
        link.delay_s = self._delays_s.get(link.address, 0.0)
        try:
            _, protocol = await self._connect(made, host, port, **options)
        except BaseException:
            self._open.pop(number, None)
            raise
        link.set_cut(link.address in self._cut)
        return link, protocol


class _Link:
    """A transport that can fall silent, or be late."""

    def __init__(self, loop: asyncio.AbstractEventLoop, address: Address) -> None:
        self.address = address
        self.delay_s = 0.0
        """How much later what is written from now on is sent."""
        self._loop = loop
        self._transport: Any = None
        self._is_cut = False
        self._waiting: deque[tuple[float, bytes]] = deque()
        """What is not sent yet, with the times when it may be sent: what was written first is sent first."""
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    def over(self, transport: Any) -> _Link:
        self._transport = transport
        return self

    def set_cut(self, is_cut: bool) -> None:
        if is_cut == self._is_cut or self._transport is None:
            return
        self._is_cut = is_cut
        if is_cut:
            self._transport.pause_reading()
            return
        if not self._is_closed:
            self._transport.resume_reading()
        self._send_what_is_due()

    def write(self, data: Any) -> None:
        self.writelines([data])

    def writelines(self, parts: Any) -> None:
        if not (self._is_cut or self.delay_s or self._waiting):
            self._transport.writelines(parts)
            return
        due_s = self._loop.time() + self.delay_s
        self._waiting.extend((due_s, bytes(part)) for part in parts)
        if self._timer is None:
            self._send_what_is_due()

    def _send_what_is_due(self) -> None:
        self._timer = None
        if self._is_cut:
            return
        due = []
        while self._waiting and self._waiting[0][0] <= self._loop.time():
            due.append(self._waiting.popleft()[1])
        if due:
            self._transport.writelines(due)
        if self._waiting:
            self._timer = self._loop.call_at(self._waiting[0][0], self._send_what_is_due)
        elif self._is_closed:
            self._transport.close()

    def close(self) -> None:
        self._is_closed = True
        if not self._is_cut and not self._waiting:
            self._transport.close()

    def abort(self) -> None:
        self._waiting.clear()
        self.close()

    def is_closing(self) -> bool:
        return self._is_closed or self._transport.is_closing()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
