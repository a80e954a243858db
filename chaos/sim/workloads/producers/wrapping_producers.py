"""Idempotent producers in the simulator whose sequence numbers reach 2^31-1, after which the next one is 0.

Each begins a few records before that, since a log takes any first batch of a producer that it does not know. When that
one is there it has several batches in flight, some of which hold both numbers; and it sends old ones again.
"""

from __future__ import annotations

import asyncio
from collections import deque

from ..clients import ClientContext
from .repeating_producer import RepeatingProducer

_SEQUENCES = 1 << 31
_BEFORE_MAX = 30
_ROUNDS_MAX = 8
_IN_FLIGHT_MAX = 5
_REPEAT_PROBABILITY = 0.5
_RETRY_PAUSE_S = 0.05


class WrappingProducer(RepeatingProducer):
    """Writes a few rounds of batches to each partition."""

    def __init__(self, context: ClientContext, name: str, pause_s: float) -> None:
        super().__init__(context, name, pause_s)
        self._begins_at: dict[int, int] = {}
        """The first sequence number by partition."""

    def sequence_of(self, partition: int, number: int) -> int:
        """See `IdempotentProducer`."""
        if partition not in self._begins_at:
            self._begins_at[partition] = _SEQUENCES - self.context.rng.randrange(1, _BEFORE_MAX)
        return (self._begins_at[partition] + number) % _SEQUENCES

    async def _send_partition(self, partition: int) -> None:
        rng, number = self.context.rng, 0
        for index in range(rng.randrange(2, _ROUNDS_MAX + 1)):
            window = deque([self.make_batch(partition, number)])
            number += window[-1].count
            while index and len(window) < _IN_FLIGHT_MAX and rng.random() < 0.8:
                window.append(self.make_batch(partition, number))
                number += window[-1].count
            while not await self._send_window(partition, window):
                await asyncio.sleep(_RETRY_PAUSE_S)
                await self._client.refresh()
            if rng.random() < _REPEAT_PROBABILITY:
                await self.repeat(partition)
            await self.pause(partition, is_acked=True)
