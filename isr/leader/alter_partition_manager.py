"""Sends the leaders' ISR proposals to the controller: batched, one AlterPartition request in flight.

Only the newest proposal of a partition waits. A proposal that got no answer, or an error that may pass, is sent again
after a pause if the leader still wants it. The controller may have carried out a request whose answer was lost; only
its metadata tells, and until then the leader assumes that it has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import islice
from uuid import UUID

from ...runtime.invariants import sometimes
from ...runtime.loop import TaskSet, report_error
from ...wire.errors import ErrorCode, ProtocolError, WireFormatError
from ..ports import AlterPartitionItem, AlterPartitionPort
from .leader_state import AlterPartitionResult

_ITEMS_MAX = 200
"""How many partitions one request has at most: the controller decides on it in one iteration of its loop."""

OnResult = Callable[[AlterPartitionItem, AlterPartitionResult], bool]
"""Takes the controller's answer to an item; true when the same item is to be sent again."""


class AlterPartitionManager:
    """Sends AlterPartition requests through `send`, one at a time."""

    def __init__(self, send: AlterPartitionPort, backoff_ms: int) -> None:
        self._send = send
        self._backoff_s = backoff_ms / 1000
        self._waiting: dict[tuple[UUID, int], tuple[AlterPartitionItem, OnResult]] = {}
        self._tasks = TaskSet()
        self._running = False
        self._stopped = False

    def submit(self, item: AlterPartitionItem, on_result: OnResult) -> None:
        """Send soon; proposals of the same loop iteration go in one request. `on_result` gets the answer."""
        if self._stopped:
            return
        self._waiting[_key(item)] = (item, on_result)
        if not self._running:
            self._running = True
            self._tasks.spawn(self._run(), name="isr changes")

    async def stop(self) -> None:
        """Stop sending."""
        self._stopped = True
        self._waiting.clear()
        await self._tasks.cancel_all()

    async def _run(self) -> None:
        try:
            while self._waiting:
                await self._send_waiting()
        finally:
            self._running = False

    async def _send_waiting(self) -> None:
        sent = list(islice(self._waiting.values(), _ITEMS_MAX))
        for item, _ in sent:
            del self._waiting[_key(item)]
        results = await self._exchange([item for item, _ in sent])
        answered = zip(sent, results, strict=True)
        again = [(item, on_result) for (item, on_result), result in answered if _deliver(on_result, item, result)]
        for item, on_result in again:
            self._waiting.setdefault(_key(item), (item, on_result))
        if again:
            await asyncio.sleep(self._backoff_s)

    async def _exchange(self, items: Sequence[AlterPartitionItem]) -> Sequence[AlterPartitionResult]:
        results: Sequence[AlterPartitionResult] = ()
        try:
            results = await self._send(items)
        except (OSError, TimeoutError, ProtocolError, WireFormatError):
            sometimes(True, "a proposal of an ISR did not reach the controller")
        except Exception as error:  # whatever it is, these proposals and all later ones are to be sent
            report_error(f"{len(items)} proposals of ISRs could not be sent", error)
        if len(results) != len(items):
            return [AlterPartitionResult(ErrorCode.NETWORK_EXCEPTION)] * len(items)
        return results


def _deliver(on_result: OnResult, item: AlterPartitionItem, result: AlterPartitionResult) -> bool:
    """Hand an answer over; one that cannot be processed concerns no other partition, and its item is not sent again."""
    try:
        return on_result(item, result)
    except Exception as error:
        report_error(f"the answer to the ISR proposal of {item.topic_partition} could not be processed", error)
        return False


def _key(item: AlterPartitionItem) -> tuple[UUID, int]:
    return item.topic_id, item.topic_partition.partition
