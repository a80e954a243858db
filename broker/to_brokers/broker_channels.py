"""Connections to other brokers, and to this one, for requests of the broker itself.

One connection to each broker is made on first use, and again after a loss, with a back-off (`wire.client.NodeChannel`).
All requests to a broker share it. When the metadata say that a broker is fenced or gone, its connection is closed, so
that no request waits for a node that is dead or cut off.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from ...controller.metadata.metadata_image import MetadataDelta, MetadataImage
from ...wire.api_keys import ApiKey
from ...wire.client import Connection, ConnectionLostError, NodeChannel
from ...wire.codec import Struct


class Channels(Protocol):
    """Sends requests to brokers; `BrokerChannels` does it over connections."""

    async def request(self, broker_id: int, api_key: ApiKey, version: int, fields: Any, *, timeout_ms: int) -> Struct:
        """The broker's response. Raises `OSError`."""
        ...


class BrokerChannels:
    """`connect` makes a connection to a broker by id; it may raise `OSError`."""

    def __init__(self, connect: Callable[[int], Awaitable[Connection]], rng: random.Random) -> None:
        self._connect = connect
        self._rng = rng
        self._channels: dict[int, NodeChannel] = {}
        self._is_closed = False

    async def request(self, broker_id: int, api_key: ApiKey, version: int, fields: Any, *, timeout_ms: int) -> Struct:
        """The broker's response.

        Raises `OSError` when there is no connection, when it is lost before the response, or after `timeout_ms`: the
        broker may or may not have processed the request then.
        """
        if self._is_closed:
            raise ConnectionLostError("this broker stops")
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        channel = self._channels.get(broker_id)
        if channel is None:
            channel = self._channels[broker_id] = NodeChannel(broker_id, self._connect, rng=self._rng)
        async with asyncio.timeout_at(deadline):
            await channel.connection()
        return await channel.request(api_key, version, fields, timeout_s=max(deadline - loop.time(), 0.001))

    def on_metadata(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Close the connections to brokers that are fenced or gone."""
        for broker_id in delta.changed_brokers:
            broker = image.brokers.get(broker_id)
            if broker is None or broker.fenced:
                channel = self._channels.pop(broker_id, None)
                if channel is not None:
                    channel.close()

    def close(self) -> None:
        """Close all connections, and make no more."""
        self._is_closed = True
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()
