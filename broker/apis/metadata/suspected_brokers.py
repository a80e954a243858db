"""Brokers that may just have died: a connection to them is lost, and the metadata do not show them fenced yet.

When a leader dies, its clients ask another broker for metadata within one or two milliseconds, before the controller
has elected a new leader. librdkafka believes a response with the old leader and asks again only a second later. So a
Metadata request about a suspected leader waits until the metadata show the broker fenced, a new connection to it
succeeds, or a second has passed.

While a process dies, connections of its clients may break some milliseconds before those of other brokers. So when a
client that is connected for a while asks about a partition that another broker leads, the answer waits 20 ms first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, KeysView

from ....controller.metadata.metadata_image import MetadataDelta, MetadataImage

SUSPICION_S = 1.0
REFRESH_DELAY_S = 0.02
NEW_CONNECTION_S = 1.0
"""The Metadata requests of a connection younger than this are answered without that delay."""


class SuspectedBrokers:
    """The suspected brokers, and the requests that wait until a suspicion ends."""

    def __init__(self) -> None:
        self._since: dict[int, float] = {}
        self._cleared: asyncio.Future[None] | None = None

    def on_connection_lost(self, broker_id: int, image: MetadataImage, now: float) -> None:
        """A connection to the broker was lost. A fenced broker, or one that shuts down, is not suspected."""
        if image.is_active(broker_id):
            self._since.setdefault(broker_id, now)

    def on_connected(self, broker_id: int) -> None:
        """The broker accepted a connection, so it is alive."""
        self._clear(broker_id)

    def on_metadata(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """End the suspicion of brokers that the metadata show fenced or gone."""
        for broker_id in delta.changed_brokers:
            if not image.is_active(broker_id):
                self._clear(broker_id)

    def includes_any(self, leaders: Iterable[int], now: float) -> bool:
        """Whether one of `leaders` is suspected."""
        return not self.ids(now).isdisjoint(leaders)

    def ids(self, now: float) -> KeysView[int]:
        """The suspected brokers."""
        if self._since:
            self._since = {one: since for one, since in self._since.items() if since + SUSPICION_S > now}
        return self._since.keys()

    async def wait(self, now: float) -> None:
        """Return when a suspicion ends, or when the oldest has lasted a second."""
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
