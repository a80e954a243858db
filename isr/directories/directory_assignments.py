"""Tells the controller in which log directory each replica of this broker is (KIP-858; Kafka: AssignmentsManager).

The metadata names a log directory for each replica. Where its log is opened or created follows from that and from the
directories that this broker has. One case needs care: the metadata names a directory that the broker does not have any
more, and no other directory contains the log. Then the records of the replica are lost, and an empty log must not take
their place unnoticed. So the broker first tells the controller that the replica is lost, and creates the log when the
metadata says so, too. A crash in between changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container, Mapping
from enum import Enum
from uuid import UUID

from ...controller.metadata.metadata_image import PartitionRegistration
from ...controller.metadata.metadata_records import LOST, MIGRATING, UNASSIGNED
from ...runtime.loop import TaskSet, report_error
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
"""Answers after which an assignment is not sent again: it is done, or there is no such replica any more."""

SendAssignments = Callable[[Mapping[ReplicaKey, UUID]], Awaitable[Mapping[ReplicaKey, int]]]


class Place(Enum):
    """Where to create the log of a replica that is in none of the working directories."""

    THERE = "in the directory that the metadata names"
    ANYWHERE = "in any directory"
    NOWHERE_YET = "nowhere until the controller knows that what was there is lost"
    OFFLINE = "nowhere: it may be in a directory that has failed"


def may_have_records(registration: PartitionRegistration, broker_id: int) -> bool:
    """Whether the broker's replica counts as one with all records that are committed, and the partition is not new."""
    was_led = registration.leader_epoch > 0
    return broker_id in registration.elr or (was_led and broker_id in registration.isr)


def place_of(registered: UUID, online: Container[UUID], *, some_failed: bool, has_records: bool) -> Place:
    """`registered` is the replica's directory by the metadata, `online` are this broker's directories that work.

    `has_records`: an empty log must not take the replica's place. The directory of such a replica may be unassigned,
    since the broker stopped before it had told it.
    """
    if registered in online:
        return Place.THERE
    if registered == LOST or (registered == UNASSIGNED and not (some_failed and has_records)):
        return Place.ANYWHERE
    if some_failed:
        return Place.OFFLINE
    return Place.ANYWHERE if registered == MIGRATING else Place.NOWHERE_YET


class DirectoryAssignments:
    """Sends what the controller does not know yet: batched, one request at a time, again after a pause.

    What was refused comes after all others, so that it does not keep them from being sent.
    """

    def __init__(self, send: SendAssignments, backoff_ms: int) -> None:
        self._send = send
        self._backoff_s = backoff_ms / 1000
        self._wanted: dict[ReplicaKey, UUID] = {}
        self._tasks = TaskSet()
        self._running = False
        self._stopped = False

    @property
    def pending(self) -> Mapping[ReplicaKey, UUID]:
        """The assignments that the controller has not confirmed."""
        return self._wanted

    def note(self, key: ReplicaKey, registered: UUID, actual: UUID) -> None:
        """By the metadata the replica is in the directory `registered`; it really is in `actual`, which may be LOST."""
        if registered == actual:
            self._wanted.pop(key, None)
            return
        self._wanted[key] = actual
        if not self._running and not self._stopped:
            self._running = True
            self._tasks.spawn(self._run(), name="assignments to directories")

    def forget(self, key: ReplicaKey) -> None:
        """This broker has no such replica any more."""
        self._wanted.pop(key, None)

    async def stop(self) -> None:
        """Stop sending."""
        self._stopped = True
        self._wanted.clear()
        await self._tasks.cancel_all()

    async def _run(self) -> None:
        pause_s = self._backoff_s
        try:
            while self._wanted:
                batch = dict(list(self._wanted.items())[:_BATCH_MAX])
                if await self._exchange(batch):
                    pause_s = self._backoff_s
                else:
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, _BACKOFF_MAX_S)
        finally:
            self._running = False

    async def _exchange(self, batch: Mapping[ReplicaKey, UUID]) -> bool:
        """Send a batch; whether all of it is settled."""
        try:
            codes = await self._send(batch)
        except (OSError, TimeoutError, ProtocolError, WireFormatError) as error:
            _logger.info("directories of %d replicas could not be told: %s", len(batch), error)
            return False
        except Exception as error:  # whatever it is, these assignments and all later ones are to be sent
            report_error(f"the directories of {len(batch)} replicas could not be told", error)
            return False
        all_settled = True
        for key, directory in batch.items():
            if codes.get(key, ErrorCode.UNKNOWN_SERVER_ERROR) not in _SETTLED:
                all_settled = False
                if key in self._wanted:
                    self._wanted[key] = self._wanted.pop(key)
            elif self._wanted.get(key) == directory:
                del self._wanted[key]
        return all_settled
