"""The words of the quorum: who leads, what is committed, which records a node keeps about elections."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol
from uuid import UUID

from ..wire.types import SnapshotId

METADATA_TOPIC = "__cluster_metadata"
METADATA_TOPIC_ID = UUID(int=1)
METADATA_PARTITION = 0
NO_DIRECTORY = UUID(int=0)


class RoleKind(Enum):
    """What a node is to the quorum at a moment; see `transitions.py` for the moves between them."""

    UNATTACHED = "unattached"
    RESIGNED = "resigned"
    PROSPECTIVE = "prospective"
    CANDIDATE = "candidate"
    FOLLOWER = "follower"
    LEADER = "leader"


@dataclass(frozen=True, slots=True)
class ReplicaKey:
    """A replica by node id and the id of its metadata directory (zero where the sender did not say, KIP-853)."""

    id: int
    directory_id: UUID = NO_DIRECTORY

    def matches(self, other: ReplicaKey) -> bool:
        """The same replica, as far as both directories are known."""
        if self.id != other.id:
            return False
        return self.directory_id == other.directory_id or NO_DIRECTORY in (self.directory_id, other.directory_id)


@dataclass(frozen=True, slots=True)
class LeaderAndEpoch:
    """The leader of an epoch; `leader_id` is None while it is unknown."""

    leader_id: int | None
    epoch: int


@dataclass(frozen=True, slots=True)
class ElectionState:
    """What must survive a crash: the epoch, its leader if known, and the vote given in it."""

    epoch: int = 0
    leader_id: int | None = None
    voted: ReplicaKey | None = None


LOG_BEGIN = SnapshotId(0, 0)
"""Where a log starts that no snapshot stands for."""


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    """A batch below the high watermark. Control batches carry no records, but take part in the order of offsets."""

    base_offset: int
    last_offset: int
    epoch: int
    append_time_ms: int
    records: list[bytes]
    size_bytes: int = 0


class RaftListener(Protocol):
    """Learns what the quorum decided. Called on the event loop, never while the quorum is in the middle of an event."""

    def on_commit(self, batches: Sequence[CommittedBatch]) -> None:
        """Committed batches in offset order, each exactly once in the life of the process, without gaps.

        None when all that is committed has been told, and only that became known: see `is_high_watermark_current`.
        """
        ...

    def on_snapshot(self, snapshot_id: SnapshotId, records: Sequence[bytes] | None) -> None:
        """A part of the records that stand for all below the snapshot's end; None when that was all.

        Forget what was before then. The parts of one snapshot come one after the other, some turns of the loop apart.
        One that is not told to the end is followed by another from its beginning. Then come the batches from the
        snapshot's end on.
        """
        ...

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        """The leader changed. When this node leads, all records of former epochs have been delivered before."""
        ...


class NotLeaderError(Exception):
    """An append for an epoch that this node does not lead, or no longer leads."""

    def __init__(self, epoch: int, current: LeaderAndEpoch) -> None:
        super().__init__(f"not the leader of epoch {epoch}: epoch {current.epoch} is led by {current.leader_id}")
        self.current = current
