"""A consumer group at a moment, and what follows from its members and epochs alone: its state and its assignor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..classic.consumer_protocol import CONSUMER_PROTOCOL_TYPE
from .assignors import ASSIGNORS, PartitionIds
from .consumer_group_member import ConsumerGroupMember, ConsumerGroupState, MemberState


@dataclass(frozen=True, slots=True)
class ConsumerGroupView:
    """The group as it is, or as its committed records say. `default_assignor` is the first configured one."""

    epoch: int
    target_epoch: int
    members: Mapping[str, ConsumerGroupMember]
    target: Mapping[str, PartitionIds]
    default_assignor: str

    kind = "consumer"
    protocol_type = CONSUMER_PROTOCOL_TYPE

    @property
    def state(self) -> ConsumerGroupState:
        """The state, as the admin APIs show it."""
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.target_epoch:
            return ConsumerGroupState.ASSIGNING
        return ConsumerGroupState.STABLE if self.is_settled else ConsumerGroupState.RECONCILING

    @property
    def is_settled(self) -> bool:
        """Whether every member has its target assignment."""
        return all(one.state is MemberState.STABLE and one.epoch == self.target_epoch for one in self.members.values())

    @property
    def assignor(self) -> str:
        """The assignor that most members ask for; the first configured one where no member asks for one that exists."""
        votes: dict[str, int] = {}
        for member in self.members.values():
            if member.subscription.assignor in ASSIGNORS:
                votes[member.subscription.assignor] = votes.get(member.subscription.assignor, 0) + 1
        return max(votes, key=lambda name: votes[name]) if votes else self.default_assignor
