"""Resigned: led this epoch and gave it up. It helps others to be elected and stands again after a while."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..messages.messages import Vote
from ..types import ReplicaKey, RoleKind


@dataclass(slots=True)
class Resigned:
    """`unacknowledged` are the voters that EndQuorumEpoch may yet reach; `is_heard` when one answered."""

    kind: ClassVar[RoleKind] = RoleKind.RESIGNED
    epoch: int
    leader_id: int | None
    voted: ReplicaKey | None
    deadline_ms: int
    unacknowledged: list[int]
    is_heard: bool = False

    @property
    def is_alone(self) -> bool:
        """No voter can be told of the resignation."""
        return not self.unacknowledged and not self.is_heard

    def next_deadline_ms(self) -> int | None:
        return self.deadline_ms

    def can_grant(self, vote: Vote, log_is_up_to_date: bool, now_ms: int) -> bool:
        return vote.pre_vote and log_is_up_to_date
