"""Writes of a consumer group that are not committed yet, and the requests that are answered when they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from ....wire.errors import ErrorCode
from ...coordinators.effects import Persist, Reply
from ...coordinators.record_fields import CoordinatorRecord
from ..classic.classic_group import ClassicGroup
from ..classic.classic_group_members import ClassicGroupState
from ..classic.classic_group_view import ClassicGroupView
from ..effects import Effect, JoinResult, LeaveResult, SyncResult
from .assignors import PartitionIds
from .consumer_group_heartbeat import HeartbeatResult
from .consumer_group_member import ConsumerGroupMember
from .group_view import ConsumerGroupView

Result: TypeAlias = HeartbeatResult | JoinResult | SyncResult | LeaveResult


@dataclass(frozen=True, slots=True)
class Answer:
    """The result for the request that waits under `token`."""

    token: Any
    result: Result

    def failed(self, error: ErrorCode) -> Result:
        """The result where the write has failed."""
        if isinstance(self.result, JoinResult):
            return JoinResult(error, self.result.member_id)
        return type(self.result)(error)


@dataclass(slots=True)
class FormerState:
    """The group as its records in the log say, to which it returns when its next write is refused.

    Apache Kafka keeps it as a snapshot of timeline data structures.
    """

    epoch: int = 0
    target_epoch: int = 0
    metadata_hash: int = 0
    target: dict[str, PartitionIds] = field(default_factory=dict)
    is_in_log: bool = False
    """Whether there are records of it; a new group has none yet."""
    classic: tuple[ClassicGroup, ClassicGroupState] | None = None
    """The classic group in whose place it was put, and its state then."""
    members: dict[str, ConsumerGroupMember | None] = field(default_factory=dict)
    """The members that have changed since, as they were; None for each that has joined since."""

    def note(self, member_id: str, member: ConsumerGroupMember | None) -> None:
        """The member is about to change; `member` is what it has been."""
        self.members.setdefault(member_id, member)

    def changeable(self, target: dict[str, PartitionIds]) -> dict[str, PartitionIds]:
        """The group's target assignment, to be changed in place: a copy if this state still has the same one."""
        return dict(target) if target is self.target else target


def committed_view(
    formers: Sequence[FormerState], now: ConsumerGroupView
) -> ConsumerGroupView | ClassicGroupView | None:
    """The group as it was at the first of these states, which follow each other; None where it was not there.

    It is the classic group in whose place it was put until its own records are committed.
    """
    first = formers[0]
    if not first.is_in_log:
        return None if first.classic is None else ClassicGroupView(*first.classic)
    members = dict(now.members)
    for former in reversed(formers):
        for member_id, member in former.members.items():
            if member is None:
                members.pop(member_id, None)
            else:
                members[member_id] = member
    return replace(now, epoch=first.epoch, target_epoch=first.target_epoch, members=members, target=first.target)


@dataclass(frozen=True, slots=True, eq=False)
class PendingWrite:
    """One write. A request that changes nothing is answered with the last write, as it tells what that has changed."""

    answers: list[Answer]
    former: FormerState


class PendingWrites:
    """What the event of a moment writes and answers, and the writes before it. `emit` takes the effects."""

    def __init__(self, emit: Callable[[Effect], None]) -> None:
        self.records: list[CoordinatorRecord] = []
        """Records to write before the next answers."""
        self._answers: list[Answer] = []
        self._pending: dict[PendingWrite, None] = {}
        """The writes that are not committed yet, in their order."""
        self._emit = emit

    def formers(self) -> list[FormerState]:
        """What the group was before each of the writes that are not committed, in their order."""
        return [write.former for write in self._pending]

    def answer(self, token: Any, result: Result) -> None:
        """Answer the request when the records, and all writes before them, are committed."""
        self._answers.append(Answer(token, result))

    def flush(self, former: FormerState) -> bool:
        """Write the records. Where there are none, the answers wait for the last write. Returns whether there are."""
        answers, self._answers = self._answers, []
        records, self.records = self.records, []
        if records:
            write = PendingWrite(answers, former)
            self._pending[write] = None
            self._emit(Persist(tuple(records), write))
        elif self._pending:
            next(reversed(self._pending)).answers.extend(answers)
        else:
            self._give(answers, ErrorCode.NONE)
        return bool(records)

    def end(self, write: PendingWrite, error: ErrorCode) -> None:
        """The write is committed or has failed: answer the requests that have waited for it."""
        del self._pending[write]
        self._give(write.answers, error)

    def _give(self, answers: list[Answer], error: ErrorCode) -> None:
        for answer in answers:
            if answer.token is not None:  # else it was no request that changed the group
                self._emit(Reply(answer.token, answer.failed(error) if error else answer.result))
