"""Many idempotent producers in the simulator: each gets a producer id, writes some batches, and is gone.

They ask any broker, several at a time, so that brokers use up their blocks of producer ids (KIP-730). No two of them
may have the same id, which "a producer id is given once" sees.
"""

from __future__ import annotations

import asyncio
from collections import deque

from .....cluster.client.admin_client import NewTopic
from ...invariants.client_invariants import check_history
from ..clients import ClientContext, IdempotentProducer, TopicClient, TopicConsumer
from ..workload import create_topic_until_done

_PARTITIONS = 2
_AT_A_TIME = 3
_BATCHES_MAX = 3
_PAUSE_S = 0.1


class PassingProducersLoad:
    """The producers, and a consumer. A `Workload`."""

    def __init__(self, context: ClientContext, kind: type[IdempotentProducer] | None = None) -> None:
        """`kind`: what each producer is, a `PassingProducer` by default."""
        self.name = f"{context.topic} producers"
        self._context = context
        self._kind = kind or PassingProducer
        self._client = TopicClient(context, self.name)
        self._consumer = TopicConsumer(context, f"{self.name}' consumer")
        self._acting = _AT_A_TIME
        self._stopping = False

    async def run(self) -> None:
        """See `Workload`."""
        await create_topic_until_done(self._client.cluster, NewTopic(self._context.topic, _PARTITIONS, -1, {}))
        await asyncio.gather(self._consumer.run(), *(self._act(number) for number in range(_AT_A_TIME)))

    def stop(self) -> None:
        """See `Workload`."""
        self._stopping = True

    def why_not_settled(self) -> str | None:
        """See `Workload`."""
        if self._acting:
            return f"{self._acting} producers act"
        return None if self._consumer.caught_up() else f"its consumer reads: {self._consumer.describe()}"

    def check(self) -> None:
        """Every acked record is there, once and in order."""
        check_history(self._context.history)

    async def _act(self, number: int) -> None:
        count = 0
        while not self._stopping:
            count += 1
            await self._kind(self._context, f"{self._context.topic}{number}.{count}", _PAUSE_S).run()
        self._acting -= 1


class PassingProducer(IdempotentProducer):
    """Writes a few batches to each partition, one after the other."""

    async def _send_partition(self, partition: int) -> None:
        number = 0
        for _ in range(self.context.rng.randrange(1, _BATCHES_MAX + 1)):
            window = deque([self.make_batch(partition, number)])
            number += window[0].count
            while not await self._send_window(partition, window):
                await asyncio.sleep(self._pause_s)
                await self._client.refresh()
            await self.pause(partition, is_acked=True)
