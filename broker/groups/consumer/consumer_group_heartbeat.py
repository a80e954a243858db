"""Heartbeats of the consumer protocol (KIP-848): request, response, and what follows from the request alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ....runtime.invariants import sometimes
from ....wire.errors import ErrorCode
from ..records.consumer_group_records import MemberMetadataValue
from .assignors import PartitionIds
from .consumer_group_member import JOIN_EPOCH, ConsumerGroupMember

_RECORDS_BYTES = 300
"""What the three records of a member have beside its texts and partitions, at most."""


@dataclass(frozen=True, slots=True)
class HeartbeatRequest:
    """ConsumerGroupHeartbeat. None and -1 mean: not changed since the last one."""

    member_id: str
    member_epoch: int
    client_id: str = ""
    client_host: str = ""
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topic_names: tuple[str, ...] | None = None
    topic_regex: str | None = None
    assignor: str | None = None
    owned: PartitionIds | None = None
    may_see: Callable[[str], bool] | None = None
    """Whether the member may know of a topic; None: of all. It holds until the member's next request."""

    @property
    def is_full(self) -> bool:
        """Whether all fields are there. A member sends them when it joins, and when it may have missed a response."""
        return self.member_epoch == JOIN_EPOCH or (
            self.rebalance_timeout_ms != -1
            and (self.topic_names is not None or self.topic_regex is not None)
            and self.owned is not None
        )

    @property
    def size_bytes(self) -> int:
        """About how large the records of the member are that follow from the request alone."""
        texts = (self.client_id, self.client_host, self.instance_id, self.rack_id, self.topic_regex, self.assignor)
        names = self.topic_names or ()
        return (
            _RECORDS_BYTES + 3 * len(self.member_id) + sum(len((text or "").encode()) + 3 for text in (*texts, *names))
        )


@dataclass(frozen=True, slots=True)
class HeartbeatResult:
    """The response. `assignment` is None where it has not changed."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    member_id: str = ""
    member_epoch: int = 0
    assignment: PartitionIds | None = None


def refused(error: ErrorCode, message: str) -> HeartbeatResult:
    """A response that refuses the heartbeat."""
    return HeartbeatResult(error, message)


def has_different_subscription(before: ConsumerGroupMember | None, new: MemberMetadataValue) -> bool:
    """Whether the change of the member's subscription needs a new target assignment; a new member always does."""
    if before is None:
        return True
    old = before.subscription
    return (old.topic_names, old.topic_regex, old.assignor) != (new.topic_names, new.topic_regex, new.assignor)


def owns_only_assigned(owned: PartitionIds | None, assigned: PartitionIds) -> bool:
    """Whether the member says which partitions it reads, and all of them are assigned to it."""
    return owned is not None and all(part in assigned for part in owned)


def refusal_of_member(request: HeartbeatRequest, member: ConsumerGroupMember) -> HeartbeatResult | None:
    """The response that refuses the heartbeat of a member, or of one that wants its instance; None if accepted."""
    joins = request.member_epoch == JOIN_EPOCH
    if request.instance_id is not None and member.member_id != request.member_id:
        if not joins:
            return refused(ErrorCode.FENCED_INSTANCE_ID, f"Instance {request.instance_id} is held by another.")
        if not member.has_left and member.subscription.classic is None:
            return refused(ErrorCode.UNRELEASED_INSTANCE_ID, f"Instance {request.instance_id} is in use.")
        return None
    if request.member_epoch <= JOIN_EPOCH or request.member_epoch == member.epoch:
        return None
    resent = request.member_epoch == member.previous_epoch and owns_only_assigned(request.owned, member.assigned)
    if request.member_epoch < member.epoch and resent:
        sometimes(True, "a member that had not got its new epoch was let in with the former one")
        return None  # the response with the new epoch was lost
    sometimes(True, "a member was fenced by its epoch")
    return refused(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The member's epoch is {member.epoch}, not {request.member_epoch}; it must rejoin.",
    )


def updated_metadata(before: ConsumerGroupMember | None, request: HeartbeatRequest) -> MemberMetadataValue:
    """A member's metadata after the request. A member that joins sends everything; missing fields count as empty."""
    known = None if before is None else before.subscription
    if known is None or request.member_epoch == JOIN_EPOCH:
        known = MemberMetadataValue(None, None, "", "", (), None, -1, None)
    regex = request.topic_regex if request.topic_regex is not None else known.topic_regex
    return MemberMetadataValue(
        instance_id=request.instance_id if request.instance_id is not None else known.instance_id,
        rack_id=request.rack_id if request.rack_id is not None else known.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        topic_names=known.topic_names if request.topic_names is None else tuple(sorted(request.topic_names)),
        topic_regex=regex or None,
        rebalance_timeout_ms=(
            known.rebalance_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms
        ),
        assignor=request.assignor if request.assignor is not None else known.assignor,
    )
