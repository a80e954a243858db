"""Requests to coordinators of groups or of transactional ids, which may move to another broker at any time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any

from ....wire.api_keys import ApiKey
from ....wire.client import ConnectionLostError, RequestTimedOutError
from ....wire.codec import Struct
from ....wire.errors import ErrorCode
from ..access.needed_rights import Asked
from ..client_errors import ClientError, RefusedError, is_retriable
from ..cluster_client import NO_ANSWER, ClusterClient
from ..peer_protocol import no_answer_reason

_FIND_COORDINATOR_VERSION = 4
_RETRY_PAUSE_S = 0.1
_AGAIN = "try again in a moment; if it stays so, raftwerk doctor shows why"
MOVED = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)
"""The codes of a broker that does not coordinate the key, or not yet."""


class CoordinatorType(Enum):
    """What is coordinated. The value is the key type of FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1

    @property
    def noun(self) -> str:
        """What a key is, in sentences."""
        return "group" if self is CoordinatorType.GROUP else "transactional id"


class CoordinatorRequests:
    """Finds the coordinators of keys of one type, and asks them.

    A request is repeated for `timeout_s` seconds, by default the time-out of the client, while the coordinator moves,
    is loading, or does not answer. The time for which a quota throttles the client does not count.
    """

    def __init__(self, client: ClusterClient, kind: CoordinatorType, timeout_s: float | None = None) -> None:
        self._client = client
        self._type = kind
        self._timeout_s = timeout_s
        self._coordinators: dict[str, int] = {}

    async def ask(
        self,
        key: str,
        api: ApiKey,
        version: int,
        fields: Mapping[str, Any],
        codes_of: Callable[[Struct], Iterable[int]],
        on_no_answer: Callable[[], None] | None = None,
    ) -> Struct:
        """Ask the coordinator of a key. `codes_of` finds the error codes in an answer.

        It is asked again, too, while it still ends the transaction before. All other errors are left in the answer.
        `on_no_answer` is called for each that may have got the request, and have done something, but gave no answer.
        """
        deadline = self._deadline()
        what = f"{self._type.noun} {key}"
        is_again = False
        while True:
            coordinator = "its coordinator"
            try:
                node_id = await self._find(key, api, asks_another=is_again)
                coordinator = f"its coordinator, {self._client.broker_text(node_id)},"
                answer = await self._client.request_node(node_id, api, version, fields)
            except NO_ANSWER as error:
                if on_no_answer is not None and isinstance(error, ConnectionLostError | RequestTimedOutError):
                    on_no_answer()
                reason = no_answer_reason(error)
                self._coordinators.pop(key, None)
            else:
                codes = set(codes_of(answer))
                if codes & MOVED:
                    reason = f"is still loading its {self._type.noun}s, or has moved"
                    self._coordinators.pop(key, None)
                elif ErrorCode.CONCURRENT_TRANSACTIONS in codes:
                    reason = "has not ended the transaction before"
                else:
                    return answer
            if self._client.throttling.unthrottled_time() > deadline:
                raise ClientError(f"{what}: {coordinator} {reason}; {_AGAIN}")
            is_again = True
            await asyncio.sleep(_RETRY_PAUSE_S)

    async def _find(self, key: str, purpose: ApiKey, *, asks_another: bool) -> int:
        if key in self._coordinators:
            return self._coordinators[key]
        deadline = self._deadline()
        fields = {"key_type": self._type.value, "coordinator_keys": [key]}
        while True:
            answer = await self._client.request(
                ApiKey.FIND_COORDINATOR, _FIND_COORDINATOR_VERSION, fields, asks_another=asks_another
            )
            row = answer.coordinators[0]
            if not row.error_code:
                await self._client.metadata([])
                self._coordinators[key] = row.node_id
                return int(row.node_id)
            if not is_retriable(row.error_code) or self._client.throttling.unthrottled_time() > deadline:
                asked = Asked(purpose, group=key, transactional_id=key)
                raise RefusedError(row.error_code, f"{self._type.noun} {key}", row.error_message, asked=asked)
            asks_another = True
            await asyncio.sleep(_RETRY_PAUSE_S)

    def _deadline(self) -> float:
        timeout_s = self._client.timeout_s if self._timeout_s is None else self._timeout_s
        return self._client.throttling.unthrottled_time() + timeout_s
