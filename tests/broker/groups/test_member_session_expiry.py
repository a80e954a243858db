"""A coordinator that was stopped for a while gives its members a second more."""

from __future__ import annotations

import pytest
from support.broker.consumer_transcript import FakeTopics

from raftwerk.broker.coordinators.effects import Persist
from raftwerk.broker.groups.classic.classic_events import JoinRequest
from raftwerk.broker.groups.classic.classic_group import ClassicGroup
from raftwerk.broker.groups.consumer.consumer_group import ConsumerGroup
from raftwerk.broker.groups.consumer.consumer_group_heartbeat import HeartbeatRequest
from raftwerk.broker.groups.effects import SetTimer, TimerName
from raftwerk.broker.groups.group_config import GroupConfig
from raftwerk.broker.groups.member_session_expiry import GRACE_MS, LATE_MS, MemberSession
from raftwerk.wire.errors import ErrorCode

SESSION_MS = 45_000
NAME = TimerName("session", "m")


class OneMember:
    """A group of one member that joined at 0, and the timer of its session."""

    def __init__(self, kind: str) -> None:
        config = GroupConfig()
        self.group: ClassicGroup | ConsumerGroup
        if kind == "consumer":
            self.group = ConsumerGroup("g", config, FakeTopics())
            self.group.heartbeat(HeartbeatRequest("m", 0, topic_names=("t",), owned=()), None, 0, 0)
        else:
            self.group = ClassicGroup("g", config.classic)
            protocols = (("range", b""),)
            self.group.join(
                JoinRequest("", "m", None, "c", "/h", SESSION_MS, 60_000, "consumer", protocols, False), "token", 0, 0
            )
            self.group.on_timer(TimerName("join"), 3_000, 3_000)
            self.group.members.unsynced.clear()
        self.timer_ms = -1
        self.carry_out()

    def carry_out(self) -> None:
        for effect in self.group.drain():
            if isinstance(effect, SetTimer) and effect.name == NAME:
                self.timer_ms = effect.deadline_ms
            elif isinstance(effect, Persist):
                self.group.on_persisted(effect.tag, ErrorCode.NONE, 0, 0)

    def fire(self, now_ms: int) -> bool:
        """The timer runs at that time; whether the member is still there."""
        self.group.on_timer(NAME, now_ms, now_ms)
        self.carry_out()
        return "m" in (self.group.members if isinstance(self.group, ConsumerGroup) else self.group.members.members)


@pytest.mark.parametrize("kind", ["classic", "consumer"])
def test_a_session_whose_timer_fires_in_time_has_expired(kind: str) -> None:
    one = OneMember(kind)
    while one.timer_ms > 0 and one.timer_ms < SESSION_MS:
        one.fire(one.timer_ms)
    assert not one.fire(one.timer_ms + LATE_MS)


@pytest.mark.parametrize("kind", ["classic", "consumer"])
def test_a_session_whose_timer_fires_late_lasts_a_second_more(kind: str) -> None:
    one = OneMember(kind)
    late_ms = one.timer_ms + 20_000
    assert one.fire(late_ms)
    assert one.timer_ms == late_ms + GRACE_MS
    assert not one.fire(one.timer_ms)


def test_a_heartbeat_sets_a_timer_only_where_none_runs_that_fires_in_time() -> None:
    """A timer for each heartbeat would cost more than all else. One that fires too early is set again then."""
    session = MemberSession()
    assert session.extend(0, 10_000)
    assert not session.extend(3_000, 10_000)
    assert session.deadline_ms == 13_000
    assert not session.has_expired(10_000), "the timer of the first heartbeat"
    assert not session.extend(12_000, 10_000), "the group has set it again"
    assert session.extend(12_500, 6_000), "a shorter session ends before the timer fires"
    session.end()
    assert session.extend(13_000, 10_000)
