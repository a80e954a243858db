"""Types of the quorum that other layers see: the leader and its epoch, committed batches, the listener."""

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
EPOCH_MAX = 2**31 - 2
"""The highest epoch. The number after it fits on the wire too, but no election could follow."""
EPOCH_JUMP_MAX = 10_000
"""By how much the epoch of a request may exceed the receiver's.

Epochs grow by one with each election. So a single request cannot use up the numbers. A voter that was away during more
elections learns the epoch from the answers to its own pre-votes and fetches.
"""


class RoleKind(Enum):
    """The roles of a node; see `roles/role_transitions.py` for the moves between them."""

    UNATTACHED = "unattached"
    RESIGNED = "resigned"
    PROSPECTIVE = "prospective"
    CANDIDATE = "candidate"
    FOLLOWER = "follower"
    LEADER = "leader"


@dataclass(frozen=True, slots=True)
class ReplicaKey:
    """A replica: a node id and the id of its metadata directory, `NO_DIRECTORY` if unknown (KIP-853)."""

    id: int
    directory_id: UUID = NO_DIRECTORY

    def matches(self, other: ReplicaKey) -> bool:
        """Whether it is the same replica, as far as both directories are known."""
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
"""The start of a log that begins with its first record and not with a snapshot."""


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    """A batch below the high watermark. A control batch has no records here, but it has offsets."""

    base_offset: int
    last_offset: int
    epoch: int
    append_time_ms: int
    records: list[bytes]
    size_bytes: int = 0


class RaftListener(Protocol):
    """Learns what is committed and who leads. It is called on the event loop, between two events of the quorum."""

    def on_commit(self, batches: Sequence[CommittedBatch]) -> None:
        """Take committed batches, in offset order, without gaps, each one once in an incarnation of the process.

        The list is empty when only the high watermark became current (`RaftDriver.is_high_watermark_current`).
        """
        ...

    def on_snapshot(self, snapshot_id: SnapshotId, records: Sequence[bytes] | None) -> None:
        """Take the next part of a snapshot, which replaces all records below its end; None after the last part.

        The parts come in order, in separate loop iterations. A snapshot that is not completed is followed by another
        one from its beginning. After the last part come the batches from the snapshot's end on.
        """
        ...

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        """The leader changed. If this node leads, it has delivered all records of former epochs before."""
        ...


class NotLeaderError(Exception):
    """An append for an epoch that this node does not lead, or no longer leads."""

    def __init__(self, epoch: int, current: LeaderAndEpoch) -> None:
        super().__init__(f"not the leader of epoch {epoch}: epoch {current.epoch} is led by {current.leader_id}")
        self.current = current
