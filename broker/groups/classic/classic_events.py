"""What happens to a classic group: what members ask, and what the log confirms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..effects import JoinResult
from .classic_group_members import Protocols


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """JoinGroup. `fresh_id` is the id that a newcomer gets; times in milliseconds."""

    member_id: str
    fresh_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    requires_known_id: bool = True
    can_skip_assignment: bool = True


@dataclass(frozen=True, slots=True)
class SyncRequest:
    """SyncGroup; only the leader's assignments count."""

    member_id: str
    generation: int
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class AssignmentWritten:
    """The leader's assignment of a generation."""

    generation: int
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class ReturnWritten:
    """A static member came back without a rebalance, and its new id is being written."""

    member_id: str
    result: JoinResult
    token: Any


@dataclass(frozen=True, slots=True)
class EmptyWritten:
    """A generation without members."""

    generation: int
