"""An administrator's client in the simulator: it asks any broker until it has a definite answer.

A request whose answer is lost may still be carried out later, even after others. So "already exists" to the first
create, or "unknown topic" to the first delete, proves a bug only while no answer was ever lost.
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
"""What a controller says that knows no unfenced broker yet."""
PAUSE_S = 0.15
"""The mean pause between an administrator's requests."""
_RETRY_S = 0.1
TIMEOUT_S = 3.0


class AdminClient:
    """Asks any broker until it has an answer that settles the matter."""

    def __init__(self, context: ClientContext, name: str) -> None:
        self.cluster = ClusterClient(context.bootstrap, client_id=name, timeout_s=TIMEOUT_S)
        self.in_doubt = False
        """Whether an answer was lost, ever."""

    async def ask(
        self, api: ApiKey, version: int, fields: Mapping[str, Any], code_of: Callable[[Struct], int]
    ) -> ErrorCode:
        """The first code that is not temporary."""
        while True:
            try:
                code = code_of(await self.cluster.request(api, version, {**fields, "timeout": 2000}))
            except ClientError:
                self.in_doubt = True
            else:
                self.in_doubt = self.in_doubt or code == ErrorCode.REQUEST_TIMED_OUT
                if code in _FINAL or not (code in _NOT_YET or is_retriable(code)):
                    return ErrorCode(code)
            await asyncio.sleep(_RETRY_S)

    async def set(self, kind: int, name: str, key: str, value: str | None) -> ErrorCode:
        """Give a setting of a topic or a broker (`kind`) another value; None: its default."""
        change = {"name": key, "config_operation": _DELETE if value is None else _SET, "value": value}
        resource = {"resource_type": kind, "resource_name": name, "configs": [change]}
        return await self.ask(
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            _ALTER_CONFIGS,
            {"resources": [resource], "validate_only": False},
            lambda answer: answer.responses[0].error_code,
        )
