"""Candidate: has raised the epoch, voted for itself and asks for votes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..messages.messages import Vote
from ..types import ReplicaKey, RoleKind
from .ballot import Ballot


@dataclass(slots=True)
class Candidate:
    """`voted` is this node itself."""

    kind: ClassVar[RoleKind] = RoleKind.CANDIDATE
    epoch: int
    voted: ReplicaKey
    deadline_ms: int
    ballot: Ballot

    @property
    def leader_id(self) -> int | None:
        return None

    def next_deadline_ms(self) -> int | None:
        return min([self.deadline_ms, *self.ballot.resend_at.values()])

    def can_grant(self, vote: Vote, log_is_up_to_date: bool, now_ms: int) -> bool:
        return vote.pre_vote and log_is_up_to_date
