"""Limits of connections: by number, by address, and of new ones a second for the node and for an address.

The limits may change at run time; open connections stay open. At `max.connections` Kafka stops accepting; here a
further connection is closed at once, as for the limit by address, so that the client notices sooner. Connections beyond
the creation rate are accepted, but their TLS handshakes and requests are delayed, as Kafka delays accepting (KIP-612).
There they wait in the listener's backlog, which has an end, too; here those are closed that would wait for longer than
their clients do. On the inter-broker listener only the limit by address holds.
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
DELAY_MAX_S = 10.0
"""A connection that would be delayed by more is closed. Clients wait for 30 seconds (`request.timeout.ms`)."""

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
        self._starts = float("inf")
        """How many connections may start now; negative for those that start later, one after the other."""
        self._counted_at_s = 0.0
        self._rates = ConnectionRates(image, window)

    def refusal(self, peer: str, now_s: float, *, is_protected: bool) -> str | None:
        """Why one more connection from this address is refused; None where it is accepted."""
        key, per_ip = self._limit_of(peer)
        if self._by_peer[peer] >= per_ip:
            return f"it has {per_ip} connections, as many as {key} allows"
        if is_protected:
            return None
        limit = self._number(ALL_KEY)
        if self._by_peer.total() >= limit:
            return f"there are {limit} connections, as many as {ALL_KEY} allows"
        rate = self._number(RATE_KEY)
        if rate == 0:
            return f"{RATE_KEY} is 0"
        if self._refill(now_s, rate) < 1 - DELAY_MAX_S * rate:
            return f"new connections would have to wait for more than {DELAY_MAX_S:g} s by {RATE_KEY}={rate}"
        return None

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
        rate = self._number(RATE_KEY)
        self._starts = self._refill(now_s, rate) - 1
        return max(-self._starts / rate, 0.0)

    def closes_after_s(self, peer: str, now_s: float) -> float:
        """After how many seconds the new connection is closed, since its address opens too many; 0: it is kept."""
        return self._rates.throttle_ms(peer, int(now_s * 1000)) / 1000

    def _refill(self, now_s: float, rate: int) -> float:
        """What waits counts in connections, so that it waits by the rate of the moment."""
        starts = self._starts + (now_s - self._counted_at_s) * rate
        self._starts = min(max(starts, -DELAY_MAX_S * rate), BURST_S * rate)
        self._counted_at_s = now_s
        return self._starts

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
