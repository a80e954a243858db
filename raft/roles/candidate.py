"""Candidate: raised the epoch, voted for itself and asks for votes. A majority makes it the leader."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from ..messages.messages import Vote
from ..types import ReplicaKey, RoleKind
from .epoch_election import EpochElection
from .nominee import Nominee

if TYPE_CHECKING:
    from ..quorum.quorum_state import QuorumState


@dataclass(eq=False, kw_only=True)
class Candidate(Nominee):
    """Stands for election. `voted` is this node itself."""

    kind: ClassVar[RoleKind] = RoleKind.CANDIDATE
    is_pre_vote: ClassVar[bool] = False
    quorum: QuorumState = field(repr=False)
    epoch: int
    leader_id: None = None
    voted: ReplicaKey
    deadline_ms: int
    election: EpochElection

    def on_won(self, now_ms: int) -> None:
        """The election is won: lead the epoch."""
        self.quorum.transition_to_leader(self.election.granting, now_ms)

    def can_grant(self, vote: Vote, log_is_up_to_date: bool, now_ms: int) -> bool:
        """Pre-votes only: the vote of this epoch is given."""
        return vote.pre_vote and log_is_up_to_date
