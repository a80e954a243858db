"""The frame of workloads with idempotent producers of one kind and a consumer, on a topic of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from .....cluster.client.admin_client import NewTopic
from ...invariants.client_invariants import check_history
from ..clients import ClientContext, IdempotentProducer, TopicClient, TopicConsumer
from ..workload import create_topic_until_done


class ProducersLoad:
    """The producers, and a consumer that reads all that they write. A `Workload`."""

    name = ""
    partitions = 2

    def __init__(self, context: ClientContext, producers: Sequence[IdempotentProducer]) -> None:
        self.context = context
        self.client = TopicClient(context, self.name)
        self._producers = producers
        self._consumer = TopicConsumer(context, f"{self.name}' consumer")

    async def run(self) -> None:
        """See `Workload`."""
        await create_topic_until_done(self.client.cluster, NewTopic(self.context.topic, self.partitions, -1, {}))
        reader = asyncio.get_running_loop().create_task(self._consumer.run(), name=self._consumer.name)
        await asyncio.gather(*(each.run() for each in self._producers))
        await self.after_producers()
        await reader

    async def after_producers(self) -> None:
        """All that was sent is acked: by default nothing is left to do."""

    def stop(self) -> None:
        """See `Workload`."""
        for each in self._producers:
            each.stop()

    def why_not_settled(self) -> str | None:
        """See `Workload`."""
        for each in self._producers:
            if not each.finished:
                return f"{each.name} still sends"
        return None if self._consumer.caught_up() else f"its consumer reads: {self._consumer.describe()}"

    def check(self) -> None:
        """Every acked record is there, once and in order."""
        check_history(self.context.history)
