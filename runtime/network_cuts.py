"""Cuts between nodes, for tests: what a node connects to falls silent, as when a cable is pulled.

A node opens every connection to a peer itself, so it is enough to cut those: told of the peers' addresses, all nodes of
one side do so, and nothing passes in either direction. As with a real cut nothing is lost at once: writes wait, reads
stop, a connect hangs until its time-out, a close is not seen by the peer; after `heal` everything goes on. Clients are
not concerned: they open their connections themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, TypeAlias

Address: TypeAlias = tuple[str, int]


class Links:
    """The outgoing connections of a process. Made once, on the running loop, before the first of them."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self._loop = loop
        self._connect = loop.create_connection
        self._cut: frozenset[Address] = frozenset()
        self._open: dict[int, _Link] = {}
        self._opened = 0
        self._changed = loop.create_future()
        loop.create_connection = self._create_connection  # type: ignore[method-assign,assignment]

    def cut(self, addresses: Iterable[Address]) -> None:
        """Cut the connections to these addresses, and no others: nothing heals."""
        self._cut = frozenset(addresses)
        for link in list(self._open.values()):
            link.set_cut(link.address in self._cut)
        self._changed.set_result(None)
        self._changed = self._loop.create_future()

    async def _create_connection(self, factory: Any, host: str, port: int, **options: Any) -> Any:
        while (host, port) in self._cut:
            await asyncio.shield(self._changed)
        link = _Link((host, port))

        def made() -> Any:
            protocol = factory()
            connected, lost = protocol.connection_made, protocol.connection_lost
            protocol.connection_made = lambda transport: connected(link.over(transport))
            protocol.connection_lost = lambda error: (self._open.pop(number, None), lost(error))
            return protocol

        self._opened += 1
        number = self._opened
        self._open[number] = link
        try:
            _, protocol = await self._connect(made, host, port, **options)
        except BaseException:
            self._open.pop(number, None)
            raise
        link.set_cut(link.address in self._cut)
        return link, protocol


class _Link:
    """A transport that can fall silent."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._transport: Any = None
        self._is_cut = False
        self._waiting: list[bytes] = []
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
        waiting, self._waiting = self._waiting, []
        self._transport.writelines(waiting)
        if self._is_closed:
            self._transport.close()
        else:
            self._transport.resume_reading()

    def write(self, data: Any) -> None:
        self.writelines([data])

    def writelines(self, parts: Any) -> None:
        if self._is_cut:
            self._waiting += [bytes(part) for part in parts]
        else:
            self._transport.writelines(parts)

    def close(self) -> None:
        self._is_closed = True
        if not self._is_cut:
            self._transport.close()

    abort = close

    def is_closing(self) -> bool:
        return self._is_closed or self._transport.is_closing()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
