"""A member of a KIP-848 group on its way from what it has to what it shall have.

A partition goes to its next reader only when the last one has let it go. So each member first gives up what is no
longer its own (UNREVOKED, still in its old epoch, until it says that it has), then enters the new epoch with what is
free, and waits for the rest (UNRELEASED) while it already reads. `reconcile` is one step on that way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum

from ..records.consumer_group_records import CurrentAssignmentValue, MemberMetadataValue
from .assignors import PartitionId, PartitionIds

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2


class MemberState(IntEnum):
    """Values as the log has them."""

    STABLE = 0
    UNREVOKED = 1
    UNRELEASED = 2


@dataclass(frozen=True, slots=True)
class ConsumerGroupMember:
    """One member. Immutable: a step makes another one."""

    member_id: str
    subscription: MemberMetadataValue
    epoch: int = JOIN_EPOCH
    previous_epoch: int = JOIN_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: PartitionIds = ()
    revoking: PartitionIds = ()

    @property
    def instance_id(self) -> str | None:
        return self.subscription.instance_id

    @property
    def has_left(self) -> bool:
        """A static member that is away and may return to its place."""
        return self.epoch == LEAVE_STATIC_EPOCH

    def current(self) -> CurrentAssignmentValue:
        """As the log has it."""
        return CurrentAssignmentValue(self.epoch, self.previous_epoch, int(self.state), self.assigned, self.revoking)


def reconcile(
    member: ConsumerGroupMember,
    target_epoch: int,
    target: PartitionIds,
    owned: PartitionIds | None,
    is_free: Callable[[PartitionId], bool],
) -> ConsumerGroupMember:
    """The member after one step. `owned` is what it says it reads (None: it does not say)."""
    if member.state is MemberState.STABLE and member.epoch == target_epoch:
        return member
    if member.state is MemberState.UNREVOKED and _still_reads(owned, member.revoking):
        return member
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


def _still_reads(owned: PartitionIds | None, parts: PartitionIds) -> bool:
    return owned is None or any(part in owned for part in parts)
