"""How many connections a broker takes: `max.connections` and `max.connections.per.ip`, as they are now.

Both may change at run time; what is open stays open. Kafka stops to accept when all are taken, and closes at once what
one address has too many of; here both are closed at once, which a client sees sooner. Where brokers have a listener of
their own, that one is never refused for `max.connections`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from ..controller.broker_configs import DYNAMIC_BROKER_CONFIGS
from ..controller.image import BROKER_RESOURCE, MetadataImage

ALL_KEY = "max.connections"
PER_IP_KEY = "max.connections.per.ip"


class ConnectionQuota:
    """Counts the connections of all listeners of a broker; `image` is the node's live one."""

    def __init__(self, image: MetadataImage, broker_id: int, values: Mapping[str, str]) -> None:
        self._image = image
        self._broker = str(broker_id)
        self._values = values
        self._by_peer: Counter[str] = Counter()

    def refusal(self, peer: str, *, is_protected: bool) -> str | None:
        """Why one more connection of this address is too much, or None."""
        per_ip, limit = self._limit(PER_IP_KEY), self._limit(ALL_KEY)
        if self._by_peer[peer] >= per_ip:
            return f"it has {per_ip} connections, as many as {PER_IP_KEY} allows"
        if not is_protected and self._by_peer.total() >= limit:
            return f"there are {limit} connections, as many as {ALL_KEY} allows"
        return None

    def opened(self, peer: str) -> None:
        self._by_peer[peer] += 1

    def closed(self, peer: str) -> None:
        self._by_peer[peer] -= 1
        if self._by_peer[peer] <= 0:
            del self._by_peer[peer]

    def _limit(self, key: str) -> int:
        for scope in (self._broker, ""):
            value = self._image.configs.get((BROKER_RESOURCE, scope), {}).get(key)
            if value is not None:
                return int(value)
        return int(self._values.get(key, DYNAMIC_BROKER_CONFIGS[key].default))
