"""Leader: owns the epoch, knows how far each replica's disk is, and holds the fetches that wait for news."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from ..messages.messages import Fetch, Vote, VoterChange
from ..quorum.majority import majority_value, next_high_watermark
from ..types import ReplicaKey, RoleKind
from ..voters.voter_set import NO_VOTERS, VoterSet

OBSERVER_SESSION_MS = 300_000
MAX_INT64 = 2**63 - 1


@dataclass(slots=True)
class ReplicaProgress:
    """What a replica told by its fetches in this epoch. Times are of this node's monotonic clock, in milliseconds."""

    key: ReplicaKey
    end_offset: int = -1
    last_fetch_ms: int | None = None
    last_caught_up_ms: int | None = None
    last_fetch_leader_end_offset: int = -1
    sent_high_watermark: int = -1

    def on_fetch(self, offset: int, leader_end_offset: int, now_ms: int) -> None:
        """A fetch at `offset` whose epoch agreed: everything below is on the replica's disk.

        Caught up is judged as in Kafka: at the end of the log now, or where the end was at the fetch before.
        """
        if offset >= leader_end_offset:
            self.last_caught_up_ms = now_ms
        elif 0 <= self.last_fetch_leader_end_offset <= offset:
            self.last_caught_up_ms = self.last_fetch_ms
        self.end_offset = offset
        self.last_fetch_ms = now_ms
        self.last_fetch_leader_end_offset = leader_end_offset


@dataclass(slots=True)
class ParkedFetch:
    """A fetch without an answer yet; `token` names it to the caller."""

    token: int
    request: Fetch
    deadline_ms: int


@dataclass(slots=True)
class VoterChangeUnderWay:
    """The one change of the voters that a leader works on.

    `token` names the request to the caller, None once it is answered; `offset` is that of the record, None until it is
    appended; `probe_id` is the request by which a voter to be is asked for its versions, None when it has answered.
    """

    token: int | None
    request: VoterChange
    deadline_ms: int
    offset: int | None = None
    probe_id: int | None = None


@dataclass(slots=True)
class Leader:
    """`epoch_start_offset` is the offset of this epoch's leader change record; `voters` are those that count now.

    A leader may find itself not among them, from when its own removal is appended to when it is committed. It leads on,
    and counts neither for the high watermark nor for check-quorum (KIP-853, KAFKA-16530).
    """

    kind: ClassVar[RoleKind] = RoleKind.LEADER
    epoch: int
    key: ReplicaKey
    voted: ReplicaKey | None
    elected_ms: int
    epoch_start_offset: int
    check_quorum_timeout_ms: int
    voters: VoterSet = NO_VOTERS
    peers: dict[int, ReplicaProgress] = field(default_factory=dict)
    observers: dict[ReplicaKey, ReplicaProgress] = field(default_factory=dict)
    announce_at: dict[int, int] = field(default_factory=dict)
    parked: list[ParkedFetch] = field(default_factory=list)
    change: VoterChangeUnderWay | None = None
    leaves_at_ms: int | None = None
    """When to resign after this node's own removal was committed."""

    @property
    def leader_id(self) -> int:
        return self.key.id

    @property
    def is_voter(self) -> bool:
        return self.voters.is_voter(self.key)

    def set_voters(self, voters: VoterSet) -> None:
        """Other voters count from now on; what is known of a replica goes with it."""
        self.voters = voters
        former = self.peers
        self.peers = {}
        for key in voters.keys:
            if key.id == self.key.id:
                continue
            known = former.pop(key.id, None)
            if known is None or not voters.is_voter(known.key):
                known = self.observers.pop(key, None) or ReplicaProgress(key)
            self.peers[key.id] = known
        for progress in former.values():
            self.observers[progress.key] = progress
        self.announce_at = {voter: at_ms for voter, at_ms in self.announce_at.items() if voter in self.peers}

    def high_watermark(self, current: int | None, durable_offset: int) -> int | None:
        """The high watermark, now that this node's log is on disk up to `durable_offset`."""
        end_offsets = [progress.end_offset for progress in self.peers.values()]
        if self.is_voter:
            end_offsets.append(durable_offset)
        return next_high_watermark(current, end_offsets, self.epoch_start_offset)

    def can_grant(self, vote: Vote, log_is_up_to_date: bool, now_ms: int) -> bool:
        return False

    def progress_of(self, replica: ReplicaKey) -> ReplicaProgress:
        """The state kept for a voter or observer, made at its first fetch; none is kept of a tool without an id."""
        if replica.id in self.peers and self.voters.is_voter(replica):
            progress = self.peers[replica.id]
            progress.key = replica
            return progress
        if replica.id < 0:
            return ReplicaProgress(replica, sent_high_watermark=MAX_INT64)
        return self.observers.setdefault(replica, ReplicaProgress(replica))

    def quorum_deadline_ms(self) -> int | None:
        """When to resign unless more voters fetch; None for a lone voter, which is its own majority."""
        if not self.peers:
            return None
        contacts = [self.elected_ms if p.last_fetch_ms is None else p.last_fetch_ms for p in self.peers.values()]
        if self.is_voter:
            # This node hears itself at all times, hence its contact is later than any other.
            contacts.append(max(contacts) + 1)
        return majority_value(contacts) + self.check_quorum_timeout_ms

    def next_deadline_ms(self) -> int | None:
        times = [fetch.deadline_ms for fetch in self.parked]
        times.extend(self.announce_at.values())
        if self.change is not None:
            times.append(self.change.deadline_ms)
        if self.leaves_at_ms is not None:
            times.append(self.leaves_at_ms)
        quorum_deadline = self.quorum_deadline_ms()
        if quorum_deadline is not None:
            times.append(quorum_deadline)
        return min(times, default=None)

    def is_replaced(self, progress: ReplicaProgress) -> bool:
        """Whether that node has fetched with another directory since."""
        others = [p for p in self.observers.values() if p.key.id == progress.key.id and p is not progress]
        return any((other.last_fetch_ms or 0) > (progress.last_fetch_ms or 0) for other in others)

    def forget_silent_observers(self, now_ms: int) -> None:
        """Drop observers that have not fetched for five minutes, as Kafka does."""
        for key in [k for k, p in self.observers.items() if (p.last_fetch_ms or 0) < now_ms - OBSERVER_SESSION_MS]:
            del self.observers[key]
