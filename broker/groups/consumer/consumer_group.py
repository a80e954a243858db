"""A group of the consumer protocol (KIP-848): the coordinator assigns the partitions and tells members by heartbeats.

There are three epochs. The group epoch grows with every change of members, subscriptions or topics. The epoch of the
target assignment is the group epoch for which it was computed. The epoch of a member is that of the target assignment
which it has reached, or which it reaches as soon as others give up partitions; see `consumer_group_member`. A heartbeat
with another epoch than the coordinator knows is fenced: the member joins again with epoch 0.

The changes of a heartbeat are written first; it is answered when they and all before them are committed. An event makes
one write at most. When the log refuses it, the group returns to what the log says (`FormerState`); when it fails later,
its records may be in the log or not, so the group asks for a reload (`Reload`).

Members may use the classic protocol while a group changes its protocol: see `classic_protocol_adapter`, `migration`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any
from uuid import UUID

from ....runtime.invariants import sometimes
from ....wire.errors import ErrorCode
from ...coordinators.effects import Reply
from ...coordinators.record_fields import CoordinatorRecord
from ..classic.classic_group import ClassicGroup
from ..classic.classic_group_members import ClassicGroupState
from ..classic.classic_group_view import ClassicGroupView
from ..classic.consumer_protocol import CONSUMER_PROTOCOL_TYPE
from ..effects import Effect, Reload, ReplaceGroup, TimerName
from ..group_config import GroupConfig
from ..records.consumer_group_records import (
    ConsumerGroupKey,
    EpochValue,
    MemberMetadataValue,
    RecordType,
    current_record,
    epoch_record,
    group_tombstones,
    member_metadata_record,
    member_tombstones,
    target_record,
)
from ..records.offset_and_classic_records import classic_group_record
from .assignors import ASSIGNORS, PartitionId, PartitionIds
from .classic_protocol_adapter import ClassicProtocolAdapter
from .consumer_group_heartbeat import (
    HeartbeatRequest,
    HeartbeatResult,
    has_different_subscription,
    refusal_of_member,
    refused,
    updated_metadata,
)
from .consumer_group_member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerGroupMember,
    ConsumerGroupState,
    MemberState,
    reconcile,
    rejoined,
)
from .group_view import ConsumerGroupView
from .member_timers import MemberTimers
from .migration import ConsumerState, check_upgrade, downgraded, reopen, upgraded_members, upgraded_records
from .pending_writes import FormerState, PendingWrite, PendingWrites, Result, committed_view
from .topics import Topics, matching
from .waiting_heartbeats import Heartbeat, WaitingHeartbeats


class ConsumerGroup:
    """One group. As in `ClassicGroup`, methods take events and append to `effects`."""

    kind = "consumer"
    """The group type, as ListGroups names it."""
    protocol_type = CONSUMER_PROTOCOL_TYPE
    is_simple = False
    state_timestamp_ms = -1

    def __init__(self, group_id: str, config: GroupConfig, topics: Topics) -> None:
        self.group_id = group_id
        self.config = config
        self.epoch = 0
        self.target_epoch = 0
        self.members: dict[str, ConsumerGroupMember] = {}
        self.target: dict[str, PartitionIds] = {}
        self.metadata_hash = 0
        self.effects: list[Effect] = []
        self.is_applying_effects = False
        self.are_topics_stale = True
        """Whether topics may have changed since the group last looked."""
        self.topics = topics
        self.classic_protocol = ClassicProtocolAdapter(self)
        self.timers = MemberTimers(self.effects.append)
        self.is_closed = False
        self._static_ids: dict[str, str] = {}
        self._may_see: dict[str, Callable[[str], bool]] = {}
        """By member, which topics its regular expression may match; all for those that have not been heard yet."""
        self._owners: dict[PartitionId, str] = {}
        self._waiting = WaitingHeartbeats()
        self._writes = PendingWrites(self.effects.append)
        self._former = FormerState()

    @classmethod
    def upgraded(cls, group: ClassicGroup, config: GroupConfig, topics: Topics) -> ConsumerGroup:
        """The consumer group that a classic group becomes. `restore` starts it; its records precede its first answer.

        One without members leaves nothing. Raises `ProtocolError(GROUP_ID_NOT_FOUND)` where it must stay classic.
        """
        new = cls(group.group_id, config, topics)
        new._writes.records += group.tombstones()
        new._former = FormerState(classic=(group, group.state))
        if group.state is ClassicGroupState.EMPTY:  # those that have got an id only have to join anew
            return new
        check_upgrade(group, config.consumer)
        members = upgraded_members(group, topics)
        owes_rebalance = group.state is not ClassicGroupState.STABLE  # also where one joins who changes nothing
        new.target_epoch, new.epoch = group.generation, group.generation + owes_rebalance
        for member in members:
            new._put(member)
        new.target = {member.member_id: member.assigned for member in members}
        new.metadata_hash = new._hash_topics()
        new._writes.records += upgraded_records(group, EpochValue(new.epoch, new.metadata_hash), members)
        return new

    def restore(self, now_ms: int) -> None:
        """After the replay of all records: derive the other fields, and start all sessions."""
        for member in list(self.members.values()):
            self._put(member)
            self.start_session(member, now_ms)
            self.timers.start_revocation(member, now_ms)
        if self._former.classic is None:
            self._former = self._as_in_log()

    # ---------------------------------------------------------------- views

    @property
    def is_empty(self) -> bool:
        """Whether there are no members, and nobody waits to become one."""
        return not self.members and not self._waiting

    @property
    def current(self) -> ConsumerGroupView:
        """The group with the changes that are not committed yet."""
        assignor = self.config.consumer.assignors[0]
        return ConsumerGroupView(self.epoch, self.target_epoch, self.members, self.target, assignor)

    @property
    def state(self) -> ConsumerGroupState:
        """The state, with the changes that are not committed yet."""
        return self.current.state

    def committed(self) -> ConsumerGroupView | ClassicGroupView | None:
        """The group as its committed records say; None where there are none."""
        return committed_view([*self._writes.formers(), self._former], self.current)

    @property
    def has_uncommitted(self) -> bool:
        """Whether a change of the group is not committed yet."""
        return bool(self._writes.formers())

    def subscribed_topics(self) -> tuple[str, ...] | None:
        """The topics that the members subscribe to."""
        names = {name: None for member in self.members.values() for name in self._topics_of(member)}
        return tuple(sorted(names))

    def tombstones(self) -> list[CoordinatorRecord]:
        """The records that remove the group from the log, in Kafka's order."""
        return group_tombstones(self.group_id, self.members)

    def drain(self) -> list[Effect]:
        """Take the effects; the list is empty afterwards."""
        effects = self.effects.copy()
        self.effects.clear()
        return effects

    # ---------------------------------------------------------------- heartbeats

    def heartbeat(self, request: HeartbeatRequest, token: Any, now_ms: int, wall_ms: int) -> None:
        """Join, stay or leave. Answered at once where nothing changes, else when the change is committed."""
        if request.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
            self._leave(request, token, now_ms, wall_ms)
        elif self._waiting.must_wait(now_ms) and self._needs_target(request):
            if not self._waiting.has_room_for(request):
                self._stay(self._waiting.take(), now_ms)
            self._wait(request, token)
        else:
            self._stay([(request, token)], now_ms)

    def _needs_target(self, request: HeartbeatRequest) -> bool:
        """Whether the heartbeat, if it is accepted, may be answered only after a new target assignment."""
        before = self.known(request.member_id, request.instance_id)
        is_behind = self.epoch > self.target_epoch or self.are_topics_stale
        return is_behind or has_different_subscription(before, updated_metadata(before, request))

    def _wait(self, request: HeartbeatRequest, token: Any) -> None:
        if not self._waiting:
            self.timers.set("assignment", "", self._waiting.next_assignment_ms)
        self._waiting.add(request, token)

    def known(self, member_id: str, instance_id: str | None) -> ConsumerGroupMember | None:
        """The member with that id, or the one that holds the instance."""
        return self.members.get(self._static_ids.get(instance_id or "", member_id))

    def refusal(self, request: HeartbeatRequest) -> HeartbeatResult | None:
        """The response that refuses the heartbeat; None where it is accepted."""
        member = self.known(request.member_id, request.instance_id)
        if self.is_closed:
            return HeartbeatResult(ErrorCode.NOT_COORDINATOR)
        if member is None:
            if request.member_epoch != JOIN_EPOCH:
                return refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {request.member_id} is not a member of the group.")
            if len(self.members) >= self.config.consumer.max_size:
                return refused(ErrorCode.GROUP_MAX_SIZE_REACHED, "The consumer group has reached its maximum size.")
            return None
        return refusal_of_member(request, member)

    def _stay(self, heartbeats: Iterable[Heartbeat], now_ms: int) -> None:
        """Take the members of these heartbeats into the group, as one change and one write, and answer them."""
        self._take_in(heartbeats, now_ms)
        self._flush()

    def _take_in(self, heartbeats: Iterable[Heartbeat], now_ms: int) -> None:
        entered: dict[str, tuple[ConsumerGroupMember | None, ConsumerGroupMember, HeartbeatRequest, Any]] = {}
        must_grow = False
        for request, token in heartbeats:
            refusal = self.refusal(request)
            before = self.known(request.member_id, request.instance_id)
            if refusal is not None:
                self.reply(token, refusal)
            elif before is not None and before.member_id in entered:
                self._wait(request, token)
            else:
                subscription = updated_metadata(before, request)
                self._note_rights(request, subscription)
                member = self._enter(before, request.member_id, subscription)
                must_grow |= has_different_subscription(before, subscription)
                entered[member.member_id] = before, member, request, token
        self._check_target(now_ms, must_grow=must_grow)
        for before, member, request, token in entered.values():
            owned = () if request.member_epoch == JOIN_EPOCH else request.owned
            after = self._advance(before, member, owned)
            self.start_session(after, now_ms)
            self.timers.watch_revocation(before, after, now_ms)
            if before is not None and before.subscription.classic is not None:
                for kind in ("join", "sync"):
                    self.timers.cancel(kind, after.member_id)
            is_news = request.is_full or before is None or after.assigned != before.assigned
            assignment = after.assigned if is_news else None
            result = HeartbeatResult(ErrorCode.NONE, None, after.member_id, after.epoch, assignment)
            self._writes.answer(token, result)

    def _note_rights(self, request: HeartbeatRequest, subscription: MemberMetadataValue) -> None:
        """The member of the request gets no topics by its regular expression that it may not see."""
        if request.may_see is not None and subscription.topic_regex:
            self.are_topics_stale |= request.member_id not in self._may_see
            self._may_see[request.member_id] = request.may_see

    def update_member(
        self,
        before: ConsumerGroupMember | None,
        member_id: str,
        subscription: MemberMetadataValue,
        owned: PartitionIds | None,
        now_ms: int,
    ) -> ConsumerGroupMember:
        """Update a member from a request, and move it a step towards its target assignment.

        `before` holds its place now: itself, the static member that it replaces, or None. `owned` as in `reconcile`.
        """
        member = self._enter(before, member_id, subscription)
        self._check_target(now_ms, must_grow=has_different_subscription(before, subscription))
        return self._advance(before, member, owned)

    def _enter(
        self, before: ConsumerGroupMember | None, member_id: str, subscription: MemberMetadataValue
    ) -> ConsumerGroupMember:
        """Put a member with the subscription in its place."""
        member = ConsumerGroupMember(member_id, subscription) if before is None else before
        if member.member_id != member_id:
            member = self._take_over(member, member_id)
        elif member.has_left:
            member = rejoined(member)
        if before is None or member.member_id != before.member_id or subscription != before.subscription:
            member = replace(member, subscription=subscription)
            self._write(member_metadata_record(self.group_id, member_id, subscription))
        self._put(member)
        return member

    def _advance(
        self, before: ConsumerGroupMember | None, member: ConsumerGroupMember, owned: PartitionIds | None
    ) -> ConsumerGroupMember:
        """Move the member a step towards its target assignment."""
        target = self.target.get(member.member_id, ())
        is_changed = has_different_subscription(before, member.subscription)
        topics = dict(self._found_topics(member)) if is_changed else None
        after = reconcile(member, self.target_epoch, target, owned, self._is_free_for(member), topics)
        sometimes(after.state is MemberState.UNRELEASED, "a member waited for partitions that others had not given up")
        self._put(after)
        if before is None or member.member_id != before.member_id or after.current() != before.current():
            self._write(current_record(self.group_id, member.member_id, after.current()))
        return after

    def _is_free_for(self, member: ConsumerGroupMember) -> Callable[[PartitionId], bool]:
        return lambda part: self._owners.get(part, member.member_id) == member.member_id

    def is_waiting_for_others(self, member: ConsumerGroupMember) -> bool:
        """Whether a partition of the member's target still belongs to another member."""
        is_free = self._is_free_for(member)
        return not all(map(is_free, self.target.get(member.member_id, ())))

    def _take_over(self, member: ConsumerGroupMember, member_id: str) -> ConsumerGroupMember:
        """Give the place of a static member to its new id."""
        target = self.target.get(member.member_id, ())
        self.remove(member)
        self.target[member_id] = target
        self._write(target_record(self.group_id, member_id, target))
        return rejoined(replace(member, member_id=member_id))

    def _leave(self, request: HeartbeatRequest, token: Any, now_ms: int, wall_ms: int) -> None:
        if self._waiting.has(request.member_id):
            self._take_in(self._waiting.take(), now_ms)
        refusal = self.refusal(request)
        member = self.known(request.member_id, request.instance_id)
        if refusal is not None or member is None:
            self.reply(token, refusal)
            self._flush()
            return
        result = HeartbeatResult(ErrorCode.NONE, None, member.member_id, request.member_epoch)
        if request.member_epoch == LEAVE_STATIC_EPOCH and member.instance_id is not None:
            away = replace(member, epoch=LEAVE_STATIC_EPOCH, state=MemberState.STABLE, revoking=())
            self._put(away)
            self._write(current_record(self.group_id, away.member_id, away.current()))
            self.timers.cancel("rebalance", member.member_id)
            self.finish(token, result)
        else:
            self.remove(member)
            self.after_removal(token, result, now_ms, wall_ms)

    def after_removal(self, token: Any, result: Result | None, now_ms: int, wall_ms: int) -> None:
        """After members were removed: a new epoch, or a classic group where only classic members are left."""
        if self.may_become_classic():
            self.become_classic(token, result, now_ms, wall_ms, must_rebalance=True)
        else:
            self._check_epoch(must_grow=True)
            self.finish(token, result or HeartbeatResult())

    def may_become_classic(self) -> bool:
        """Whether all members use the classic protocol, and a downgrade is allowed."""
        return (
            self.config.consumer.migration_policy.downgrades
            and 0 < len(self.members) <= self.config.classic.max_size
            and all(member.subscription.classic is not None for member in self.members.values())
        )

    def become_classic(
        self,
        token: Any,
        result: Result | None,
        now_ms: int,
        wall_ms: int,
        *,
        must_rebalance: bool,
    ) -> None:
        """Replace this group by a classic group with the same members, whose generation is the epoch.

        Where a rebalance follows, the next generation is written instead. Otherwise another coordinator that loads the
        group before the rebalance is complete would let the members go on, and no member would read the partitions of
        the one that left.
        """
        state = ConsumerState(self.group_id, self.epoch, self.members.values(), self.target)
        classic = downgraded(state, self.config.classic, self.topics, wall_ms)
        value = classic.value()
        self._writes.records += self.tombstones()
        self._write(classic_group_record(self.group_id, value._replace(generation=value.generation + must_rebalance)))
        self.finish(token, result or HeartbeatResult())
        self.close(ErrorCode.NOT_COORDINATOR)
        classic.begin_after_conversion(now_ms, wall_ms, must_rebalance=must_rebalance)
        self.effects.append(ReplaceGroup(classic))

    # ---------------------------------------------------------------- epochs and targets

    def _check_epoch(self, *, must_grow: bool) -> None:
        """Begin a new group epoch when members, subscriptions or topics have changed."""
        if not must_grow and not self.are_topics_stale:
            return
        found = self._hash_topics()
        self.are_topics_stale = False
        if must_grow or found != self.metadata_hash:
            self.epoch += 1
            self.metadata_hash = found
            self._write(epoch_record(ConsumerGroupKey(RecordType.GROUP, self.group_id), EpochValue(self.epoch, found)))

    def _check_target(self, now_ms: int, *, must_grow: bool) -> None:
        """Compute a target assignment if there is a new group epoch."""
        self._check_epoch(must_grow=must_grow)
        if self.epoch <= self.target_epoch:
            return
        counts: dict[Any, int] = {}
        subscriptions = {}
        for member in self.members.values():
            found = self._found_topics(member)
            counts |= dict(found)
            subscriptions[member.member_id] = tuple(topic_id for topic_id, _ in found)
        target = ASSIGNORS[self.current.assignor](subscriptions, counts, self.target)
        for member_id, parts in target.items():
            if self.target.get(member_id) != parts:
                self._write(target_record(self.group_id, member_id, parts))
        self.target = target
        self.target_epoch = self.epoch
        self._waiting.assigned(now_ms, len(self.members))
        self._write(epoch_record(ConsumerGroupKey(RecordType.TARGET, self.group_id), EpochValue(self.target_epoch)))

    def _topics_of(self, member: ConsumerGroupMember) -> list[str]:
        names = dict.fromkeys(member.subscription.topic_names)
        if member.subscription.topic_regex:
            found = matching(member.subscription.topic_regex, self.topics)
            may_see = self._may_see.get(member.member_id)
            names |= dict.fromkeys(found if may_see is None else filter(may_see, found))
        return list(names)

    def _found_topics(self, member: ConsumerGroupMember) -> list[tuple[UUID, int]]:
        return [topic for name in self._topics_of(member) if (topic := self.topics.find(name)) is not None]

    def _hash_topics(self) -> int:
        text = repr([(name, self.topics.find(name)) for name in self.subscribed_topics() or ()])
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big", signed=True)

    # ---------------------------------------------------------------- sessions and time-outs

    def on_timer(self, name: TimerName, now_ms: int, wall_ms: int) -> None:
        """Answer those who wait, or remove a member whose session has expired or that did not do its step in time."""
        if name.kind == "assignment":
            self._stay(self._waiting.take(), now_ms)
            return
        member = self.members.get(name.member_id)
        if member is None:
            return
        if name.kind == "session" and not self.timers.has_expired(member.member_id, now_ms):
            return
        sometimes(name.kind == "session", "a member's session expired")
        sometimes(name.kind == "rebalance", "a member was removed because it did not give up its partitions in time")
        self.remove(member)
        self.after_removal(None, None, now_ms, wall_ms)

    def start_session(self, member: ConsumerGroupMember, now_ms: int) -> None:
        """Start or extend the member's session."""
        classic = member.subscription.classic
        timeout_ms = self.config.consumer.session_timeout_ms if classic is None else classic.session_timeout_ms
        self.timers.start_session(member.member_id, now_ms, timeout_ms)

    # ---------------------------------------------------------------- commits

    def check_commit(self, member_id: str, instance_id: str | None, epoch: int, now_ms: int) -> ErrorCode:
        """NONE where a member with this epoch may commit. A commit without an epoch needs an empty group."""
        if epoch < 0 and not self.members:
            return ErrorCode.NONE
        error = self.check_fetch(member_id, epoch)
        sometimes(error == ErrorCode.STALE_MEMBER_EPOCH, "a commit arrived in a former epoch of its member")
        return error

    def check_transactional_commit(self, member_id: str, instance_id: str | None, epoch: int) -> ErrorCode:
        """NONE where a transaction may commit for a member with this epoch (KIP-447).

        Producers that do not send the group's metadata name no member; they are fenced by their epoch alone.
        """
        names_no_member = epoch == -1 and not member_id and instance_id is None
        if names_no_member or (epoch < 0 and not self.members):
            return ErrorCode.NONE
        error = self.check_fetch(member_id, epoch)
        is_stale = error == ErrorCode.STALE_MEMBER_EPOCH
        sometimes(is_stale, "a transaction committed offsets in a former epoch of its member")
        # Clients of this API know no STALE_MEMBER_EPOCH.
        return ErrorCode.ILLEGAL_GENERATION if is_stale else error

    def uses_consumer_protocol(self, member_id: str) -> bool:
        """Whether the member exists and uses the consumer protocol."""
        member = self.members.get(member_id)
        return member is not None and member.subscription.classic is None

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """NONE where a member with this epoch may read offsets. Tools send neither id nor epoch."""
        if not member_id and member_epoch < 0:
            return ErrorCode.NONE if member_id is None else ErrorCode.UNKNOWN_MEMBER_ID
        member = self.members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member.epoch == member_epoch:
            return ErrorCode.NONE
        return ErrorCode.STALE_MEMBER_EPOCH if member.subscription.classic is None else ErrorCode.ILLEGAL_GENERATION

    # ---------------------------------------------------------------- writes and the end

    def on_persisted(self, tag: PendingWrite, error: ErrorCode, now_ms: int, wall_ms: int) -> None:
        """The write of a change is committed, or has failed with `error` and may be in the log all the same."""
        self._writes.end(tag, error)
        if error:
            sometimes(True, "a change of a consumer group could not be written")
            self.effects.append(Reload())

    def on_refused(self, tag: PendingWrite, error: ErrorCode, now_ms: int, wall_ms: int) -> None:
        """The log has refused the write of the last event, so the group is again what it was before."""
        sometimes(True, "the log refused a change of a consumer group")
        if error == ErrorCode.UNKNOWN_SERVER_ERROR and len(tag.answers) > 1:
            sometimes(True, "the records of a wave of members were too large for one batch")
            self._waiting.halve()
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE  # they try again, and fewer of them wait for each other
        self._writes.end(tag, error)
        if tag.former.is_in_log:
            self._return_to(tag.former, now_ms)
            return
        self.close(ErrorCode.NOT_COORDINATOR)
        if tag.former.classic is None:
            self.effects.append(ReplaceGroup(None))
        else:
            classic, state = tag.former.classic
            reopen(classic, state, now_ms, wall_ms)
            self.effects.append(ReplaceGroup(classic))

    def _return_to(self, former: FormerState, now_ms: int) -> None:
        for member_id in former.members:
            if member_id in self.members:
                self._drop(self.members[member_id])
        for member in former.members.values():
            if member is not None:
                self._put(member)
        self.epoch, self.target_epoch, self.metadata_hash = former.epoch, former.target_epoch, former.metadata_hash
        self.target = former.target
        self.are_topics_stale = True
        self.is_closed = False
        self._former = self._as_in_log()
        for member in self.members.values():
            if not self.timers.has_session(member.member_id):
                self.start_session(member, now_ms)
                self.timers.start_revocation(member, now_ms)

    def _as_in_log(self) -> FormerState:
        return FormerState(self.epoch, self.target_epoch, self.metadata_hash, self.target, is_in_log=True)

    def close(self, error: ErrorCode) -> None:
        """The group moves to another broker or changes its protocol: cancel all timers."""
        self.is_closed = True
        self.timers.cancel("assignment", "")
        for _, token in self._waiting.take():
            self.reply(token, HeartbeatResult(ErrorCode.NOT_COORDINATOR))
        for member_id in self.members:
            self.timers.forget(member_id)

    def finish(self, token: Any, result: Result) -> None:
        """Write the pending records, and answer when they and all before them are committed."""
        self._writes.answer(token, result)
        self._flush()

    def _flush(self) -> None:
        if self._writes.flush(self._former):
            self._former = self._as_in_log()

    def _put(self, member: ConsumerGroupMember) -> None:
        self._former.note(member.member_id, self.members.get(member.member_id))
        self._release(member.member_id)
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self._static_ids[member.instance_id] = member.member_id
        for part in (*member.assigned, *member.revoking):
            self._owners[part] = member.member_id

    def remove(self, member: ConsumerGroupMember) -> None:
        """Remove the member. The caller then updates epoch and target."""
        self._writes.records += member_tombstones(self.group_id, member.member_id)
        self._former.note(member.member_id, member)
        self._drop(member)
        self.target = self._former.changeable(self.target)
        self.target.pop(member.member_id, None)

    def _drop(self, member: ConsumerGroupMember) -> None:
        self._release(member.member_id)
        del self.members[member.member_id]
        self._may_see.pop(member.member_id, None)
        if member.instance_id is not None:
            self._static_ids.pop(member.instance_id, None)
        self.classic_protocol.forget(member.member_id)
        self.timers.forget(member.member_id)

    def _release(self, member_id: str) -> None:
        old = self.members.get(member_id)
        for part in (*old.assigned, *old.revoking) if old is not None else ():
            if self._owners.get(part) == member_id:
                del self._owners[part]

    def _write(self, record: CoordinatorRecord) -> None:
        self._writes.records.append(record)

    def reply(self, token: Any, result: Any) -> None:
        """Answer the request that waits under `token`; None for no request."""
        if token is not None:
            self.effects.append(Reply(token, result))
