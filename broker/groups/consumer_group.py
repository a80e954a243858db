"""A group of the consumer protocol (KIP-848): the coordinator assigns, and leads each member there by heartbeats.

Three numbers keep everybody honest. The group's epoch grows with every change of members, subscriptions or topics. The
target assignment is made for an epoch. A member's epoch is the one whose target it has reached, or is waiting to reach
without reading anything that is not its own; see `consumer_members`. A member that speaks for another epoch than the
coordinator knows is fenced, and begins again at 0.

What a heartbeat changes is written first and answered when it is committed. Should the log refuse, what is in memory
is no longer what is known: the group asks to be loaded anew (`Reload`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from ...wire.errors import ErrorCode
from .assignors import ASSIGNORS, PartitionId, Parts
from .config import ConsumerConfig
from .consumer_members import JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH, ConsumerMember, MemberState, reconcile
from .consumer_records import (
    ConsumerKey,
    ConsumerKind,
    EpochValue,
    SubscriptionValue,
    current_record,
    epoch_record,
    subscription_record,
    target_record,
    tombstone,
)
from .effects import CancelTimer, Effect, Persist, Reload, Reply, SetTimer, TimerName
from .records import GroupRecord
from .subscription import CONSUMER_PROTOCOL_TYPE
from .topics import Topics, matching


class ConsumerGroupState(StrEnum):
    """Named as Kafka's admin APIs name them."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


@dataclass(frozen=True, slots=True)
class HeartbeatRequest:
    """ConsumerGroupHeartbeat; None and -1 stand for what has not changed since the last one."""

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
    owned: Parts | None = None

    @property
    def is_full(self) -> bool:
        """It tells everything, as a member does that may have missed an answer."""
        return self.member_epoch == JOIN_EPOCH or (
            self.rebalance_timeout_ms != -1
            and (self.topic_names is not None or self.topic_regex is not None)
            and self.owned is not None
        )


@dataclass(frozen=True, slots=True)
class HeartbeatResult:
    """The answer; `assignment` None where it has not changed."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    member_id: str = ""
    member_epoch: int = 0
    assignment: Parts | None = None


@dataclass(frozen=True, slots=True)
class _Answer:
    token: Any
    result: HeartbeatResult


class ConsumerGroup:
    """One group. Like `ClassicGroup`: events in, `effects` out."""

    kind = "consumer"
    protocol_type = CONSUMER_PROTOCOL_TYPE
    is_simple = False
    state_timestamp_ms = -1

    def __init__(self, group_id: str, config: ConsumerConfig, topics: Topics) -> None:
        self.group_id = group_id
        self.config = config
        self.epoch = 0
        self.target_epoch = 0
        self.members: dict[str, ConsumerMember] = {}
        self.target: dict[str, Parts] = {}
        self.metadata_hash = 0
        self.effects: list[Effect] = []
        self.is_carrying = False
        self.are_topics_stale = True
        """Topics may have changed since the group last looked."""
        self._topics = topics
        self._static_ids: dict[str, str] = {}
        self._owners: dict[PartitionId, str] = {}
        self._deadlines: dict[str, int] = {}
        self._records: list[GroupRecord] = []
        self._is_closed = False

    def restore(self, now_ms: int) -> None:
        """All records are replayed into the fields above: find what follows from them, and begin all sessions."""
        for member in list(self.members.values()):
            self._put(member)
            self._start_session(member.member_id, now_ms)
            if member.state is MemberState.UNREVOKED:
                self._start_revocation(member, now_ms)

    # ---------------------------------------------------------------- views

    @property
    def is_empty(self) -> bool:
        """No members."""
        return not self.members

    @property
    def state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.target_epoch:
            return ConsumerGroupState.ASSIGNING
        settled = all(
            one.state is MemberState.STABLE and one.epoch == self.target_epoch for one in self.members.values()
        )
        return ConsumerGroupState.STABLE if settled else ConsumerGroupState.RECONCILING

    @property
    def assignor(self) -> str:
        """The assignor that most members ask for; the first configured one where none does."""
        votes: dict[str, int] = {}
        for member in self.members.values():
            if member.subscription.assignor is not None:
                votes[member.subscription.assignor] = votes.get(member.subscription.assignor, 0) + 1
        return max(votes, key=lambda name: votes[name]) if votes else self.config.assignors[0]

    def subscribed_topics(self) -> tuple[str, ...] | None:
        """Of all members together."""
        names = {name: None for member in self.members.values() for name in self._topics_of(member)}
        return tuple(sorted(names))

    def tombstones(self) -> list[GroupRecord]:
        """The end of the group in the log."""
        rows = [record for member_id in self.members for record in self._member_tombstones(member_id)]
        rows += [tombstone(ConsumerKey(kind, self.group_id)) for kind in (ConsumerKind.TARGET, ConsumerKind.GROUP)]
        return rows

    def drain(self) -> list[Effect]:
        """What is to be done; it is forgotten here."""
        effects, self.effects = self.effects, []
        return effects

    # ---------------------------------------------------------------- heartbeats

    def heartbeat(self, request: HeartbeatRequest, token: Any, now_ms: int) -> None:
        """Join, stay or leave. Answered at once where nothing changes, else when it is committed."""
        member = self._known(request)
        refusal = self._refuse(request, member)
        if refusal is not None:
            self._reply(token, refusal)
        elif request.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
            self._leave(member, request, token)
        else:
            self._stay(member, request, token, now_ms)

    def _known(self, request: HeartbeatRequest) -> ConsumerMember | None:
        if request.instance_id is not None and request.instance_id in self._static_ids:
            return self.members[self._static_ids[request.instance_id]]
        return self.members.get(request.member_id)

    def _refuse(self, request: HeartbeatRequest, member: ConsumerMember | None) -> HeartbeatResult | None:
        joins = request.member_epoch == JOIN_EPOCH
        if self._is_closed:
            return HeartbeatResult(ErrorCode.NOT_COORDINATOR)
        if member is None:
            if not joins:
                return _refused(
                    ErrorCode.UNKNOWN_MEMBER_ID, f"Member {request.member_id} is not a member of the group."
                )
            if len(self.members) >= self.config.max_size:
                return _refused(ErrorCode.GROUP_MAX_SIZE_REACHED, "The consumer group has reached its maximum size.")
            return None
        if request.instance_id is not None and member.member_id != request.member_id:
            if not joins:
                return _refused(ErrorCode.FENCED_INSTANCE_ID, f"Instance {request.instance_id} is held by another.")
            if not member.has_left:
                return _refused(ErrorCode.UNRELEASED_INSTANCE_ID, f"Instance {request.instance_id} is in use.")
            return None
        if request.member_epoch <= JOIN_EPOCH or request.member_epoch == member.epoch:
            return None
        resent = request.member_epoch == member.previous_epoch and _within(request.owned, member.assigned)
        if request.member_epoch < member.epoch and resent:
            return None  # the answer that told the new epoch was lost
        return _refused(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The member's epoch is {member.epoch}, not {request.member_epoch}; it must rejoin.",
        )

    def _stay(self, member: ConsumerMember | None, request: HeartbeatRequest, token: Any, now_ms: int) -> None:
        before = member
        if member is None:
            member = ConsumerMember(request.member_id, _updated(None, request))
        elif member.member_id != request.member_id:
            member = self._take_over(member, request.member_id)
        subscription = _updated(member.subscription, request)
        if before is None or member.member_id != before.member_id or subscription != before.subscription:
            member = replace(member, subscription=subscription)
            self._write(subscription_record(self.group_id, member.member_id, subscription))
        self._put(member)
        self._check_epoch(must_grow=before is None or _reads_otherwise(before.subscription, subscription))
        self._check_target()
        after = self._reconciled(member, request)
        if after != before:
            self._put(after)
            self._write(current_record(self.group_id, after.member_id, after.current()))
        self._start_session(after.member_id, now_ms)
        self._watch_revocation(before, after, now_ms)
        tells = request.is_full or before is None or after.assigned != before.assigned
        assignment = after.assigned if tells else None
        self._finish(token, HeartbeatResult(ErrorCode.NONE, None, after.member_id, after.epoch, assignment))

    def _reconciled(self, member: ConsumerMember, request: HeartbeatRequest) -> ConsumerMember:
        if member.has_left:  # it begins anew; what it had is its own to take again
            member = replace(member, epoch=JOIN_EPOCH, state=MemberState.UNRELEASED, revoking=())
        target = self.target.get(member.member_id, ())

        def is_free(part: PartitionId) -> bool:
            return self._owners.get(part, member.member_id) == member.member_id

        owned = () if request.member_epoch == JOIN_EPOCH else request.owned
        return reconcile(member, self.target_epoch, target, owned, is_free)

    def _take_over(self, member: ConsumerMember, member_id: str) -> ConsumerMember:
        """A static member returns under a new id, to the place it has left."""
        target = self.target.pop(member.member_id, ())
        self._remove(member)
        self.target[member_id] = target
        self._write(target_record(self.group_id, member_id, target))
        return replace(member, member_id=member_id)

    def _leave(self, member: ConsumerMember | None, request: HeartbeatRequest, token: Any) -> None:
        if member is None:
            return
        if request.member_epoch == LEAVE_STATIC_EPOCH and member.instance_id is not None:
            away = replace(member, epoch=LEAVE_STATIC_EPOCH, state=MemberState.STABLE, revoking=())
            self._put(away)
            self._write(current_record(self.group_id, away.member_id, away.current()))
            self._cancel_timer("rebalance", member.member_id)
        else:
            self._remove(member)
            self._check_epoch(must_grow=True)
        self._finish(token, HeartbeatResult(ErrorCode.NONE, None, member.member_id, request.member_epoch))

    # ---------------------------------------------------------------- epochs and targets

    def _check_epoch(self, *, must_grow: bool) -> None:
        """A new epoch when members or subscriptions have changed, or topics they read."""
        if not must_grow and not self.are_topics_stale:
            return
        found = self._hash_topics()
        self.are_topics_stale = False
        if must_grow or found != self.metadata_hash:
            self.epoch += 1
            self.metadata_hash = found
            key = ConsumerKey(ConsumerKind.GROUP, self.group_id)
            self._write(epoch_record(key, EpochValue(self.epoch, self.metadata_hash)))

    def _check_target(self) -> None:
        """A new target assignment for a new epoch."""
        if self.epoch <= self.target_epoch:
            return
        counts: dict[Any, int] = {}
        subscriptions = {}
        for member in self.members.values():
            found = [topic for name in self._topics_of(member) if (topic := self._topics.find(name)) is not None]
            counts |= dict(found)
            subscriptions[member.member_id] = tuple(topic_id for topic_id, _ in found)
        target = ASSIGNORS[self.assignor](subscriptions, counts, self.target)
        for member_id, parts in target.items():
            if self.target.get(member_id) != parts:
                self._write(target_record(self.group_id, member_id, parts))
        self.target = target
        self.target_epoch = self.epoch
        self._write(epoch_record(ConsumerKey(ConsumerKind.TARGET, self.group_id), EpochValue(self.target_epoch)))

    def _topics_of(self, member: ConsumerMember) -> list[str]:
        names = dict.fromkeys(member.subscription.topic_names)
        if member.subscription.topic_regex:
            names |= dict.fromkeys(matching(member.subscription.topic_regex, self._topics))
        return list(names)

    def _hash_topics(self) -> int:
        text = repr([(name, self._topics.find(name)) for name in self.subscribed_topics() or ()])
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big", signed=True)

    # ---------------------------------------------------------------- time

    def on_timer(self, name: TimerName, now_ms: int, wall_ms: int) -> None:
        """A session is over, or a member has not given up in time what it must."""
        member = self.members.get(name.member_id)
        if member is None:
            return
        if name.kind == "session" and self._deadlines.get(member.member_id, 0) > now_ms:
            self._set_timer("session", member.member_id, self._deadlines[member.member_id])
            return
        self._remove(member)
        self._check_epoch(must_grow=True)
        self._finish(None, HeartbeatResult())

    def _start_session(self, member_id: str, now_ms: int) -> None:
        """The timer runs to the first deadline, and is set anew there when heartbeats have moved it on."""
        has_timer = member_id in self._deadlines
        self._deadlines[member_id] = now_ms + self.config.session_timeout_ms
        if not has_timer:
            self._set_timer("session", member_id, self._deadlines[member_id])

    def _watch_revocation(self, before: ConsumerMember | None, after: ConsumerMember, now_ms: int) -> None:
        was_revoking = before is not None and before.state is MemberState.UNREVOKED
        if after.state is not MemberState.UNREVOKED:
            if was_revoking:
                self._cancel_timer("rebalance", after.member_id)
        elif not was_revoking:
            self._start_revocation(after, now_ms)

    def _start_revocation(self, member: ConsumerMember, now_ms: int) -> None:
        timeout_ms = member.subscription.rebalance_timeout_ms
        self._set_timer("rebalance", member.member_id, now_ms + timeout_ms)

    # ---------------------------------------------------------------- commits

    def check_commit(self, member_id: str, instance_id: str | None, epoch: int, now_ms: int) -> ErrorCode:
        """Whether offsets may be committed by a member of this epoch, or by anybody when there are no members."""
        if epoch < 0 and not self.members:
            return ErrorCode.NONE
        return self.check_fetch(member_id, epoch)

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Whether offsets may be read; tools do not say who they are."""
        if not member_id and member_epoch < 0:
            return ErrorCode.NONE if member_id is None else ErrorCode.UNKNOWN_MEMBER_ID
        member = self.members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if member.epoch == member_epoch else ErrorCode.STALE_MEMBER_EPOCH

    # ---------------------------------------------------------------- log and end

    def on_persisted(self, tag: Any, error: ErrorCode, now_ms: int, wall_ms: int) -> None:
        """What a heartbeat changed is committed, or not."""
        if error:
            self._reply(tag.token, HeartbeatResult(error))
            self.effects.append(Reload())
        else:
            self._reply(tag.token, tag.result)

    def close(self, error: ErrorCode) -> None:
        """The group moves away or becomes another."""
        self._is_closed = True
        for member_id in self.members:
            self._cancel_timer("session", member_id)
            self._cancel_timer("rebalance", member_id)

    def _finish(self, token: Any, result: HeartbeatResult) -> None:
        """Answer when all is written that has been changed."""
        records, self._records = self._records, []
        if records:
            self.effects.append(Persist(tuple(records), _Answer(token, result)))
        else:
            self._reply(token, result)

    def _put(self, member: ConsumerMember) -> None:
        self._release(member.member_id)
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self._static_ids[member.instance_id] = member.member_id
        for part in (*member.assigned, *member.revoking):
            self._owners[part] = member.member_id

    def _remove(self, member: ConsumerMember) -> None:
        self._records += self._member_tombstones(member.member_id)
        self._release(member.member_id)
        del self.members[member.member_id]
        self.target.pop(member.member_id, None)
        self._deadlines.pop(member.member_id, None)
        if member.instance_id is not None:
            self._static_ids.pop(member.instance_id, None)
        self._cancel_timer("session", member.member_id)
        self._cancel_timer("rebalance", member.member_id)

    def _release(self, member_id: str) -> None:
        old = self.members.get(member_id)
        for part in (*old.assigned, *old.revoking) if old is not None else ():
            if self._owners.get(part) == member_id:
                del self._owners[part]

    def _member_tombstones(self, member_id: str) -> list[GroupRecord]:
        kinds: Iterable[ConsumerKind] = (
            ConsumerKind.CURRENT_MEMBER,
            ConsumerKind.TARGET_MEMBER,
            ConsumerKind.MEMBER,
        )
        return [tombstone(ConsumerKey(kind, self.group_id, member_id)) for kind in kinds]

    def _write(self, record: GroupRecord) -> None:
        self._records.append(record)

    def _reply(self, token: Any, result: HeartbeatResult) -> None:
        if token is not None:
            self.effects.append(Reply(token, result))

    def _set_timer(self, kind: str, member_id: str, deadline_ms: int) -> None:
        self.effects.append(SetTimer(TimerName(kind, member_id), deadline_ms))

    def _cancel_timer(self, kind: str, member_id: str) -> None:
        self.effects.append(CancelTimer(TimerName(kind, member_id)))


def _refused(error: ErrorCode, message: str) -> HeartbeatResult:
    return HeartbeatResult(error, message)


def _reads_otherwise(one: SubscriptionValue, other: SubscriptionValue) -> bool:
    return (one.topic_names, one.topic_regex, one.assignor) != (other.topic_names, other.topic_regex, other.assignor)


def _within(owned: Parts | None, assigned: Parts) -> bool:
    return owned is not None and all(part in assigned for part in owned)


def _updated(known: SubscriptionValue | None, request: HeartbeatRequest) -> SubscriptionValue:
    """What a member has said up to now. Joining, it says everything: what it leaves out is not there."""
    if known is None or request.member_epoch == JOIN_EPOCH:
        known = SubscriptionValue(None, None, "", "", (), None, -1, None)
    regex = request.topic_regex if request.topic_regex is not None else known.topic_regex
    return SubscriptionValue(
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
