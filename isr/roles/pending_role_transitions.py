"""The partitions whose roles are still to be taken up: some in each iteration of the event loop, the first at once."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from itertools import islice
from typing import TypeAlias
from uuid import UUID

from ...runtime.incremental_work import PLAIN_STEP, IncrementalTask, Work
from ...wire.types import TopicPartition

PartitionKey: TypeAlias = tuple[UUID, int]
DeletedPartition: TypeAlias = tuple[TopicPartition, UUID]
TakeUp: TypeAlias = Callable[[list[DeletedPartition], list[PartitionKey]], None]

PARTITIONS_PER_SLICE = 10
"""A change of a replica's role takes some hundredths of a millisecond."""
NEW_REPLICA_COSTS = 5
"""As many partitions of a slice; to make the files of a log takes milliseconds while the disk is busy."""
PAUSE_S = 0.005
"""The shortest pause after a slice with new replicas, while records are written: new files delay writes to others."""
PAUSE_PER_WORK = 3
"""The pause is so many times as long as the slice took, if that is more: on some disks (ext4 without a journal, after
many files were removed) it takes milliseconds to make a file, and new replicas would keep a processor busy."""


class PendingRoleTransitions:
    """Lists each partition once, however often it changed; `take_up` takes up the roles in some of them.

    `is_new` says whether a replica has to be made for that, `is_busy` whether this broker writes records. `stopwatch`
    measures in seconds how long that takes.

    `applied_offset` is the metadata offset up to which nothing is pending, None while nothing at all is.
    """

    def __init__(
        self,
        take_up: TakeUp,
        is_new: Callable[[PartitionKey], bool],
        is_busy: Callable[[], bool],
        stopwatch: Callable[[], float],
    ) -> None:
        self._take_up = take_up
        self._is_new = is_new
        self._is_busy = is_busy
        self._stopwatch = stopwatch
        self._has_made_replicas = False  # in the last slice
        self._slice_took_s = 0.0
        # A dict is slow at giving its first key when many before it are deleted.
        self._deleted: OrderedDict[DeletedPartition, None] = OrderedDict()
        self._to_lead: OrderedDict[PartitionKey, None] = OrderedDict()
        self._others: OrderedDict[PartitionKey, None] = OrderedDict()
        self._task: IncrementalTask[None] | None = None
        self._settled: asyncio.Future[None] | None = None
        self.applied_offset: int | None = None

    def __len__(self) -> int:
        return len(self._deleted) + len(self._to_lead) + len(self._others)

    def add_deleted(self, topic_partition: TopicPartition, topic_id: UUID) -> None:
        """The partition's topic is deleted."""
        self._deleted[(topic_partition, topic_id)] = None

    def add(self, key: PartitionKey, *, leads: bool) -> None:
        """The partition changed; `leads`: this broker leads it now."""
        first, second = (self._to_lead, self._others) if leads else (self._others, self._to_lead)
        second.pop(key, None)
        first[key] = None

    def begin(self, offset_before: int) -> None:
        """Take up the first ones now, unless others are waiting; `offset_before` is the offset of the last delta."""
        if not self._is_running and len(self):
            self.applied_offset = offset_before
            self._task = IncrementalTask(self._transitions(), pause_s=self._pause_s, done=self._release)

    async def settled(self) -> None:
        """Return when nothing is pending."""
        if not self._is_running:
            return
        if self._settled is None:
            self._settled = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._settled)

    def stop(self) -> None:
        """Forget all of them."""
        if self._task is not None:
            self._task.cancel()
        for waiting in (self._deleted, self._to_lead, self._others):
            waiting.clear()
        self._release()

    @property
    def _is_running(self) -> bool:
        return self._task is not None and self._task.is_running

    def _transitions(self) -> Work[None]:
        while True:
            began_s = self._stopwatch()
            deleted = list(islice(self._deleted, PARTITIONS_PER_SLICE))
            for one in deleted:
                del self._deleted[one]
            self._take_up(deleted, self._next_keys(PARTITIONS_PER_SLICE - len(deleted)))
            self._slice_took_s = self._stopwatch() - began_s
            if not len(self):
                return
            yield PLAIN_STEP

    def _pause_s(self) -> float:
        if not self._has_made_replicas or not self._is_busy():
            return 0.0
        return max(PAUSE_S, PAUSE_PER_WORK * self._slice_took_s)

    def _next_keys(self, room: int) -> list[PartitionKey]:
        taken = []
        self._has_made_replicas = False
        for waiting in (self._to_lead, self._others):
            while waiting and room > 0:
                key, _ = waiting.popitem(last=False)
                taken.append(key)
                is_new = self._is_new(key)
                self._has_made_replicas |= is_new
                room -= NEW_REPLICA_COSTS if is_new else 1
        return taken

    def _release(self, _: None = None) -> None:
        self.applied_offset = None
        settled, self._settled = self._settled, None
        if settled is not None and not settled.done():
            settled.set_result(None)
