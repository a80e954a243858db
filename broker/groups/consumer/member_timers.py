"""The timers of a consumer group's members: sessions, and the time-outs of the steps of a rebalance."""

from __future__ import annotations

from collections.abc import Callable

from ..effects import CancelTimer, Effect, SetTimer, TimerName
from ..member_session_expiry import MemberSession
from .consumer_group_member import ConsumerGroupMember, MemberState

_KINDS = ("session", "rebalance", "join", "sync")


class MemberTimers:
    """`emit` takes the effects. When a timer fires, the group removes the member, unless its session was extended."""

    def __init__(self, emit: Callable[[Effect], None]) -> None:
        self._emit = emit
        self._sessions: dict[str, MemberSession] = {}

    def set(self, kind: str, member_id: str, deadline_ms: int) -> None:
        """Set a timer of the member."""
        self._emit(SetTimer(TimerName(kind, member_id), deadline_ms))

    def cancel(self, kind: str, member_id: str) -> None:
        """Cancel a timer of the member."""
        self._emit(CancelTimer(TimerName(kind, member_id)))

    def forget(self, member_id: str) -> None:
        """Cancel all timers of the member."""
        self._sessions.pop(member_id, None)
        for kind in _KINDS:
            self.cancel(kind, member_id)

    def has_session(self, member_id: str) -> bool:
        """Whether the member has a session."""
        return member_id in self._sessions

    def start_session(self, member_id: str, now_ms: int, timeout_ms: int) -> None:
        """Start or extend the member's session."""
        session = self._sessions.setdefault(member_id, MemberSession())
        if session.extend(now_ms, timeout_ms):
            self.set("session", member_id, session.deadline_ms)

    def has_expired(self, member_id: str, now_ms: int) -> bool:
        """The timer of the member's session has fired: whether the session is over. If not, the timer is set again."""
        session = self._sessions.get(member_id)
        if session is None or session.has_expired(now_ms):
            return True
        self.set("session", member_id, session.deadline_ms)
        return False

    def start_revocation(self, member: ConsumerGroupMember, now_ms: int) -> None:
        """Give the member its rebalance time-out for what it has to revoke, if it has."""
        if member.state is MemberState.UNREVOKED:
            self.set("rebalance", member.member_id, now_ms + member.subscription.rebalance_timeout_ms)

    def watch_revocation(self, before: ConsumerGroupMember | None, after: ConsumerGroupMember, now_ms: int) -> None:
        """Start the rebalance time-out when the member has something else to revoke than before; end it with that."""
        if after.state is MemberState.UNREVOKED:
            if before is None or after.revoking != before.revoking:
                self.start_revocation(after, now_ms)
        elif before is not None and before.state is MemberState.UNREVOKED:
            self.cancel("rebalance", after.member_id)
