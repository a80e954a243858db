"""What a group asks its coordinator to do, in this order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from ...wire.errors import ErrorCode
from .records.offset_and_classic_records import CoordinatorRecord


class TimerName(NamedTuple):
    """A group has one timer of each name; `kind` is session, pending, join, sync or rebalance.

    In a classic group join and sync are the group's own, in a consumer group those of its classic members.
    """

    kind: str
    member_id: str = ""


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer the request that waits under `token` (never None)."""

    token: Any
    result: Any


@dataclass(frozen=True, slots=True)
class Persist:
    """Write the records as one batch; when they are committed or refused, tell `on_persisted(tag, error)`."""

    records: tuple[CoordinatorRecord, ...]
    tag: Any


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Call `on_timer(name)` at `deadline_ms`; a timer of that name is replaced."""

    name: TimerName
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class CancelTimer:
    """Forget the timer, if there is one."""

    name: TimerName


@dataclass(frozen=True, slots=True)
class Reload:
    """What is in memory may not be what is in the log: replay it."""


@dataclass(frozen=True, slots=True)
class ReplaceGroup:
    """The group is another object from here on, which stands in its place."""

    group: Any


Effect: TypeAlias = "Reply | Persist | SetTimer | CancelTimer | Reload | ReplaceGroup"


@dataclass(frozen=True, slots=True)
class JoinResult:
    """The answer of JoinGroup. `members` are (id, instance id, metadata), for the leader alone."""

    error: ErrorCode = ErrorCode.NONE
    member_id: str = ""
    generation: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[tuple[str, str | None, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class SyncResult:
    """The answer of SyncGroup."""

    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""
