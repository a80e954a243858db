"""Prospective: asks whether an election could be won, without raising the epoch (KIP-996)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..messages.messages import Vote
from ..types import ReplicaKey, RoleKind
from .ballot import Ballot


@dataclass(slots=True)
class Prospective:
    """Holds on to the vote and the leader of its epoch, so that nothing is forgotten when the round is lost."""

    kind: ClassVar[RoleKind] = RoleKind.PROSPECTIVE
    epoch: int
    leader_id: int | None
    voted: ReplicaKey | None
    deadline_ms: int
    ballot: Ballot

    def next_deadline_ms(self) -> int | None:
        return min([self.deadline_ms, *self.ballot.resend_at.values()])

    def can_grant(self, vote: Vote, log_is_up_to_date: bool, now_ms: int) -> bool:
        if vote.pre_vote:
            return log_is_up_to_date
        if self.voted is not None:
            return self.voted.matches(vote.candidate)
        return self.leader_id is None and log_is_up_to_date
