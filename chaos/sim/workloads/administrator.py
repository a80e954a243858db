"""An administrator in the simulator: a client that asks until it has a definite answer, and a loop of changes.

A request whose answer is lost may still be carried out later, even after other requests. So "already exists" for the
first create, or "unknown topic" for the first delete, proves a bug only while no answer was lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from ....cluster.client.client_errors import ClientError, is_retriable
from ....cluster.client.cluster_client import ClusterClient
from ....wire.api_keys import ApiKey
from ....wire.codec import Struct
from ....wire.errors import ErrorCode
from .clients import ClientContext

_ALTER_CONFIGS = 1
_SET, _DELETE = 0, 1
TOPIC, BROKER = 2, 4
"""Kinds of resources with settings."""
_FINAL = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,)
_NOT_YET = (ErrorCode.INVALID_REPLICATION_FACTOR,)
"""The answer of a controller that does not know an unfenced broker yet."""
PAUSE_S = 0.15
"""The mean pause between an administrator's changes."""
_RETRY_S = 0.1
TIMEOUT_S = 3.0


class RetryingAdmin:
    """Asks any broker, again and again, until an answer is definite."""

    def __init__(self, context: ClientContext, name: str) -> None:
        self.cluster = ClusterClient(context.bootstrap, client_id=name, timeout_s=TIMEOUT_S, probe_timeout_s=None)
        self.lost_answers = 0
        """How many requests had no answer, or one that leaves open whether they will be carried out."""

    async def ask(
        self,
        api: ApiKey,
        version: int,
        fields: Mapping[str, Any],
        code_of: Callable[[Struct], int],
        *,
        may_pass: tuple[ErrorCode, ...] = (),
    ) -> ErrorCode:
        """The first error code that is not temporary. `may_pass` are others that may not be there when asked again."""
        while True:
            try:
                code = code_of(await self.cluster.request(api, version, {**fields, "timeout": 2000}))
            except ClientError:
                self.lost_answers += 1
            else:
                self.lost_answers += code == ErrorCode.REQUEST_TIMED_OUT
                if code in _FINAL or not (code in (*_NOT_YET, *may_pass) or is_retriable(code)):
                    return ErrorCode(code)
            await asyncio.sleep(_RETRY_S)

    async def set(self, kind: int, name: str, key: str, value: str | None) -> ErrorCode:
        """Set a config of a topic or a broker (`kind`); None resets it to its default."""
        change = {"name": key, "config_operation": _DELETE if value is None else _SET, "value": value}
        resource = {"resource_type": kind, "resource_name": name, "configs": [change]}
        return await self.ask(
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            _ALTER_CONFIGS,
            {"resources": [resource], "validate_only": False},
            lambda answer: answer.responses[0].error_code,
        )


class RepeatedChange:
    """A `Workload` that makes changes of one kind, with random pauses between them, until it is stopped."""

    name = ""
    mean_pause_s = PAUSE_S

    def __init__(self, context: ClientContext) -> None:
        self.context = context
        self._stopping = False
        self._finished = False

    async def change(self) -> None:
        """Make one change. Raises `InvariantBroken` if the cluster answers what it must not."""
        raise NotImplementedError

    async def finish(self) -> None:
        """After the last change: bring the cluster into a state in which it can settle."""

    async def run(self) -> None:
        """Make changes until `stop`."""
        while not self._stopping:
            await asyncio.sleep(self.context.rng.expovariate(1 / self.mean_pause_s))
            await self.change()
        await self.finish()
        self._finished = True

    def stop(self) -> None:
        """Begin no new change."""
        self._stopping = True

    def why_not_settled(self) -> str | None:
        """See `Workload`."""
        return None if self._finished else "it still acts"

    def check(self) -> None:
        """By default nothing: the invariants of partitions and of the main load must hold whatever was changed."""
