"""An administrator in the simulator who raises and lowers `transaction.version` under load (KIP-890, KIP-584).

Every level reads what the others wrote, so transactions that are open during a change must end as at any other time.
"""

from __future__ import annotations

import asyncio

from .....cluster.client.client_errors import ClientError, RefusedError
from .....cluster.client.cluster_client import ClusterClient
from .....cluster.client.feature_client import set_features
from .....controller.metadata.features import TRANSACTION_VERSION
from .....controller.metadata.metadata_image import TRANSACTION_VERSION_FEATURE
from .....wire.errors import ErrorCode
from ..clients import ClientContext

_TIMEOUT_S = 2.0
_RETRY_PAUSE_S = 0.1
_PAUSE_S = 0.6


class TransactionVersionChanges:
    """Changes the level until `stop`; at the end it is the highest. A `Workload`."""

    name = "transaction versions"

    def __init__(self, context: ClientContext) -> None:
        self._rng = context.rng
        self._client = ClusterClient(context.bootstrap, client_id=self.name, timeout_s=_TIMEOUT_S)
        self._level = TRANSACTION_VERSION
        self._is_stopping = False
        self._is_done = False

    def stop(self) -> None:
        """See `Workload`."""
        self._is_stopping = True

    async def run(self) -> None:
        """See `Workload`."""
        while not self._is_stopping:
            await asyncio.sleep(self._rng.expovariate(1 / _PAUSE_S))
            others = [level for level in range(TRANSACTION_VERSION + 1) if level != self._level]
            await self._finalize(self._rng.choice(others))
        if self._level < TRANSACTION_VERSION:
            await self._finalize(TRANSACTION_VERSION)
        self._is_done = True

    def why_not_settled(self) -> str | None:
        """See `Workload`."""
        return None if self._is_done else f"level {self._level} is not in force"

    def check(self) -> None:
        """See `Workload`: the clients judge what they see."""

    async def _finalize(self, level: int) -> None:
        """Request the level until an answer says that it is finalized."""
        is_down, self._level = level < self._level, level
        while True:
            try:
                await set_features(self._client, {TRANSACTION_VERSION_FEATURE: level}, downgrade=is_down, dry_run=False)
            except RefusedError as error:
                if error.code == ErrorCode.INVALID_UPDATE_VERSION:
                    raise
            except ClientError:
                pass
            else:
                return
            await asyncio.sleep(_RETRY_PAUSE_S)
