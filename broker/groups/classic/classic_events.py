"""The inputs of a classic group: the requests of members, and the tags of its writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..effects import JoinResult
from .classic_group_members import Protocols


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """JoinGroup. `new_member_id` is the id for a new member; times in milliseconds."""

    member_id: str
    new_member_id: str
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
    """SyncGroup; the assignments are empty for all but the leader."""

    member_id: str
    generation: int
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class AssignmentWritten:
    """Tag of a write: the leader's assignment of a generation."""

    generation: int
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class ReturnWritten:
    """Tag of a write: the new id of a static member that came back without a rebalance."""

    member_id: str
    result: JoinResult
    token: Any


@dataclass(frozen=True, slots=True)
class EmptyWritten:
    """Tag of a write: a generation without members."""

    generation: int
