"""Carries the leaders' wishes for another ISR to the controller: batched, one request in flight.

Of one partition only the newest wish waits. What was answered with an error that may pass, or not at all, is sent again
after a pause, as long as the leader still wants it: whether the controller has carried out a request without an answer
only its metadata tells, and until then the leader counts on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import islice
from uuid import UUID

from ...runtime.loop import TaskSet
from ...wire.errors import ErrorCode, ProtocolError, WireFormatError
from ..ports import AlterPartitionItem, AlterPartitionPort
from .leader_state import AlterPartitionResult

_ITEMS_MAX = 200
"""Of one request: the controller decides on all of it in one turn."""

Deliver = Callable[[AlterPartitionItem, AlterPartitionResult], bool]


class AlterPartitionManager:
    """`deliver` takes an answer to its partition and tells whether the same wish is to be sent again."""

    def __init__(self, send: AlterPartitionPort, deliver: Deliver, backoff_ms: int) -> None:
        self._send = send
        self._deliver = deliver
        self._backoff_s = backoff_ms / 1000
        self._waiting: dict[tuple[UUID, int], AlterPartitionItem] = {}
        self._tasks = TaskSet()
        self._running = False
        self._stopped = False

    def submit(self, item: AlterPartitionItem) -> None:
        """Send soon; wishes of the same moment go in one request."""
        if self._stopped:
            return
        self._waiting[(item.topic_id, item.topic_partition.partition)] = item
        if not self._running:
            self._running = True
            self._tasks.spawn(self._run(), name="isr changes")

    async def stop(self) -> None:
        """Send no more."""
        self._stopped = True
        self._waiting.clear()
        await self._tasks.cancel_all()

    async def _run(self) -> None:
        while self._waiting:
            items = list(islice(self._waiting.values(), _ITEMS_MAX))
            for item in items:
                del self._waiting[(item.topic_id, item.topic_partition.partition)]
            results = await self._exchange(items)
            again = [item for item, result in zip(items, results, strict=True) if self._deliver(item, result)]
            for item in again:
                self._waiting.setdefault((item.topic_id, item.topic_partition.partition), item)
            if again:
                await asyncio.sleep(self._backoff_s)
        self._running = False

    async def _exchange(self, items: Sequence[AlterPartitionItem]) -> Sequence[AlterPartitionResult]:
        try:
            results = await self._send(items)
        except (OSError, TimeoutError, ProtocolError, WireFormatError):
            results = ()
        if len(results) != len(items):
            return [AlterPartitionResult(ErrorCode.NETWORK_EXCEPTION)] * len(items)
        return results
