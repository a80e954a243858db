"""A group of the classic protocol: the clients assign, the coordinator keeps them together (KIP-62, 345, 394, 814).

A rebalance has two phases. In the first, all members send JoinGroup, each with the protocols (assignors) that it
supports. When all have done so, or when the rebalance time-out is over, the members that did not are removed, a new
generation begins, and one member, the leader, gets the list of all members. In the second phase, the leader computes
the assignment and sends it with SyncGroup. When the assignment is in the log, the SyncGroup of each member is answered
with its own part. A request of an older generation is refused, so its sender joins again. Between rebalances,
heartbeats keep the sessions alive. A member that joins, leaves or expires starts a new rebalance.

The group is a plain object. Its methods take an event and the time (monotonic milliseconds) and append what must be
done to `effects`; the caller drains the effects and carries them out in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....runtime.invariants import sometimes
from ....wire.errors import ErrorCode
from ...coordinators.effects import Persist, Reply
from ...coordinators.record_fields import CoordinatorRecord
from ..effects import CancelTimer, Effect, JoinResult, SetTimer, SyncResult, TimerName
from ..group_config import ClassicConfig
from ..records.offset_and_classic_records import GroupMetadataValue, classic_group_record
from .classic_events import AssignmentWritten, EmptyWritten, JoinRequest, ReturnWritten, SyncRequest
from .classic_group_members import (
    ClassicGroupMember,
    ClassicGroupMembers,
    ClassicGroupState,
    member_values,
    membership_from,
    topics_of,
)

_JOIN_RETRY_MIN_MS = 1_000
"""Between two looks for a member that joins: clients choose the rebalance time-out, also 0 and negative ones."""
_JOIN = TimerName("join")
_SYNC = TimerName("sync")
_REBALANCING = (ClassicGroupState.PREPARING_REBALANCE, ClassicGroupState.COMPLETING_REBALANCE)


class ClassicGroup:
    """One group. `wall_ms` is the time of the wall clock, for the log."""

    def __init__(self, group_id: str, config: ClassicConfig) -> None:
        self.group_id = group_id
        self.config = config
        self.state = ClassicGroupState.EMPTY
        self.state_timestamp_ms = -1
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.members = ClassicGroupMembers()
        self.effects: list[Effect] = []
        self.is_applying_effects = False
        """Whether the coordinator is in the middle of carrying effects out."""
        self._is_initial = False
        """Whether the initial rebalance delay runs, in which the first members may gather."""
        self._has_new_member = False
        self._delay_left_ms = 0
        self._assigned_generation = -1
        """The generation whose assignments were written last: a leader that repeats its SyncGroup changes none."""

    @classmethod
    def restored(cls, group_id: str, config: ClassicConfig, value: GroupMetadataValue, now_ms: int) -> ClassicGroup:
        """The group as it is in the log. Every member gets a whole session from now on."""
        group = cls(group_id, config)
        group.generation = value.generation
        group.protocol_type = value.protocol_type or None
        group.protocol = value.protocol
        group.state_timestamp_ms = value.state_timestamp_ms
        group.members = membership_from(value)
        group.state = ClassicGroupState.STABLE if group.members.members else ClassicGroupState.EMPTY
        for member in group.members.members.values():
            group._start_session(member, now_ms, member.session_timeout_ms)
        return group

    def begin_after_conversion(self, now_ms: int, wall_ms: int, *, must_rebalance: bool) -> None:
        """Begin with the members of a former consumer group: start their sessions, and a rebalance if asked."""
        for member in self.members.members.values():
            self._start_session(member, now_ms, member.session_timeout_ms)
        if must_rebalance:
            self._prepare_rebalance(now_ms, wall_ms)

    # ---------------------------------------------------------------- views

    kind = "classic"
    """The group type, as ListGroups names it."""

    @property
    def is_simple(self) -> bool:
        """Whether there were never members, only committed offsets."""
        return self.protocol_type is None

    @property
    def is_empty(self) -> bool:
        """Whether there are no members and no ids given to new ones."""
        return self.state is ClassicGroupState.EMPTY and not self.members.pending

    def subscribed_topics(self) -> tuple[str, ...] | None:
        """The topics that the members subscribe to; None where the coordinator cannot read that."""
        return topics_of(self.members, self.protocol_type, self.protocol)

    def tombstones(self) -> list[CoordinatorRecord]:
        """The records that remove the group from the log."""
        return [] if self.is_simple else [classic_group_record(self.group_id, None)]

    def value(self, assignments: Mapping[str, bytes] | None = None) -> GroupMetadataValue:
        """The group as it is written to the log, with these assignments or else its present ones."""
        if assignments is None:
            assignments = {one.member_id: one.assignment for one in self.members.members.values()}
        rows = member_values(self.members, self.protocol, dict(assignments))
        leader = self.members.leader
        return GroupMetadataValue(
            self.protocol_type or "", self.generation, self.protocol, leader, self.state_timestamp_ms, rows
        )

    def drain(self) -> list[Effect]:
        """Take the effects; the list is empty afterwards."""
        effects, self.effects = self.effects, []
        return effects

    # ---------------------------------------------------------------- JoinGroup

    def join(self, request: JoinRequest, token: Any, now_ms: int, wall_ms: int) -> None:
        """JoinGroup. Answered at once when it is refused or changes nothing, else when the new generation begins."""
        error = self._refuse_join(request)
        if error:
            self._reply(token, JoinResult(error, request.member_id))
            if error is ErrorCode.GROUP_MAX_SIZE_REACHED and request.member_id:
                # The others would wait for it until the rebalance time-out.
                self._leave_one(request.member_id, request.instance_id)
                self._maybe_complete_join(now_ms, wall_ms)
        elif not request.member_id:
            self._join_new_member(request, token, now_ms, wall_ms)
        elif request.member_id in self.members.pending:
            self._add_member(request, request.member_id, token, now_ms, wall_ms)
        else:
            self._rejoin(request, token, now_ms, wall_ms)

    def _refuse_join(self, request: JoinRequest) -> ErrorCode:
        if self.state is ClassicGroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if not self._has_room_for(request):
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        if not self._shares_protocol(request):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if request.member_id and request.member_id not in self.members.pending:
            return self.members.check(request.member_id, request.instance_id)
        return ErrorCode.NONE

    def _has_room_for(self, request: JoinRequest) -> bool:
        members = self.members
        if self.state is ClassicGroupState.EMPTY:
            return True
        member = members.members.get(request.member_id)
        if self.state is ClassicGroupState.PREPARING_REBALANCE:
            joined = len(members.joining)
            return (member is not None and member.join_token is not None) or joined < self.config.max_size
        known = member is not None or (request.instance_id or "") in members.static_ids
        return known or len(members) < self.config.max_size

    def _shares_protocol(self, request: JoinRequest) -> bool:
        if not request.protocol_type or not request.protocols:
            return False
        if self.state is ClassicGroupState.EMPTY:
            return True
        return request.protocol_type == self.protocol_type and self.members.supports(request.protocols)

    def _join_new_member(self, request: JoinRequest, token: Any, now_ms: int, wall_ms: int) -> None:
        known = self.members.static_ids.get(request.instance_id) if request.instance_id is not None else None
        if known is not None:
            self._return_static(self.members.members[known], request, token, now_ms, wall_ms)
        elif request.instance_id is None and request.requires_known_id:
            self.members.pending[request.new_member_id] = None
            self._set_timer(TimerName("pending", request.new_member_id), now_ms + request.session_timeout_ms)
            self._reply(token, JoinResult(ErrorCode.MEMBER_ID_REQUIRED, request.new_member_id))
        else:
            self._add_member(request, request.new_member_id, token, now_ms, wall_ms)

    def _add_member(self, request: JoinRequest, member_id: str, token: Any, now_ms: int, wall_ms: int) -> None:
        if member_id in self.members.pending:
            self._cancel_timer(TimerName("pending", member_id))
        if self._is_initial:
            self._has_new_member = True
        member = ClassicGroupMember(
            member_id=member_id,
            instance_id=request.instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
            protocols=request.protocols,
            join_token=token,
            is_new=True,
        )
        if not len(self.members):
            self.protocol_type = request.protocol_type
        self.members.add(member)
        # The member cannot send heartbeats before it knows its id, so only this time-out can remove it.
        self._start_session(member, now_ms, self.config.new_member_join_timeout_ms)
        self._rebalance_or_complete(now_ms, wall_ms)

    def _rejoin(self, request: JoinRequest, token: Any, now_ms: int, wall_ms: int) -> None:
        member = self.members.members[request.member_id]
        unchanged = member.protocols == request.protocols
        if self.state is ClassicGroupState.COMPLETING_REBALANCE and unchanged:
            # The response to its last JoinGroup was lost.
            self._reply(token, self._join_result(member))
        elif self.state is ClassicGroupState.STABLE and unchanged and member.member_id != self.members.leader:
            self._reply(token, self._join_result(member))
        elif self.state is ClassicGroupState.EMPTY:
            self._reply(token, JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
        else:
            self._update(member, request, token)
            self._rebalance_or_complete(now_ms, wall_ms)

    def _update(self, member: ClassicGroupMember, request: JoinRequest, token: Any) -> None:
        self._answer_join(member, JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
        self.members.set_protocols(member, request.protocols)
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms
        member.join_token = token

    def _return_static(
        self, member: ClassicGroupMember, request: JoinRequest, token: Any, now_ms: int, wall_ms: int
    ) -> None:
        """A static member came back without its id: it gets a new id, and its former id is fenced."""
        old_id, old_leader = member.member_id, self.members.leader
        self._answer_join(member, JoinResult(ErrorCode.FENCED_INSTANCE_ID, old_id))
        self._answer_sync(member, SyncResult(ErrorCode.FENCED_INSTANCE_ID))
        self._end_session(member)
        self.members.rename(member, request.new_member_id)
        self.members.set_protocols(member, request.protocols)
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms
        member.client_id, member.client_host = request.client_id, request.client_host
        self._start_session(member, now_ms, member.session_timeout_ms)
        if self.state is ClassicGroupState.STABLE and self.members.elect_protocol() == self.protocol:
            is_leader = self.members.leader == member.member_id
            skips = is_leader and request.can_skip_assignment
            result = JoinResult(
                ErrorCode.NONE,
                member.member_id,
                self.generation,
                self.protocol_type,
                self.protocol,
                # An older client that learns that it is the leader would compute a new assignment (KIP-814).
                (self.members.leader if request.can_skip_assignment else old_leader) or "",
                skips,
                self._all_metadata() if skips else (),
            )
            self._persist(ReturnWritten(member.member_id, result, token))
            return
        member.join_token = token
        self._rebalance_or_complete(now_ms, wall_ms)

    # ---------------------------------------------------------------- rebalance, first phase: JoinGroup

    def _rebalance_or_complete(self, now_ms: int, wall_ms: int) -> None:
        if self.state is ClassicGroupState.PREPARING_REBALANCE:
            self._maybe_complete_join(now_ms, wall_ms)
        elif self.state is not ClassicGroupState.DEAD:
            self._prepare_rebalance(now_ms, wall_ms)

    def _prepare_rebalance(self, now_ms: int, wall_ms: int) -> None:
        if self.state is ClassicGroupState.COMPLETING_REBALANCE:
            self._answer_all_syncs(ErrorCode.REBALANCE_IN_PROGRESS, now_ms)
        self.members.unsynced.clear()
        self._cancel_timer(_SYNC)
        self._is_initial = self.state is ClassicGroupState.EMPTY
        self._enter(ClassicGroupState.PREPARING_REBALANCE, wall_ms)
        timeout_ms = self.members.rebalance_timeout_ms()
        if self._is_initial:
            delay_ms = self.config.initial_rebalance_delay_ms
            self._has_new_member = False
            self._delay_left_ms = max(timeout_ms - delay_ms, 0)
            if delay_ms > 0:
                self._set_timer(_JOIN, now_ms + delay_ms)
                return
            self._is_initial = False
        self._set_timer(_JOIN, now_ms + timeout_ms)
        self._maybe_complete_join(now_ms, wall_ms)

    def _maybe_complete_join(self, now_ms: int, wall_ms: int) -> None:
        is_over = not self._is_initial and self.members.have_all_joined
        if self.state is ClassicGroupState.PREPARING_REBALANCE and is_over:
            self._complete_join(now_ms, wall_ms)

    def _on_join_timer(self, now_ms: int, wall_ms: int) -> None:
        if self.state is not ClassicGroupState.PREPARING_REBALANCE:
            return
        if self._is_initial and self._has_new_member and self._delay_left_ms:
            self._has_new_member = False
            delay_ms = min(self.config.initial_rebalance_delay_ms, self._delay_left_ms)
            self._delay_left_ms -= delay_ms
            self._set_timer(_JOIN, now_ms + delay_ms)
            return
        self._complete_join(now_ms, wall_ms)

    def _complete_join(self, now_ms: int, wall_ms: int) -> None:
        """Begin a new generation with the members that have joined. Static members stay until their session expires."""
        self._is_initial = False
        self._cancel_timer(_JOIN)
        for member in list(self.members.members.values()):
            if member.join_token is None and member.instance_id is None:
                self._drop(member)
        if len(self.members) and not self.members.elect_joined_leader():
            self._set_timer(_JOIN, now_ms + max(self.members.rebalance_timeout_ms(), _JOIN_RETRY_MIN_MS))
            return
        self.generation += 1
        if not len(self.members):
            self.protocol = None
            self._enter(ClassicGroupState.EMPTY, wall_ms)
            self._persist(EmptyWritten(self.generation))
            return
        self.protocol = self.members.elect_protocol()
        self._enter(ClassicGroupState.COMPLETING_REBALANCE, wall_ms)
        self._set_timer(_SYNC, now_ms + self.members.rebalance_timeout_ms())
        for member in self.members.members.values():
            self.members.unsynced[member.member_id] = None
            if member.join_token is not None:
                self._answer_join(member, self._join_result(member))
                member.is_new = False
                self._extend_session(member, now_ms)

    def _join_result(self, member: ClassicGroupMember) -> JoinResult:
        leads = self.members.leader == member.member_id
        return JoinResult(
            ErrorCode.NONE,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol,
            self.members.leader or "",
            members=self._all_metadata() if leads else (),
        )

    def _all_metadata(self) -> tuple[tuple[str, str | None, bytes], ...]:
        return tuple(
            (one.member_id, one.instance_id, one.metadata(self.protocol)) for one in self.members.members.values()
        )

    # ---------------------------------------------------------------- rebalance, second phase: SyncGroup

    def sync(self, request: SyncRequest, token: Any, now_ms: int, wall_ms: int) -> None:
        """SyncGroup. Answered when the leader's assignment is in the log, at once when it already is."""
        error = self._refuse_sync(request)
        if error:
            self._reply(token, SyncResult(error))
            return
        member = self.members.members[request.member_id]
        self._on_synced(member.member_id)
        if self.state is ClassicGroupState.STABLE:
            self._extend_session(member, now_ms)
            self._reply(token, self._sync_result(member))
            return
        self._answer_sync(member, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
        member.sync_token = token
        if member.member_id == self.members.leader and self._assigned_generation != self.generation:
            self._assigned_generation = self.generation
            given = dict(request.assignments)
            assignments = {known: given.get(known, b"") for known in self.members.members}
            self._persist(AssignmentWritten(self.generation, assignments))

    def _refuse_sync(self, request: SyncRequest) -> ErrorCode:
        if self.state is ClassicGroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = self._check_member(request.member_id, request.instance_id, request.generation)
        if error:
            return error
        if (request.protocol_type is not None and request.protocol_type != self.protocol_type) or (
            request.protocol_name is not None and request.protocol_name != self.protocol
        ):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if self.state is ClassicGroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.UNKNOWN_MEMBER_ID if self.state is ClassicGroupState.EMPTY else ErrorCode.NONE

    def _on_synced(self, member_id: str) -> None:
        if self.members.unsynced.pop(member_id, "") is None and not self.members.unsynced:
            self._cancel_timer(_SYNC)

    def _on_sync_timer(self, now_ms: int, wall_ms: int) -> None:
        """Remove the members that joined but did not send SyncGroup in time."""
        if self.state not in (ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.STABLE):
            return
        late = [self.members.members[one] for one in self.members.unsynced if one in self.members.members]
        for member in late:
            self._drop(member)
        if late:
            self._rebalance_or_complete(now_ms, wall_ms)

    def _sync_result(self, member: ClassicGroupMember) -> SyncResult:
        return SyncResult(ErrorCode.NONE, self.protocol_type, self.protocol, member.assignment)

    # ---------------------------------------------------------------- results of writes

    def on_persisted(self, tag: Any, error: ErrorCode, now_ms: int, wall_ms: int) -> None:
        """The write of `Persist(tag)` is committed, or failed with `error`."""
        if isinstance(tag, AssignmentWritten):
            self._on_assignment_written(tag, error, now_ms, wall_ms)
        elif isinstance(tag, ReturnWritten):
            member = self.members.members.get(tag.member_id)
            if error:
                self._reply(tag.token, JoinResult(error, tag.member_id))
                if member is not None:  # the log does not have the new id, so all members must join again
                    self._rebalance_or_complete(now_ms, wall_ms)
            elif member is None or tag.result.generation != self.generation:
                self._reply(tag.token, JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, tag.member_id))
            else:
                self._reply(tag.token, tag.result)

    def _on_assignment_written(self, tag: AssignmentWritten, error: ErrorCode, now_ms: int, wall_ms: int) -> None:
        if self.state is not ClassicGroupState.COMPLETING_REBALANCE or tag.generation != self.generation:
            return
        if error:
            sometimes(True, "the assignments of a classic group could not be written")
            self._answer_all_syncs(error, now_ms)
            self._prepare_rebalance(now_ms, wall_ms)
            return
        self._enter(ClassicGroupState.STABLE, wall_ms)
        for member in self.members.members.values():
            member.assignment = tag.assignments.get(member.member_id, b"")
            if member.sync_token is not None:
                self._answer_sync(member, self._sync_result(member))
                self._extend_session(member, now_ms)

    # ---------------------------------------------------------------- Heartbeat, LeaveGroup, sessions

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> ErrorCode:
        """Heartbeat: NONE, or REBALANCE_IN_PROGRESS when the member must join again, or why it is refused."""
        if self.state is ClassicGroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = self._check_member(member_id, instance_id, generation)
        if error:
            return error
        if self.state is ClassicGroupState.EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
        self._extend_session(self.members.members[member_id], now_ms)
        rebalancing = self.state is ClassicGroupState.PREPARING_REBALANCE
        return ErrorCode.REBALANCE_IN_PROGRESS if rebalancing else ErrorCode.NONE

    def leave(self, leavers: list[tuple[str, str | None]], now_ms: int, wall_ms: int) -> list[ErrorCode]:
        """LeaveGroup: remove members by id, or by instance id where the id is empty. Returns one code for each."""
        before = len(self.members)
        codes = [self._leave_one(member_id, instance_id) for member_id, instance_id in leavers]
        if len(self.members) < before:
            self._rebalance_or_complete(now_ms, wall_ms)
        else:
            self._maybe_complete_join(now_ms, wall_ms)
        return codes

    def _leave_one(self, member_id: str, instance_id: str | None) -> ErrorCode:
        if not member_id and instance_id is not None:
            member_id = self.members.static_ids.get(instance_id, "")
        elif instance_id is None and member_id in self.members.pending:
            del self.members.pending[member_id]
            self._cancel_timer(TimerName("pending", member_id))
            return ErrorCode.NONE
        error = self.members.check(member_id, instance_id)
        if not error:
            self._drop(self.members.members[member_id])
        return error

    def on_timer(self, name: TimerName, now_ms: int, wall_ms: int) -> None:
        """A timer that `SetTimer` set has fired."""
        if name.kind == "session":
            self._on_session_timer(name.member_id, now_ms, wall_ms)
        elif name.kind == "pending":
            if name.member_id in self.members.pending:
                del self.members.pending[name.member_id]
                self._maybe_complete_join(now_ms, wall_ms)
        elif name.kind == "join":
            self._on_join_timer(now_ms, wall_ms)
        elif name.kind == "sync":
            self._on_sync_timer(now_ms, wall_ms)

    def _on_session_timer(self, member_id: str, now_ms: int, wall_ms: int) -> None:
        """Remove a member whose session has expired. A member whose own request waits here stays."""
        member = self.members.members.get(member_id)
        if member is None:
            return
        if not member.session.has_expired(now_ms):
            self._set_session_timer(member)
        elif member.is_new or not member.is_awaiting:
            self._drop(member)
            if self.state in (ClassicGroupState.STABLE, *_REBALANCING):
                self._rebalance_or_complete(now_ms, wall_ms)

    def _extend_session(self, member: ClassicGroupMember, now_ms: int) -> None:
        self._start_session(member, now_ms, member.session_timeout_ms)

    def _start_session(self, member: ClassicGroupMember, now_ms: int, timeout_ms: int) -> None:
        if member.session.extend(now_ms, timeout_ms):
            self._set_session_timer(member)

    def _set_session_timer(self, member: ClassicGroupMember) -> None:
        self._set_timer(TimerName("session", member.member_id), member.session.deadline_ms)

    def _end_session(self, member: ClassicGroupMember) -> None:
        member.session.end()
        self._cancel_timer(TimerName("session", member.member_id))

    # ---------------------------------------------------------------- commits

    def check_commit(self, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> ErrorCode:
        """NONE where this member and generation may commit. A commit without a generation needs an empty group."""
        if self.state is ClassicGroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation < 0 and self.state is ClassicGroupState.EMPTY:
            return ErrorCode.NONE
        if error := self._check_member(member_id, instance_id, generation):
            sometimes(error == ErrorCode.ILLEGAL_GENERATION, "a commit arrived in a former generation of its group")
            return error
        if self.state is ClassicGroupState.COMPLETING_REBALANCE:
            sometimes(True, "a commit arrived before the assignments of its generation")
            return ErrorCode.REBALANCE_IN_PROGRESS
        self._extend_session(self.members.members[member_id], now_ms)
        return ErrorCode.NONE

    def check_transactional_commit(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """NONE where a transaction may commit for this member and generation (KIP-447).

        Producers that do not send the group's metadata name no member; they are fenced by their epoch alone.
        """
        if self.state is ClassicGroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        names_no_member = not member_id and instance_id is None
        if generation < 0 and (names_no_member or self.state is ClassicGroupState.EMPTY):
            return ErrorCode.NONE
        return self._check_member(member_id, instance_id, generation)

    def _check_member(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        current = ErrorCode.NONE if generation == self.generation else ErrorCode.ILLEGAL_GENERATION
        return self.members.check(member_id, instance_id) or current

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Whether OffsetFetch is allowed: always, while the group exists."""
        return ErrorCode.GROUP_ID_NOT_FOUND if self.state is ClassicGroupState.DEAD else ErrorCode.NONE

    # ---------------------------------------------------------------- end

    def close(self, error: ErrorCode) -> None:
        """The group is deleted or moves away: answer every request that waits with `error`."""
        for member in self.members.members.values():
            self._answer_join(member, JoinResult(error, member.member_id))
            self._answer_sync(member, SyncResult(error))
            self._end_session(member)
        for member_id in self.members.pending:
            self._cancel_timer(TimerName("pending", member_id))
        self._cancel_timer(_JOIN)
        self._cancel_timer(_SYNC)
        self.state = ClassicGroupState.DEAD

    def _drop(self, member: ClassicGroupMember) -> None:
        self._answer_join(member, JoinResult(ErrorCode.UNKNOWN_MEMBER_ID))
        self._answer_sync(member, SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))
        self._end_session(member)
        self.members.remove(member)

    # ---------------------------------------------------------------- effects

    def _enter(self, state: ClassicGroupState, wall_ms: int) -> None:
        self.state = state
        self.state_timestamp_ms = wall_ms

    def _answer_all_syncs(self, error: ErrorCode, now_ms: int) -> None:
        for member in self.members.members.values():
            member.assignment = b""
            if member.sync_token is not None:
                self._answer_sync(member, SyncResult(error))
                self._extend_session(member, now_ms)

    def _answer_join(self, member: ClassicGroupMember, result: JoinResult) -> None:
        token, member.join_token = member.join_token, None
        self._reply(token, result)

    def _answer_sync(self, member: ClassicGroupMember, result: SyncResult) -> None:
        token, member.sync_token = member.sync_token, None
        self._reply(token, result)

    def _reply(self, token: Any, result: JoinResult | SyncResult) -> None:
        if token is not None:
            self.effects.append(Reply(token, result))

    def _persist(self, tag: AssignmentWritten | ReturnWritten | EmptyWritten) -> None:
        value = self.value(tag.assignments if isinstance(tag, AssignmentWritten) else None)
        self.effects.append(Persist((classic_group_record(self.group_id, value),), tag))

    def _set_timer(self, name: TimerName, deadline_ms: int) -> None:
        self.effects.append(SetTimer(name, deadline_ms))

    def _cancel_timer(self, name: TimerName) -> None:
        self.effects.append(CancelTimer(name))
