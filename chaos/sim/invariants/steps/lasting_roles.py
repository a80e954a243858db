"""Since when a role of a process lasts while the process runs, for what must happen within a time.

A process that was paused may extend the time-outs of others by its pause, so the time begins anew then.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

_STALLED_S = 0.25
"""A process that has run nothing for so long was paused."""
_LOOKS_EVERY_S = 0.1


@dataclass(slots=True)
class _Role:
    since_s: float
    ran_s: float
    looked_at_s: float


class LastingRoles:
    """The roles of all nodes. `now_s` is the virtual time."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._roles: dict[int, dict[Hashable, _Role]] = {}

    def forget(self, node_id: int) -> None:
        """The process has ended."""
        self._roles.pop(node_id, None)

    def end(self, node_id: int, role: Hashable) -> None:
        """The node does not have the role."""
        self._roles.get(node_id, {}).pop(role, None)

    def after_event(self, node_id: int, role: Hashable) -> float | None:
        """The node has run an event in the role: since when it lasts, if that is to be looked at again, else None."""
        now_s, roles = self._now_s(), self._roles.setdefault(node_id, {})
        found = roles.get(role)
        if found is None or now_s - found.ran_s > _STALLED_S:
            roles[role] = _Role(now_s, now_s, now_s)
            return None
        found.ran_s = now_s
        if now_s - found.looked_at_s < _LOOKS_EVERY_S:
            return None
        found.looked_at_s = now_s
        return found.since_s
