"""Which directory each replica here is in, and the controller kept up with it (KIP-858).

Where a replica's log is to be found, or made, follows from what the metadata says of its directory and from which
directories this broker has. One case needs care: the metadata names a directory that is not here any more, and no
other holds the log. Then what the replica had is lost, and an empty log must not pass for it. So the controller
is told first that it is lost, and the log is made when the metadata says so too; a crash in between changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container, Mapping
from enum import Enum
from uuid import UUID

from ...controller.metadata.metadata_records import LOST, MIGRATING, UNASSIGNED
from ...runtime.loop import TaskSet
from ...wire.errors import ErrorCode, ProtocolError, WireFormatError
from ..ports import ReplicaKey

_logger = logging.getLogger(__name__)
_BATCH_MAX = 2_250
_BACKOFF_MAX_S = 10.0
_SETTLED = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
)
"""Answers after which nothing is to be sent again: it is done, or there is no such replica any more."""

SendAssignments = Callable[[Mapping[ReplicaKey, UUID]], Awaitable[Mapping[ReplicaKey, int]]]


class Place(Enum):
    """Where a replica's log, which is in no directory that can be read, is to be made."""

    THERE = "in the directory that the metadata names"
    ANYWHERE = "in any directory"
    NOWHERE_YET = "nowhere until the controller knows that what was there is lost"
    OFFLINE = "nowhere: it may be in a directory that has failed"


def place_of(registered: UUID, online: Container[UUID], *, some_failed: bool) -> Place:
    """`registered` is the replica's directory by the metadata, `online` are those of this broker that work."""
    if registered in online:
        return Place.THERE
    if registered in (UNASSIGNED, LOST):
        return Place.ANYWHERE
    if some_failed:
        return Place.OFFLINE
    return Place.ANYWHERE if registered == MIGRATING else Place.NOWHERE_YET


class DirectoryAssignments:
    """Sends what the controller does not know yet: batched, one request in flight, again after a pause."""

    def __init__(self, send: SendAssignments, backoff_ms: int) -> None:
        self._send = send
        self._backoff_s = backoff_ms / 1000
        self._wanted: dict[ReplicaKey, UUID] = {}
        self._tasks = TaskSet()
        self._running = False
        self._stopped = False

    @property
    def pending(self) -> Mapping[ReplicaKey, UUID]:
        """What the controller does not know yet, or has not answered."""
        return self._wanted

    def note(self, key: ReplicaKey, registered: UUID, held: UUID) -> None:
        """By the metadata the replica is in `registered`; in truth it is in `held`, which may be LOST."""
        if registered == held:
            self._wanted.pop(key, None)
            return
        self._wanted[key] = held
        if not self._running and not self._stopped:
            self._running = True
            self._tasks.spawn(self._run(), name="assignments to directories")

    def forget(self, key: ReplicaKey) -> None:
        """The replica is here no more."""
        self._wanted.pop(key, None)

    async def stop(self) -> None:
        """Send no more."""
        self._stopped = True
        self._wanted.clear()
        await self._tasks.cancel_all()

    async def _run(self) -> None:
        pause_s = self._backoff_s
        while self._wanted:
            batch = dict(list(self._wanted.items())[:_BATCH_MAX])
            if await self._exchange(batch):
                pause_s = self._backoff_s
            else:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _BACKOFF_MAX_S)
        self._running = False

    async def _exchange(self, batch: Mapping[ReplicaKey, UUID]) -> bool:
        """Whether all of it is settled."""
        try:
            codes = await self._send(batch)
        except (OSError, TimeoutError, ProtocolError, WireFormatError) as error:
            _logger.info("directories of %d replicas could not be told: %s", len(batch), error)
            return False
        all_settled = True
        for key, directory in batch.items():
            if codes.get(key, ErrorCode.UNKNOWN_SERVER_ERROR) not in _SETTLED:
                all_settled = False
            elif self._wanted.get(key) == directory:
                del self._wanted[key]
        return all_settled
