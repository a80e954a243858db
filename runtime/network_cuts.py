"""Cuts of the network between nodes, for tests: connections fall silent, as when a cable is pulled.

A node opens every connection to a peer itself, so it is enough that all nodes of one side cut their outgoing
connections to the addresses of the other side: nothing passes in either direction then. As with a real cut, nothing is
lost at once: writes wait, reads stop, a connect hangs until its time-out, and the peer does not see a close. All of
that continues when the cut is healed. Connections that clients opened are not affected.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, TypeAlias

Address: TypeAlias = tuple[str, int]


class NetworkCuts:
    """The outgoing connections of a process. It is made once, on the running loop, before the first connection."""

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
        """Cut the connections to these addresses, and heal all others."""
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
            protocol = factory()  # of a class without `__slots__`
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
