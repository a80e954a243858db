"""Unattached: knows the epoch but follows no leader in it; possibly bound by a vote."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from ..messages.messages import FetchReply, Outgoing, Vote
from ..quorum.effects import FailureKind
from ..types import ReplicaKey, RoleKind
from .role import Role

if TYPE_CHECKING:
    from ..quorum.quorum_state import QuorumState


@dataclass(eq=False, kw_only=True)
class Unattached(Role):
    """Waits for a leader to make itself known.

    A voter stands for election at `deadline_ms`. An observer asks the voters and the bootstrap servers in turn for the
    leader, with fetches. So does a voter that lost an election and has bootstrap servers: the voters that it knows may
    all have been replaced.

    A `leader_id` binds like a vote: no other node can win the epoch.
    """

    kind: ClassVar[RoleKind] = RoleKind.UNATTACHED
    quorum: QuorumState = field(repr=False)
    epoch: int
    leader_id: int | None
    voted: ReplicaKey | None
    deadline_ms: int | None
    fetch_id: int | None = None
    """The fetch in flight."""
    next_fetch_ms: int | None = None
    """When to fetch next; None when this node does not look for the leader."""

    def next_deadline_ms(self) -> int | None:
        """When to stand for election or to ask the next node."""
        fetch_ms = None if self.fetch_id is not None else self.next_fetch_ms
        return min((at_ms for at_ms in (self.deadline_ms, fetch_ms) if at_ms is not None), default=None)

    def on_timer(self, now_ms: int) -> None:
        """Stand for election, or ask the next node for the leader."""
        if self.deadline_ms is not None and self.deadline_ms <= now_ms:
            self.quorum.transition_to_prospective(now_ms)
        else:
            self._fetch_from_next_contact(now_ms)

    def find_leader(self, now_ms: int) -> None:
        """Ask other nodes for the leader from now on."""
        self.next_fetch_ms = now_ms
        self._fetch_from_next_contact(now_ms)

    def _fetch_from_next_contact(self, now_ms: int) -> None:
        if self.next_fetch_ms is None or self.fetch_id is not None or self.next_fetch_ms > now_ms:
            return
        self.next_fetch_ms = now_ms + self.quorum.timing.retry_backoff_ms
        contact = self.quorum.next_contact()
        if contact is not None:
            self.fetch_id = self.quorum.send_fetch(*contact, max_wait_ms=0)

    def can_grant(self, vote: Vote, log_is_up_to_date: bool, now_ms: int) -> bool:
        """One vote an epoch, to a candidate whose log is up to date; pre-votes to every such candidate."""
        if vote.pre_vote:
            return log_is_up_to_date
        if self.voted is not None:
            return self.voted.matches(vote.candidate)
        return self.leader_id is None and log_is_up_to_date

    def on_pre_vote_granted(self, now_ms: int) -> None:
        """Do not stand for election at the same time, which would split the votes."""
        if self.deadline_ms is not None:
            self.deadline_ms = max(self.deadline_ms, now_ms + self.quorum.timeouts.yield_ms())

    def on_fetch_reply(self, sent: Outgoing, reply: FetchReply, now_ms: int) -> None:
        """The answer may name the leader."""
        if self.fetch_id == sent.id:
            self.fetch_id = None
            self.quorum.maybe_transition(reply.epoch, reply.leader_id, reply.leader_endpoint, now_ms)

    def on_fetch_failure(self, sent: Outgoing, kind: FailureKind, now_ms: int) -> None:
        """Another node is asked at `next_fetch_ms`."""
        if self.fetch_id == sent.id:
            self.fetch_id = None
