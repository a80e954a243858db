"""Unattached: knows the epoch but follows nobody in it; possibly bound by a vote."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..messages.messages import Vote
from ..types import ReplicaKey, RoleKind


@dataclass(slots=True)
class Unattached:
    """Waits for a leader to make itself known. A voter stands for election at `deadline_ms`; an observer goes around
    the voters and asks for the leader with a fetch (`fetch_id` in flight, the next at `next_fetch_ms`). So does a voter
    that has lost an election and knows bootstrap servers: all the voters that it knows of may have been replaced.

    `leader_id` is a leader that this epoch is known to have had. It binds like a vote: nobody else can win the epoch.
    """

    kind: ClassVar[RoleKind] = RoleKind.UNATTACHED
    epoch: int
    leader_id: int | None
    voted: ReplicaKey | None
    deadline_ms: int | None
    fetch_id: int | None = None
    next_fetch_ms: int | None = None

    def next_deadline_ms(self) -> int | None:
        fetch_ms = None if self.fetch_id is not None else self.next_fetch_ms
        return min((at_ms for at_ms in (self.deadline_ms, fetch_ms) if at_ms is not None), default=None)

    def can_grant(self, vote: Vote, log_is_up_to_date: bool, now_ms: int) -> bool:
        if vote.pre_vote:
            return log_is_up_to_date
        if self.voted is not None:
            return self.voted.matches(vote.candidate)
        return self.leader_id is None and log_is_up_to_date
