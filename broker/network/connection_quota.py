"""Limits of connections: by number, by address, and of new ones a second for the node and for an address.

The limits may change at run time; open connections stay open. At `max.connections` Kafka stops accepting; here a
further connection is closed at once, as for the limit by address, so that the client notices sooner. Connections beyond
the creation rate are accepted, but their requests are delayed, as Kafka delays accepting (KIP-612). On the inter-broker
listener only the limit by address holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from ipaddress import ip_address

from ...controller.configs.broker_configs import connections_by_address
from ...controller.configs.effective_configs import broker_value
from ...controller.metadata.metadata_image import MetadataImage
from ..quotas.connection_rates import ConnectionRates
from ..quotas.sampled_rate import DEFAULT_WINDOW, QuotaWindow

ALL_KEY = "max.connections"
PER_IP_KEY = "max.connections.per.ip"
OVERRIDES_KEY = "max.connections.per.ip.overrides"
RATE_KEY = "max.connection.creation.rate"
BURST_S = 10.0
"""The rate is an average over this time: Kafka's quota.window.num times quota.window.size.seconds."""

_overrides = lru_cache(maxsize=4)(connections_by_address)


class ConnectionQuota:
    """Counts the connections of all listeners of a broker. `image` is the node's live metadata image."""

    def __init__(
        self, image: MetadataImage, broker_id: int, values: Mapping[str, str], window: QuotaWindow = DEFAULT_WINDOW
    ) -> None:
        self._image = image
        self._broker_id = broker_id
        self._values = values
        self._by_peer: Counter[str] = Counter()
        self._next_start_s = float("-inf")
        self._rates = ConnectionRates(image, window)

    def refusal(self, peer: str, *, is_protected: bool) -> str | None:
        """Why one more connection from this address is refused; None where it is accepted."""
        key, per_ip = self._limit_of(peer)
        if self._by_peer[peer] >= per_ip:
            return f"it has {per_ip} connections, as many as {key} allows"
        if is_protected:
            return None
        limit = self._number(ALL_KEY)
        if self._by_peer.total() >= limit:
            return f"there are {limit} connections, as many as {ALL_KEY} allows"
        return f"{RATE_KEY} is 0" if self._number(RATE_KEY) == 0 else None

    def opened(self, peer: str) -> None:
        """Count a connection."""
        self._by_peer[peer] += 1

    def closed(self, peer: str) -> None:
        """Count a connection no more."""
        self._by_peer[peer] -= 1
        if self._by_peer[peer] <= 0:
            del self._by_peer[peer]

    def delay_s(self, now_s: float) -> float:
        """Count one more accepted connection; returns how long its requests are delayed, in seconds."""
        interval_s = 1 / self._number(RATE_KEY)
        self._next_start_s = max(self._next_start_s, now_s - BURST_S) + interval_s
        return max(self._next_start_s - now_s, 0.0)

    def closes_after_s(self, peer: str, now_s: float) -> float:
        """After how many seconds the new connection is closed, since its address opens too many; 0: it is kept."""
        return self._rates.throttle_ms(peer, int(now_s * 1000)) / 1000

    def _limit_of(self, peer: str) -> tuple[str, int]:
        overrides = _overrides(self._value(OVERRIDES_KEY))
        if overrides:
            try:
                return OVERRIDES_KEY, overrides[str(ip_address(peer))]
            except (KeyError, ValueError):
                pass
        return PER_IP_KEY, self._number(PER_IP_KEY)

    def _number(self, key: str) -> int:
        return int(self._value(key))

    def _value(self, key: str) -> str:
        return broker_value(self._image, self._broker_id, self._values, key)
