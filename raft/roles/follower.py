"""Follower: fetches from the leader of its epoch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from ...wire.types import SnapshotId
from ..messages.messages import Vote
from ..types import ReplicaKey, RoleKind
from ..voters.voter_set import VoterEndpoint


class Download(NamedTuple):
    """A snapshot on its way from the leader: bytes below `position` are here."""

    snapshot_id: SnapshotId
    position: int


@dataclass(slots=True)
class Follower:
    """One fetch is in flight at a time (`fetch_id`), and none before all that was fetched is on disk
    (`next_fetch_ms` is None meanwhile).

    `deadline_ms` is when an unheard leader is given up. From `doubted_at_ms` on (None: never fetched) pre-votes are
    granted, or the first to give up would be refused by those who are about to. `suspected` is set when the leader's
    host refuses connections: then pre-votes are granted at once, and `deadline_ms` is near.

    `change_id` is a request in flight by which this node asks to be a voter, or to be one with other endpoints; the
    next one may go at `next_change_ms`.
    """

    kind: ClassVar[RoleKind] = RoleKind.FOLLOWER
    epoch: int
    leader_id: int
    leader_endpoint: VoterEndpoint
    voted: ReplicaKey | None
    deadline_ms: int
    next_fetch_ms: int | None
    next_change_ms: int
    change_id: int | None = None
    fetch_id: int | None = None
    fetch_sent_ms: int | None = None
    doubted_at_ms: int | None = None
    suspected: bool = False
    download: Download | None = None

    def next_deadline_ms(self) -> int | None:
        if self.fetch_id is not None or self.next_fetch_ms is None:
            return self.deadline_ms
        return min(self.deadline_ms, self.next_fetch_ms)

    def can_grant(self, vote: Vote, log_is_up_to_date: bool, now_ms: int) -> bool:
        leader_seems_alive = not self.suspected and self.doubted_at_ms is not None and now_ms < self.doubted_at_ms
        return vote.pre_vote and log_is_up_to_date and not leader_seems_alive
