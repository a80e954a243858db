"""`connection_creation_rate`: how many connections a second an address may open (KIP-612)."""

from __future__ import annotations

from ...controller.metadata.metadata_image import MetadataImage
from ...controller.security.client_quotas import CONNECTION_CREATION_RATE, IP, canonical_address
from .sampled_rate import QuotaWindow, RatesInUse


class ConnectionRates:
    """Measures the new connections of addresses that have a quota. `image` is the node's live metadata image."""

    def __init__(self, image: MetadataImage, window: QuotaWindow) -> None:
        self._image = image
        self._window = window
        self._rates: RatesInUse[str] = RatesInUse(window)

    def throttle_ms(self, peer: str, now_ms: int) -> int:
        """Count one more connection; returns after how many milliseconds it is to be closed, 0 to keep it.

        As in Apache Kafka, a connection that is closed does not count, and it waits for one sample's time at most.
        """
        limit = self._limit_of(peer)
        if limit is None:
            return 0
        rate = self._rates.use(peer, now_ms)
        rate.record(1, now_ms)
        throttle_ms = min(rate.throttle_ms(limit, now_ms), self._window.size_ms)
        if throttle_ms:
            rate.record(-1, now_ms)
        return throttle_ms

    def _limit_of(self, peer: str) -> float | None:
        quotas = self._image.client_quotas
        if not quotas:
            return None
        try:
            name: str | None = canonical_address(peer)
        except ValueError:
            name = None
        for entity in (((IP, name),), ((IP, None),)):
            limit = quotas.get(entity, {}).get(CONNECTION_CREATION_RATE)
            if limit is not None:
                return limit
        return None
