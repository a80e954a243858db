"""What a leader knows of the replicas that fetch from it: the voters, and the observers (Kafka's ReplicaState)."""

from __future__ import annotations

from dataclasses import dataclass

from ...log.log_divergence import caught_up_ms
from ...runtime.invariants import sometimes
from ..types import ReplicaKey
from ..voters.voter_set import VoterSet

OBSERVER_SESSION_MS = 300_000
MAX_INT64 = 2**63 - 1


@dataclass(slots=True)
class ReplicaProgress:
    """What the fetches of one replica in this epoch showed. Times are monotonic milliseconds of the leader."""

    key: ReplicaKey
    end_offset: int = -1
    """The replica has all below this offset on its disk."""
    last_fetch_ms: int | None = None
    last_caught_up_ms: int | None = None
    last_fetch_leader_end_offset: int = -1
    sent_high_watermark: int = -1

    def on_fetch(self, offset: int, leader_end_offset: int, now_ms: int) -> None:
        """The replica fetches from `offset`, up to which its log agrees with the leader's."""
        self.last_caught_up_ms = caught_up_ms(self, offset, leader_end_offset, now_ms)
        self.end_offset = offset
        self.last_fetch_ms = now_ms
        self.last_fetch_leader_end_offset = leader_end_offset


class ProgressTracker:
    """The progress of all replicas beside the leader, whose own key is `leader`."""

    def __init__(self, leader: ReplicaKey, voters: VoterSet) -> None:
        self.leader = leader
        self.peers: dict[int, ReplicaProgress] = {}
        """The voters beside the leader, by id."""
        self.observers: dict[ReplicaKey, ReplicaProgress] = {}
        self.set_voters(voters)

    @property
    def leader_is_voter(self) -> bool:
        """Whether the leader is one of the voters.

        It is not from when its own removal is appended until that is committed and it resigns. Until then it leads, and
        counts neither for the high watermark nor for check-quorum (KIP-853, KAFKA-16530).
        """
        return self.voters.is_voter(self.leader)

    def set_voters(self, voters: VoterSet) -> None:
        """Other voters count from now on. What is known of a replica is kept when it becomes a voter or an observer."""
        self.voters = voters  # those that count now
        former = self.peers
        self.peers = {}
        for key in voters.keys:
            if key.id == self.leader.id:
                continue
            known = former.pop(key.id, None)
            if known is None or not voters.is_voter(known.key):
                sometimes(key in self.observers, "an observer's progress counted on when it became a voter")
                known = self.observers.pop(key, None) or ReplicaProgress(key)
            self.peers[key.id] = known
        for progress in former.values():
            self.observers[progress.key] = progress

    def progress_of(self, replica: ReplicaKey) -> ReplicaProgress:
        """The progress of a voter or an observer, which begins at its first fetch.

        None is kept of a tool that fetches without an id.
        """
        if replica.id in self.peers and self.voters.is_voter(replica):
            progress = self.peers[replica.id]
            progress.key = replica
            return progress
        if replica.id < 0:
            return ReplicaProgress(replica, sent_high_watermark=MAX_INT64)
        return self.observers.setdefault(replica, ReplicaProgress(replica))

    def durable_end_offsets(self, own_durable_offset: int) -> list[int]:
        """The durable log end offsets of the voters, with the leader's if it is one of them."""
        end_offsets = [progress.end_offset for progress in self.peers.values()]
        if self.leader_is_voter:
            end_offsets.append(own_durable_offset)
        return end_offsets

    def peers_by_log_length(self) -> list[ReplicaKey]:
        """The other voters, the one with the longest log first."""
        by_length = sorted(self.peers, key=lambda voter: (-self.peers[voter].end_offset, voter))
        return [self.peers[voter].key for voter in by_length]

    def is_replaced(self, progress: ReplicaProgress) -> bool:
        """Whether the node of that replica has fetched with another directory since."""
        others = [p for p in self.observers.values() if p.key.id == progress.key.id and p is not progress]
        return any((other.last_fetch_ms or 0) > (progress.last_fetch_ms or 0) for other in others)

    def forget_silent_observers(self, now_ms: int) -> None:
        """Drop observers that have not fetched for five minutes, as Kafka does."""
        for key in [k for k, p in self.observers.items() if (p.last_fetch_ms or 0) < now_ms - OBSERVER_SESSION_MS]:
            del self.observers[key]
