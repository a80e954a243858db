"""Prospective: asks with pre-votes whether an election could be won, without raising the epoch (KIP-996)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from ..messages.messages import Vote
from ..types import ReplicaKey, RoleKind
from ..voters.voter_set import VoterEndpoint
from .epoch_election import EpochElection
from .nominee import Nominee

if TYPE_CHECKING:
    from ..quorum.quorum_state import QuorumState


@dataclass(eq=False, kw_only=True)
class Prospective(Nominee):
    """Keeps the vote and the leader of its epoch, which still bind it when the round is lost."""

    kind: ClassVar[RoleKind] = RoleKind.PROSPECTIVE
    is_pre_vote: ClassVar[bool] = True
    quorum: QuorumState = field(repr=False)
    epoch: int
    leader_id: int | None
    voted: ReplicaKey | None
    deadline_ms: int
    election: EpochElection

    def on_won(self, now_ms: int) -> None:
        """Stand for election in the next epoch."""
        self.quorum.transition_to_candidate(now_ms)

    def on_leader_discovered(self, leader_id: int, endpoint: VoterEndpoint, now_ms: int) -> None:
        """The leader works after all. If it fails this node again soon, the next round comes later."""
        self.quorum.timeouts.on_round_failed()
        self.quorum.transition_to_follower(self.epoch, leader_id, endpoint, now_ms)

    def can_grant(self, vote: Vote, log_is_up_to_date: bool, now_ms: int) -> bool:
        """As an unattached node: one vote an epoch, pre-votes to every candidate with an up-to-date log."""
        if vote.pre_vote:
            return log_is_up_to_date
        if self.voted is not None:
            return self.voted.matches(vote.candidate)
        return self.leader_id is None and log_is_up_to_date
