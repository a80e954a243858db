"""The partitions whose role changes are still to be applied: a few in each iteration of the loop, the first at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import islice
from typing import TypeAlias
from uuid import UUID

from ...runtime.incremental_work import PLAIN_STEP, IncrementalTask, Work
from ...wire.types import TopicPartition

PartitionKey: TypeAlias = tuple[UUID, int]
Gone: TypeAlias = tuple[TopicPartition, UUID]
Turn: TypeAlias = Callable[[list[Gone], list[PartitionKey]], None]

PARTITIONS_PER_SLICE = 30
"""Making a replica with its directory costs some tenths of a millisecond, a change of its role some hundredths."""


class PendingRoleTransitions:
    """Each partition stands in it once, however often it changed; `turn` carries some out.

    `held_offset` is the metadata offset up to which nothing was put off, None while nothing is.
    """

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._gone: dict[Gone, None] = {}
        self._to_lead: dict[PartitionKey, None] = {}
        self._others: dict[PartitionKey, None] = {}
        self._task: IncrementalTask[None] | None = None
        self._settled: asyncio.Future[None] | None = None
        self.held_offset: int | None = None

    def __len__(self) -> int:
        return len(self._gone) + len(self._to_lead) + len(self._others)

    def add_gone(self, topic_partition: TopicPartition, topic_id: UUID) -> None:
        """The partition's topic is deleted."""
        self._gone[(topic_partition, topic_id)] = None

    def add(self, key: PartitionKey, *, leads: bool) -> None:
        """The partition changed; `leads`: this broker leads it now."""
        first, second = (self._to_lead, self._others) if leads else (self._others, self._to_lead)
        second.pop(key, None)
        first[key] = None

    def begin(self, offset_before: int) -> None:
        """Carry out the first turn now, unless others wait for theirs; `offset_before` is the last delta's."""
        if not self._is_running and len(self):
            self.held_offset = offset_before
            self._task = IncrementalTask(self._transitions(), done=self._release)

    async def settled(self) -> None:
        """Return when nothing is left."""
        if not self._is_running:
            return
        if self._settled is None:
            self._settled = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._settled)

    def stop(self) -> None:
        """Forget it all."""
        if self._task is not None:
            self._task.cancel()
        for waiting in (self._gone, self._to_lead, self._others):
            waiting.clear()
        self._release()

    @property
    def _is_running(self) -> bool:
        return self._task is not None and self._task.is_running

    def _transitions(self) -> Work[None]:
        while True:
            gone = list(islice(self._gone, PARTITIONS_PER_SLICE))
            for one in gone:
                del self._gone[one]
            room = PARTITIONS_PER_SLICE - len(gone)
            keys = [*islice(self._to_lead, room)]
            for key in keys:
                del self._to_lead[key]
            others = [*islice(self._others, room - len(keys))]
            for key in others:
                del self._others[key]
            self._turn(gone, keys + others)
            if not len(self):
                return
            yield PLAIN_STEP

    def _release(self, _: None = None) -> None:
        self.held_offset = None
        settled, self._settled = self._settled, None
        if settled is not None and not settled.done():
            settled.set_result(None)
