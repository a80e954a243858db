"""Writes of a consumer group that are not committed yet, and the requests that are answered when they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from ....wire.errors import ErrorCode
from ..effects import JoinResult, SyncResult
from .consumer_group_heartbeat import HeartbeatResult

Result: TypeAlias = HeartbeatResult | JoinResult | SyncResult


@dataclass(frozen=True, slots=True)
class Answer:
    """The result for the request that waits under `token`."""

    token: Any
    result: Result

    def failed(self, error: ErrorCode) -> Result:
        """The result where the write has failed."""
        if isinstance(self.result, JoinResult):
            return JoinResult(error, self.result.member_id)
        return type(self.result)(error)


@dataclass(frozen=True, slots=True, eq=False)
class PendingWrite:
    """One write. A request that changes nothing is answered with the last write, as it tells what that has changed."""

    answers: list[Answer]
