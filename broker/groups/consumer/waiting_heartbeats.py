"""Heartbeats that wait for the next target assignment, so that one assignment serves a wave of members.

An assignment takes the longer the larger the group is, and so does the shortest time between two of them. Apache Kafka
has such a time from 4.3 on (`group.consumer.assignment.interval.ms`, KIP-1263), and answers members meanwhile with what
they have. Here their heartbeats wait, so that no member has to wait for its next heartbeat.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from .consumer_group_heartbeat import HeartbeatRequest

MEMBERS_PER_MS = 10
"""How many members add a millisecond to the time between two assignments. An assignment takes a tenth of that time."""
WAITING_MAX = 500
"""How many heartbeats may wait at most."""
WAVE_BYTES_MAX = 512 * 1024
"""How much may wait at most, as the records of a wave are one batch: half of a batch by default (max.message.bytes).

The other half is for target assignments. They depend on the group, so a group whose waves are refused halves its own.
"""

Heartbeat: TypeAlias = tuple[HeartbeatRequest, Any]
"""A heartbeat, and the token under which its sender waits for the answer."""


class WaitingHeartbeats:
    """Says when the group may compute its next target assignment, and keeps the heartbeats until then."""

    def __init__(self) -> None:
        self.next_assignment_ms = 0
        """The earliest time of the next assignment."""
        self._waiting: list[Heartbeat] = []
        self._size_bytes = 0
        self._bytes_max = WAVE_BYTES_MAX

    def __len__(self) -> int:
        return len(self._waiting)

    def assigned(self, now_ms: int, members: int) -> None:
        """A target assignment for so many members was computed."""
        self.next_assignment_ms = now_ms + members // MEMBERS_PER_MS

    def must_wait(self, now_ms: int) -> bool:
        """Whether a heartbeat that needs a new target assignment has to wait for it."""
        return bool(self._waiting) or now_ms < self.next_assignment_ms

    def has_room_for(self, request: HeartbeatRequest) -> bool:
        """Whether the records of all that wait and of this one are a batch. One heartbeat may always wait."""
        is_full = len(self._waiting) == WAITING_MAX or self._size_bytes + request.size_bytes > self._bytes_max
        return not (self._waiting and is_full)

    def halve(self) -> None:
        """A wave of this group was too large: less may wait from now on."""
        self._bytes_max //= 2

    def add(self, request: HeartbeatRequest, token: Any) -> None:
        """Let the heartbeat wait."""
        self._waiting.append((request, token))
        self._size_bytes += request.size_bytes

    def take(self) -> list[Heartbeat]:
        """Take all that wait."""
        taken, self._waiting = self._waiting, []
        self._size_bytes = 0
        return taken

    def has(self, member_id: str) -> bool:
        """Whether a heartbeat of the member waits."""
        return any(request.member_id == member_id for request, _ in self._waiting)
