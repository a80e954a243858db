"""Quotas that come, change and go in the simulator: throttled clients are late, and nothing of theirs is lost."""

from __future__ import annotations

from collections.abc import Mapping

from ....wire.api_keys import ApiKey
from ..invariants.invariant_broken import InvariantBroken
from .administrator import RepeatedChange, RetryingAdmin
from .clients import ClientContext

SETTINGS = {"quota.window.num": "2"}
"""Settings of the nodes: rates of the last two seconds, since a run takes some seconds."""
_ENTITIES: tuple[Mapping[str, str | None], ...] = (
    {"client-id": None},
    {"user": None},
    {"user": "ANONYMOUS"},
    {"user": None, "client-id": None},
)
_KEYS = ("producer_byte_rate", "consumer_byte_rate")
_RATE_MIN, _RATE_MAX = 300, 9_000
"""Bytes a second; clients of the main load produce about that much."""
_VERSION = 1


class QuotaChanges(RepeatedChange):
    """Sets quotas of all clients to rates that they exceed, and removes them."""

    name = "quotas"
    mean_pause_s = 0.3

    def __init__(self, context: ClientContext) -> None:
        super().__init__(context)
        self._admin = RetryingAdmin(context, self.name)

    async def change(self) -> None:
        """Set or remove one quota."""
        rng = self.context.rng
        rate = None if rng.random() < 0.2 else float(round(_RATE_MIN * (_RATE_MAX / _RATE_MIN) ** rng.random()))
        await self._alter(rng.choice(_ENTITIES), {rng.choice(_KEYS): rate})

    async def finish(self) -> None:
        """Remove all quotas."""
        for entity in _ENTITIES:
            await self._alter(entity, dict.fromkeys(_KEYS))

    async def _alter(self, entity: Mapping[str, str | None], quotas: Mapping[str, float | None]) -> None:
        rows = [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()]
        ops = [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in quotas.items()]
        fields = {"entries": [{"entity": rows, "ops": ops}], "validate_only": False}
        code = await self._admin.ask(
            ApiKey.ALTER_CLIENT_QUOTAS, _VERSION, fields, lambda answer: answer.entries[0].error_code
        )
        if code:
            raise InvariantBroken("a change of quotas that is right is made", f"{entity} {quotas}: {code.name}")
