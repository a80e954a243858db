"""The limits of one kind, such as `producer_byte_rate`, of all clients."""

from __future__ import annotations

from .quota_entities import Bucket, Quotas, limit_of

LIMITS_MAX = 10_000
"""So many clients' limits are remembered; then they are looked up anew."""


class ClientLimits:
    """Finds the limit of a client, and remembers it until the quotas change."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.is_on = False
        """Whether anybody has a quota of this kind. If not, nothing is to be measured."""
        self._quotas: Quotas = {}
        self._limits: dict[tuple[str, str], tuple[float, Bucket] | None] = {}

    def on_change(self, quotas: Quotas) -> None:
        """These quotas hold from now on. What was measured stays."""
        self._quotas = quotas
        self._limits.clear()
        self.is_on = any(self.key in values for values in quotas.values())

    def limit(self, user: str, client_id: str) -> tuple[float, Bucket] | None:
        """The limit of a client in units a second, and its bucket; None where it has none."""
        asked = (user, client_id)
        try:
            return self._limits[asked]
        except KeyError:
            if len(self._limits) >= LIMITS_MAX:
                self._limits.clear()
            found = self._limits[asked] = limit_of(self._quotas, self.key, user, client_id)
            return found
