"""Idempotent producers that are silent for longer than their state is kept, and come back, in the simulator.

They go on with the next sequence number, or as another producer. Between two batches they also send one again that was
acked long ago, as one does that is late on its way: it must not be written a second time, and its answer names the
offset where it is, if any. In the end brokers show none of them any more (`producer.id.expiration.ms`), and their next
batches are taken all the same.
"""

from __future__ import annotations

import asyncio
from collections import deque

from .....cluster.client.cluster_client import NO_ANSWER
from .....wire.api_keys import ApiKey
from ..clients import ClientContext, SentBatch
from .producers_load import ProducersLoad
from .repeating_producer import RepeatingProducer

_EXPIRATION_MS = 5_000
SETTINGS = {"producer.id.expiration.ms": str(_EXPIRATION_MS), "log.retention.check.interval.ms": "300"}
"""Settings of the nodes. A batch is repeated within less than this, so that it is never taken for a new one."""
_PRODUCERS = 3
_PAUSE_S = 0.15
_SILENCE_PROBABILITY = 0.06
_SILENCE_S = (0.5, 1.5 * _EXPIRATION_MS / 1000)
_REPEAT_PROBABILITY = 0.25
_RETRY_PAUSE_S = 0.1
_DESCRIBE_PRODUCERS_VERSION = 0


class SilentProducersLoad(ProducersLoad):
    """The producers, and a consumer. A `Workload`."""

    name = "silent producers"

    def __init__(self, context: ClientContext) -> None:
        self._silent = [SilentProducer(context, f"silent{n}", _PAUSE_S) for n in range(_PRODUCERS)]
        super().__init__(context, self._silent)
        self._waits_for = "its producers act"

    async def after_producers(self) -> None:
        """Wait until nobody knows the producers any more, and let them come back."""
        self._waits_for = "its producers have expired and are still known"
        await self.client.until_known()
        for partition in range(self.partitions):
            await self._until_forgotten(partition)
        self._waits_for = "its producers come back"
        await asyncio.gather(*(each.come_back() for each in self._silent))
        self._waits_for = ""

    async def _until_forgotten(self, partition: int) -> None:
        """Wait until the leader of a partition shows no producer."""
        fields = {"topics": [{"name": self.context.topic, "partition_indexes": [partition]}]}
        api, version = ApiKey.DESCRIBE_PRODUCERS, _DESCRIBE_PRODUCERS_VERSION
        while True:
            leader = self.client.partitions[partition].leader
            try:
                row = (await self.client.cluster.request_node(leader, api, version, fields)).topics[0].partitions[0]
                if not row.error_code and not row.active_producers:
                    return
            except NO_ANSWER:
                pass
            await asyncio.sleep(_RETRY_PAUSE_S)
            await self.client.refresh()

    def why_not_settled(self) -> str | None:
        """See `Workload`."""
        return self._waits_for or super().why_not_settled()


class SilentProducer(RepeatingProducer):
    """Pauses for long when nothing of it waits for an ack, and sends old batches again."""

    def __init__(self, context: ClientContext, name: str, pause_s: float) -> None:
        super().__init__(context, name, pause_s)
        self._next_numbers: dict[int, int] = {}

    def make_batch(self, partition: int, number: int) -> SentBatch:
        """See `IdempotentProducer`."""
        batch = super().make_batch(partition, number)
        self._next_numbers[partition] = number + batch.count
        return batch

    async def pause(self, partition: int, *, is_acked: bool) -> None:
        """See `IdempotentProducer`."""
        rng = self.context.rng
        if not is_acked or self._stopping:
            await super().pause(partition, is_acked=is_acked)
        elif rng.random() < _SILENCE_PROBABILITY:
            await asyncio.sleep(rng.uniform(*_SILENCE_S))
            self.forgotten_before[partition] = self._next_numbers[partition]
        elif rng.random() < _REPEAT_PROBABILITY:
            await self.repeat(partition)
        else:
            await super().pause(partition, is_acked=is_acked)

    async def come_back(self) -> None:
        """Write one more batch to each partition."""
        for partition, number in self._next_numbers.items():
            window = deque([self.make_batch(partition, number)])
            while not await self._send_window(partition, window):
                await asyncio.sleep(_RETRY_PAUSE_S)
                await self._client.refresh()
