"""The classic protocol for members of a consumer group that do not use the consumer protocol yet (KIP-848).

For such a member, epochs are generations. JoinGroup is answered at once with the member's epoch, and SyncGroup with the
partitions that it may read in that epoch. Heartbeat answers REBALANCE_IN_PROGRESS when the member has a step to take: a
new epoch, partitions to revoke, partitions that have become free. The member sends the partitions that it owns in its
subscription. It must join again within its rebalance time-out each time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....wire.errors import ErrorCode
from ...coordinators.record_fields import BadRecord
from ..classic.classic_events import JoinRequest, SyncRequest
from ..classic.consumer_protocol import CONSUMER_PROTOCOL_TYPE, Subscription, read_subscription, write_assignment
from ..effects import JoinResult, LeaveResult, SyncResult
from ..records.consumer_group_records import ClassicMemberMetadata, MemberMetadataValue
from .consumer_group_member import ConsumerGroupMember, MemberState
from .migration import by_id, by_name, version_of

if TYPE_CHECKING:
    from .consumer_group import ConsumerGroup


class ClassicProtocolAdapter:
    """The methods of `ClassicGroup` that serve clients, for a `ConsumerGroup`."""

    def __init__(self, group: ConsumerGroup) -> None:
        self._group = group
        self._asked_to_rejoin: dict[str, None] = {}
        """Members that were told to join again and have not."""

    # ---------------------------------------------------------------- JoinGroup

    def join(self, request: JoinRequest, token: Any, now_ms: int, wall_ms: int) -> None:
        """JoinGroup: become a member, or take the next step. Answered when the change is committed."""
        error = self._refuse_join(request)
        subscription = None if error else _subscription_of(request)
        if error or subscription is None:
            result = JoinResult(error or ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id)
            self._group.reply(token, result)
        elif not request.member_id and request.instance_id is None and request.requires_known_id:
            self._group.reply(token, JoinResult(ErrorCode.MEMBER_ID_REQUIRED, request.new_member_id))
        else:
            self._update_member(request, subscription, token, now_ms, wall_ms)

    def _refuse_join(self, request: JoinRequest) -> ErrorCode:
        group = self._group
        if group.is_closed:
            return ErrorCode.NOT_COORDINATOR
        known = group.known(request.member_id, request.instance_id)
        if known is None and len(group.members) >= group.config.consumer.max_size:
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        if request.protocol_type != CONSUMER_PROTOCOL_TYPE or not self._shares_protocol(request):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if request.instance_id is not None and request.member_id:
            return self._check_instance(request.member_id, request.instance_id)
        return ErrorCode.NONE

    def _shares_protocol(self, request: JoinRequest) -> bool:
        """Whether all classic members share an assignor, so that the group could become a classic one again."""
        names = [name for name, _ in request.protocols]
        for member in self._group.members.values():
            if member.subscription.classic is not None and member.member_id != request.member_id:
                known = dict(member.subscription.classic.protocols)
                names = [name for name in names if name in known]
        return bool(names)

    def _update_member(self, request: JoinRequest, wanted: Subscription, token: Any, now_ms: int, wall_ms: int) -> None:
        group = self._group
        before = group.known(request.member_id, request.instance_id)
        member_id = request.member_id or request.new_member_id
        replaces = before is not None and before.member_id != member_id and before.subscription.classic is None
        epoch = group.epoch
        subscription = MemberMetadataValue(
            instance_id=request.instance_id,
            rack_id=wanted.rack_id,
            client_id=request.client_id,
            client_host=request.client_host,
            topic_names=tuple(sorted(dict.fromkeys(wanted.topics))),
            topic_regex=None,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            assignor=None if before is None else before.subscription.assignor,
            classic=ClassicMemberMetadata(request.session_timeout_ms, request.protocols),
        )
        after = group.update_member(before, member_id, subscription, by_id(wanted.owned, group.topics), now_ms)
        result = JoinResult(
            ErrorCode.NONE, after.member_id, after.epoch, CONSUMER_PROTOCOL_TYPE, request.protocols[0][0]
        )
        if replaces and group.may_become_classic():
            is_settled = group.epoch == epoch and group.current.is_settled
            group.become_classic(token, result, now_ms, wall_ms, must_rebalance=not is_settled)
            return
        self._asked_to_rejoin.pop(after.member_id, None)
        for kind in ("join", "rebalance"):
            group.timers.cancel(kind, after.member_id)
        group.start_session(after, now_ms)
        group.timers.set("sync", after.member_id, now_ms + request.rebalance_timeout_ms)
        group.finish(token, result)

    # ---------------------------------------------------------------- SyncGroup, Heartbeat

    def sync(self, request: SyncRequest, token: Any, now_ms: int, wall_ms: int) -> None:
        """SyncGroup: the partitions that the member may read in its epoch."""
        group = self._group
        member = group.members.get(request.member_id)
        error = self._check(request.member_id, request.instance_id, request.generation)
        if error or member is None or member.subscription.classic is None:
            group.reply(token, SyncResult(error))
            return
        name, metadata = member.subscription.classic.protocols[0]
        if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or request.protocol_name not in (None, name):
            group.reply(token, SyncResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        elif group.epoch > member.epoch and member.state is not MemberState.UNREVOKED:
            self._ask_to_rejoin(member, now_ms)
            group.reply(token, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
        else:
            group.timers.cancel("sync", member.member_id)
            group.start_session(member, now_ms)
            assignment = write_assignment(version_of(metadata), by_name(member.assigned, group.topics))
            group.finish(token, SyncResult(ErrorCode.NONE, CONSUMER_PROTOCOL_TYPE, name, assignment))

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> ErrorCode:
        """Heartbeat: NONE, or REBALANCE_IN_PROGRESS when the member must join again, or why it is refused."""
        group = self._group
        member = group.members.get(member_id)
        error = self._check(member_id, instance_id, generation)
        if error or member is None:
            return error
        group.start_session(member, now_ms)
        has_step = member.state is MemberState.UNREVOKED or (
            member.state is MemberState.UNRELEASED and not group.is_waiting_for_others(member)
        )
        if member.epoch < group.epoch or has_step:
            self._ask_to_rejoin(member, now_ms)
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def _ask_to_rejoin(self, member: ConsumerGroupMember, now_ms: int) -> None:
        """Note that the member must join again within its rebalance time-out."""
        if member.member_id not in self._asked_to_rejoin:
            self._asked_to_rejoin[member.member_id] = None
            timeout_ms = member.subscription.rebalance_timeout_ms
            self._group.timers.set("join", member.member_id, now_ms + timeout_ms)

    def _check(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        if self._group.is_closed:
            return ErrorCode.NOT_COORDINATOR
        if instance_id is not None:
            error = self._check_instance(member_id, instance_id)
            if error:
                return error
        member = self._group.members.get(member_id)
        if member is None or member.subscription.classic is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if generation == member.epoch else ErrorCode.ILLEGAL_GENERATION

    def _check_instance(self, member_id: str, instance_id: str) -> ErrorCode:
        holder = self._group.known("", instance_id)
        if holder is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if holder.member_id == member_id else ErrorCode.FENCED_INSTANCE_ID

    # ---------------------------------------------------------------- LeaveGroup

    def leave(self, leavers: list[tuple[str, str | None]], token: Any, now_ms: int, wall_ms: int) -> list[ErrorCode]:
        """LeaveGroup: remove members by id, or by instance id where the id is empty. Returns one code for each.

        Administrators send it for members of the consumer protocol, too. `token` gets a `LeaveResult` when the removals
        are committed, or cannot be.
        """
        codes = [self._leave_one(member_id, instance_id) for member_id, instance_id in leavers]
        if ErrorCode.NONE in codes:
            self._group.after_removal(token, LeaveResult(), now_ms, wall_ms)
        else:
            self._group.reply(token, LeaveResult())
        return codes

    def _leave_one(self, member_id: str, instance_id: str | None) -> ErrorCode:
        if instance_id is not None and member_id:
            error = self._check_instance(member_id, instance_id)
            if error:
                return error
        member = self._group.known("", instance_id) if instance_id is not None else self._group.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        self._group.remove(member)
        return ErrorCode.NONE

    def forget(self, member_id: str) -> None:
        """Forget a member that was removed."""
        self._asked_to_rejoin.pop(member_id, None)


def _subscription_of(request: JoinRequest) -> Subscription | None:
    try:
        return read_subscription(request.protocols[0][1])
    except BadRecord:
        return None
