"""Effects: what a group asks its coordinator to do, in their order; and the results of joins and syncs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from ...wire.errors import ErrorCode
from ..coordinators.effects import Persist, Reply


class TimerName(NamedTuple):
    """The name of a timer within its group. `kind` is session, pending, join, sync or rebalance.

    In a classic group, join and sync belong to the group; in a consumer group, to a member of the classic protocol.
    """

    kind: str
    member_id: str = ""


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Call `on_timer(name)` at `deadline_ms`. It replaces a timer of that name."""

    name: TimerName
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class CancelTimer:
    """Cancel the timer, if there is one."""

    name: TimerName


@dataclass(frozen=True, slots=True)
class Reload:
    """Load the shard again: the group's memory may differ from the log."""


@dataclass(frozen=True, slots=True)
class ReplaceGroup:
    """Put `group` in the place of this group, which is closed: it has changed its protocol, or could not be written.

    None where nothing was in its place before.
    """

    group: Any


Effect: TypeAlias = "Reply[Any] | Persist[Any] | SetTimer | CancelTimer | Reload | ReplaceGroup"


@dataclass(frozen=True, slots=True)
class JoinResult:
    """The response of JoinGroup. `members` are (id, instance id, metadata); only the leader gets them."""

    error: ErrorCode = ErrorCode.NONE
    member_id: str = ""
    generation: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[tuple[str, str | None, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class LeaveResult:
    """Whether the removal of the members of a LeaveGroup was written."""

    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class SyncResult:
    """The response of SyncGroup."""

    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""
