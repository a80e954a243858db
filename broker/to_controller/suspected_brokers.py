"""Brokers that may just have died: their connection broke, and the controller has not said anything yet.

A client whose leader dies asks another broker for metadata within a millisecond or two, sooner than the controller can
elect. Told of the old leader once more, librdkafka believes it and looks again only at its next scan, a second later.
So a Metadata request that concerns a suspect waits: until the metadata says that it is dead, until it is reached again,
or until a second has passed, whichever comes first.

A process that is killed takes some milliseconds to fall apart, and its clients' connections may break before ours. So a
client that has been here for a while, and asks again about a partition that another broker leads, waits a little first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from ...controller.metadata.metadata_image import MetadataDelta, MetadataImage

SUSPICION_S = 1.0
REFRESH_DELAY_S = 0.02
NEWCOMER_S = 1.0
"""How long a connection's Metadata requests are answered at once."""


class SuspectedBrokers:
    """Who is suspected, and the requests that wait for it to be cleared up."""

    def __init__(self) -> None:
        self._since: dict[int, float] = {}
        self._cleared: asyncio.Future[None] | None = None

    def on_connection_lost(self, broker_id: int, image: MetadataImage, now: float) -> None:
        """The other side ended a connection. One that is fenced or shutting down is no surprise."""
        if image.is_active(broker_id):
            self._since.setdefault(broker_id, now)

    def on_connected(self, broker_id: int) -> None:
        """It accepted a connection, so it lives."""
        self._clear(broker_id)

    def on_metadata(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """What the controller says of a broker ends the doubt."""
        for broker_id in delta.changed_brokers:
            if not image.is_active(broker_id):
                self._clear(broker_id)

    def concern(self, leaders: Iterable[int], now: float) -> bool:
        """Whether one of `leaders` is suspected."""
        if not self._since:
            return False
        self._since = {one: since for one, since in self._since.items() if since + SUSPICION_S > now}
        return any(leader in self._since for leader in leaders)

    async def wait(self, now: float) -> None:
        """Return when a suspicion ends, one way or another."""
        loop = asyncio.get_running_loop()
        if self._cleared is None:
            self._cleared = loop.create_future()
        left_s = min(self._since.values(), default=now) + SUSPICION_S - now
        await asyncio.wait([self._cleared], timeout=max(0.0, left_s))

    def _clear(self, broker_id: int) -> None:
        if self._since.pop(broker_id, None) is None:
            return
        cleared, self._cleared = self._cleared, None
        if cleared is not None:
            cleared.set_result(None)
