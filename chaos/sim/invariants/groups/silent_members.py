"""The invariant "a member that is silent for its session is removed", for members by ConsumerGroupHeartbeat.

A coordinator that has loaded its partition, runs, and can write removes each member that it has not heard for its
session. Here a member is given two sessions: a request may have been read and have no answer, and a removal that was
refused begins another session.
"""

from __future__ import annotations

from collections.abc import Callable

from .....broker.groups.consumer.consumer_group import ConsumerGroup
from .....broker.groups.group_coordinator_shard import GroupCoordinatorShard
from ..invariant_broken import InvariantBroken
from ..steps.lasting_roles import LastingRoles

_LATE_S = 1.5


class SilentMembers:
    """What is heard of members, and what coordinators of groups know of them."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._heard: dict[str, float] = {}
        """When a member has sent a request, or was answered, last."""
        self._roles = LastingRoles(now_s)

    def on_heard(self, member_id: str) -> None:
        """The member has sent a request, or is answered."""
        self._heard[member_id] = self._now_s()

    def forget(self, node_id: int) -> None:
        """The broker's process has ended."""
        self._roles.forget(node_id)

    def after_event(self, node_id: int, shard: GroupCoordinatorShard, *, can_write: bool) -> None:
        """The node has run an event, and leads the shard's partition. Raises `InvariantBroken`."""
        if not can_write:
            self._roles.end(node_id, shard)
            return
        since_s = self._roles.after_event(node_id, shard)
        if since_s is None:
            return
        for group in shard.groups.values():
            if isinstance(group, ConsumerGroup):
                self._check(group, since_s)

    def _check(self, group: ConsumerGroup, since_s: float) -> None:
        limit_s = 2 * group.config.consumer.session_timeout_ms / 1000 + _LATE_S
        for member_id, member in group.members.items():
            heard_s = max(since_s, self._heard.get(member_id, 0.0))
            if member.subscription.classic is None and self._now_s() - heard_s > limit_s:
                detail = f"{member_id} of {group.group_id}, heard at {heard_s:.3f}"
                raise InvariantBroken("a member that is silent for its session is removed", detail)
