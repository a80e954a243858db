"""Idempotent producers that follow a new leader at once, as librdkafka does, and do not wait for the former leader.

While a batch to the former leader is not answered, the next ones go to the new leader and may overtake it. An answer
OUT_OF_ORDER_SEQUENCE_NUMBER would make librdkafka take a new producer epoch and send again all that is not acked, to
every partition; some of that may be in the logs already. So these producers must never get that answer unless a batch
before has failed, and each record is there once and in order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

from .....cluster.client.client_errors import is_retriable
from .....cluster.client.cluster_client import NO_ANSWER
from .....runtime.loop import TaskSet
from .....wire.client import Connection
from .....wire.errors import ErrorCode
from ...invariants.invariant_broken import InvariantBroken
from ..clients import ClientContext, IdempotentProducer, SentBatch
from .producers_load import ProducersLoad

_PRODUCERS = 2
_PAUSE_S = 0.05
_REFRESH_EVERY_S = 0.15
_UNACKED_MAX = 5
"""Brokers know again the last five batches of a producer."""


class PipelinedProducersLoad(ProducersLoad):
    """The producers, and a consumer. A `Workload`."""

    name = "pipelined producers"
    partitions = 3

    def __init__(self, context: ClientContext) -> None:
        super().__init__(context, [PipelinedProducer(context, f"pipelined{n}", _PAUSE_S) for n in range(_PRODUCERS)])


@dataclass(slots=True)
class _Unacked:
    batch: SentBatch
    is_in_flight: bool = False
    is_behind_failure: bool = False
    """Whether a batch before it failed after this one was sent; this one is then out of order."""


class PipelinedProducer(IdempotentProducer):
    """Sends each batch to the partition's leader as soon as it is made, whatever is in flight to a former leader."""

    def __init__(self, context: ClientContext, name: str, pause_s: float) -> None:
        super().__init__(context, name, pause_s)
        self._tasks = TaskSet()

    async def run(self) -> None:
        """See `IdempotentProducer`."""
        refresher = asyncio.get_running_loop().create_task(self._refresh(), name=f"{self.name} metadata")
        await super().run()
        refresher.cancel()

    async def _refresh(self) -> None:
        while True:
            await asyncio.sleep(self.context.rng.expovariate(1 / _REFRESH_EVERY_S))
            await self._client.refresh()

    async def _send_partition(self, partition: int) -> None:
        unacked: deque[_Unacked] = deque()
        next_number = 0
        while unacked or not self._stopping:
            if len(unacked) < _UNACKED_MAX and not self._stopping:
                unacked.append(_Unacked(self.make_batch(partition, next_number)))
                next_number += unacked[-1].batch.count
            try:
                connection = await self._client.cluster.connection(self._client.partitions[partition].leader)
            except NO_ANSWER:
                connection = None
            if connection is not None:
                self._send_all(connection, partition, unacked)
            await asyncio.sleep(self.context.rng.expovariate(1 / self._pause_s))

    def _send_all(self, connection: Connection, partition: int, unacked: deque[_Unacked]) -> None:
        """Send what is not in flight, in order."""
        for each in unacked:
            if not each.is_in_flight:
                each.is_in_flight, each.is_behind_failure = True, False
                answer = self._send(connection, partition, each.batch)
                name = f"{self.name}/{partition}/{each.batch.first}"
                self._tasks.spawn(self._take_answer(partition, unacked, each, answer), name)

    async def _take_answer(
        self, partition: int, unacked: deque[_Unacked], sent: _Unacked, answer: asyncio.Future[memoryview]
    ) -> None:
        told = await self._answer(answer)
        code, sent.is_in_flight = told.code, False
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self.on_acked(partition, sent.batch, told)
            unacked.remove(sent)
            return
        if not is_retriable(code) and not (code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and sent.is_behind_failure):
            detail = f"{self.name}/{partition}/{sent.batch.first}: {ErrorCode(code).name}"
            raise InvariantBroken("a producer that follows the leader is never out of order", detail)
        is_behind = False
        for each in unacked:
            each.is_behind_failure |= is_behind and each.is_in_flight
            is_behind |= each is sent
