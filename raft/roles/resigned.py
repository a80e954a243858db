"""Resigned: led this epoch and gave it up. It never leads or votes in this epoch again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from ...runtime.invariants import sometimes
from ..messages import requests
from ..messages.messages import Outgoing, Vote
from ..types import ReplicaKey, RoleKind
from .role import Role

if TYPE_CHECKING:
    from ..quorum.quorum_state import QuorumState


@dataclass(eq=False, kw_only=True)
class Resigned(Role):
    """Tells the voters of the resignation with EndQuorumEpoch, and waits for the next leader until `deadline_ms`."""

    kind: ClassVar[RoleKind] = RoleKind.RESIGNED
    quorum: QuorumState = field(repr=False)
    epoch: int
    leader_id: int | None
    voted: ReplicaKey | None
    deadline_ms: int
    preferred_successors: Sequence[ReplicaKey]
    """The other voters, the one with the longest log first."""
    reachable: list[int] = field(init=False)
    """The voters that EndQuorumEpoch has reached or may still reach."""

    def __post_init__(self) -> None:
        self.reachable = [key.id for key in self.preferred_successors]

    @property
    def awaits_successor(self) -> bool:
        """False once it is clear that EndQuorumEpoch reached no voter."""
        return bool(self.reachable)

    def on_entered(self, now_ms: int) -> None:
        """Send EndQuorumEpoch to every other voter."""
        quorum = self.quorum
        for voter, endpoint in quorum.other_voters():
            end = requests.end_quorum_epoch(quorum.config, self.epoch, self.preferred_successors)
            quorum.send(voter.key.id, endpoint, end)

    def next_deadline_ms(self) -> int | None:
        """When this node waits no longer for the next leader."""
        return self.deadline_ms

    def on_timer(self, now_ms: int) -> None:
        """No leader turned up: become an ordinary voter again."""
        if self.deadline_ms <= now_ms:
            sometimes(True, "a controller resigned, and no other one was elected in time")
            self.quorum.transition_to_unattached(self.epoch, now_ms)

    def can_grant(self, vote: Vote, log_is_up_to_date: bool, now_ms: int) -> bool:
        """Pre-votes only."""
        return vote.pre_vote and log_is_up_to_date

    def on_end_quorum_epoch_failure(self, sent: Outgoing) -> None:
        """EndQuorumEpoch did not reach a voter."""
        if sent.to in self.reachable:
            self.reachable.remove(sent.to)
