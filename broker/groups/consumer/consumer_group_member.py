"""A member of a consumer group, and how it moves from its present assignment to its target assignment (KIP-848).

A partition goes to its next reader only after the last one has given it up. So a member first revokes the partitions
that are not in its target: it is UNREVOKED and stays in its old epoch until it says that it has. Then it enters the new
epoch with the partitions that are free, and is UNRELEASED while others still hold the rest. `reconcile` is one step.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum
from uuid import UUID

from ..records.consumer_group_records import CurrentAssignmentValue, MemberMetadataValue
from .assignors import PartitionId, PartitionIds

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2


class ConsumerGroupState(StrEnum):
    """The state of a group, named as Kafka's admin APIs name them."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class MemberState(IntEnum):
    """The values are those of the log."""

    STABLE = 0
    UNREVOKED = 1
    UNRELEASED = 2


@dataclass(frozen=True, slots=True)
class ConsumerGroupMember:
    """One member. It is immutable; a step returns a new one."""

    member_id: str
    subscription: MemberMetadataValue
    epoch: int = JOIN_EPOCH
    previous_epoch: int = JOIN_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: PartitionIds = ()
    revoking: PartitionIds = ()

    @property
    def instance_id(self) -> str | None:
        """The group.instance.id of a static member (KIP-345)."""
        return self.subscription.instance_id

    @property
    def has_left(self) -> bool:
        """Whether the static member has left and may return to its place."""
        return self.epoch == LEAVE_STATIC_EPOCH

    def current(self) -> CurrentAssignmentValue:
        """The member's current assignment, as it is written to the log."""
        return CurrentAssignmentValue(self.epoch, self.previous_epoch, int(self.state), self.assigned, self.revoking)


def reconcile(
    member: ConsumerGroupMember,
    target_epoch: int,
    target: PartitionIds,
    owned: PartitionIds | None,
    is_free: Callable[[PartitionId], bool],
    new_topics: Container[UUID] | None,
) -> ConsumerGroupMember:
    """The member after one step. `owned` are the partitions that it says it reads; None where it does not say.

    `new_topics` are those of its subscription, where that has just changed: partitions of others are revoked at once,
    also when it has yet to revoke some (KAFKA-19431).
    """
    if member.state is MemberState.STABLE and member.epoch == target_epoch:
        return member
    if member.state is MemberState.UNREVOKED and _still_reads(owned, member.revoking):
        dropped = [part for part in member.assigned if new_topics is not None and part[0] not in new_topics]
        kept = tuple(part for part in member.assigned if part not in dropped)
        return replace(member, assigned=kept, revoking=tuple(sorted((*member.revoking, *dropped))))
    kept = tuple(part for part in member.assigned if part in target)
    revoking = tuple(part for part in member.assigned if part not in target)
    wanted = [part for part in target if part not in kept]
    free = [part for part in wanted if is_free(part)]
    if revoking and _still_reads(owned, revoking):
        return replace(member, state=MemberState.UNREVOKED, assigned=kept, revoking=revoking)
    return replace(
        member,
        epoch=target_epoch,
        previous_epoch=member.epoch if member.epoch != target_epoch else member.previous_epoch,
        state=MemberState.STABLE if len(free) == len(wanted) else MemberState.UNRELEASED,
        assigned=tuple(sorted([*kept, *free])),
        revoking=(),
    )


def rejoined(member: ConsumerGroupMember) -> ConsumerGroupMember:
    """The member after it came back: it reads nothing, and its partitions are still assigned to it."""
    return replace(member, epoch=JOIN_EPOCH, state=MemberState.UNRELEASED, revoking=())


def _still_reads(owned: PartitionIds | None, parts: PartitionIds) -> bool:
    return owned is None or any(part in owned for part in parts)
