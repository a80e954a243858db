"""An administrator in the simulator that removes the registrations of brokers that are alive.

An administrator may be wrong about a broker. The broker hears that its registration is gone, registers again, and its
replicas come back into their ISRs.
"""

from __future__ import annotations

from ....wire.api_keys import ApiKey
from ....wire.errors import ErrorCode
from ..invariants.invariant_broken import InvariantBroken
from .administrator import RepeatedChange, RetryingAdmin
from .clients import ClientContext

_UNREGISTER = 0


class RegistrationChanges(RepeatedChange):
    """Removes the registration of one broker after the other."""

    name = "unregistrations"
    mean_pause_s = 1.2

    def __init__(self, context: ClientContext, brokers: list[int]) -> None:
        super().__init__(context)
        self._brokers = brokers
        self._admin = RetryingAdmin(context, self.name)

    async def change(self) -> None:
        """Remove one registration."""
        fields = {"broker_id": self.context.rng.choice(self._brokers)}
        code = await self._admin.ask(ApiKey.UNREGISTER_BROKER, _UNREGISTER, fields, lambda answer: answer.error_code)
        if code not in (ErrorCode.NONE, ErrorCode.BROKER_ID_NOT_REGISTERED):
            raise InvariantBroken("a registration may be removed", f"{fields}: {code.name}")
