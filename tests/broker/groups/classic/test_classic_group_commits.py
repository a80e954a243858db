"""Who may commit and fetch offsets in a classic group, by its state; and what keeps its sessions alive."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.broker.classic_transcript import Stage

from raftwerk.broker.coordinators.effects import Reply
from raftwerk.broker.groups.classic.classic_events import JoinRequest
from raftwerk.broker.groups.classic.classic_group import ClassicGroup
from raftwerk.broker.groups.classic.classic_group_members import ClassicGroupState
from raftwerk.broker.groups.effects import JoinResult, TimerName
from raftwerk.wire.errors import ErrorCode

NONE, UNKNOWN, ILLEGAL = ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION
AWAY = ErrorCode.COORDINATOR_NOT_AVAILABLE


def group(*lines: str) -> ClassicGroup:
    """The group after these lines of a transcript."""
    stage = Stage()
    for line in ("config initial_rebalance_delay_ms=0", *lines):
        stage.play(line.split())
    return stage.group


STABLE = ("join A old instance=i", "sync A gen=1 A=all")


def test_a_group_without_members_takes_commits_without_a_generation() -> None:
    """So do tools and consumers that assign their partitions themselves. A generation shows that there was a member."""
    empty = group()
    assert empty.check_commit("", None, -1, 0) is NONE
    assert empty.check_commit("anybody", None, -1, 0) is NONE
    assert empty.check_commit("a-1", None, 0, 0) is UNKNOWN
    assert empty.check_transactional_commit("", None, -1) is NONE
    assert empty.check_transactional_commit("anybody", "instance", -1) is NONE
    assert empty.check_transactional_commit("a-1", None, 0) is UNKNOWN


def test_a_group_with_members_takes_commits_of_its_members_in_its_generation() -> None:
    stable = group(*STABLE)
    assert stable.check_commit("a-1", "i", 1, 0) is NONE
    assert stable.check_commit("a-1", "i", 0, 0) is ILLEGAL
    assert stable.check_commit("b-1", None, 1, 0) is UNKNOWN
    assert stable.check_commit("b-1", "i", 1, 0) is ErrorCode.FENCED_INSTANCE_ID
    assert stable.check_commit("", None, -1, 0) is UNKNOWN
    assert stable.check_commit("a-1", "i", -1, 0) is ILLEGAL


def test_a_transaction_that_names_no_member_is_fenced_by_its_producer_alone() -> None:
    """One that names a member is fenced with it (KIP-447)."""
    stable = group(*STABLE)
    assert stable.check_transactional_commit("", None, -1) is NONE
    assert stable.check_transactional_commit("a-1", "i", 1) is NONE
    assert stable.check_transactional_commit("a-1", "i", 0) is ILLEGAL
    assert stable.check_transactional_commit("", None, 0) is UNKNOWN
    assert stable.check_transactional_commit("", "other", -1) is UNKNOWN
    assert stable.check_transactional_commit("b-1", None, -1) is UNKNOWN


def test_a_commit_before_the_assignments_are_known_waits_for_the_rebalance() -> None:
    """The sender does not know its new partitions yet, so it cannot have read them in this generation."""
    rebalancing = group("join A old")
    assert rebalancing.check_commit("a-1", None, 1, 0) is ErrorCode.REBALANCE_IN_PROGRESS
    assert rebalancing.check_transactional_commit("a-1", None, 1) is NONE


def test_a_group_that_has_moved_takes_nothing() -> None:
    moved = group(*STABLE, "close")
    assert moved.check_commit("a-1", "i", 1, 0) is AWAY
    assert moved.check_transactional_commit("", None, -1) is AWAY
    assert moved.check_fetch(None, -1) is ErrorCode.GROUP_ID_NOT_FOUND
    assert moved.heartbeat("a-1", "i", 1, 0) is AWAY
    assert group(*STABLE).check_fetch(None, -1) is NONE


def test_a_commit_keeps_the_session_alive() -> None:
    stage = Stage()
    for line in ("config initial_rebalance_delay_ms=0", *STABLE, "at 9000", "commit A gen=1 instance=i", "at 18999"):
        stage.play(line.split())
    assert list(stage.group.members.members) == ["a-1"]
    stage.play(["at", "19000"])
    assert list(stage.group.members.members) == []


def test_a_sync_keeps_the_session_alive_also_when_the_assignments_are_known() -> None:
    stage = Stage()
    for line in ("config initial_rebalance_delay_ms=0", *STABLE, "at 9000", "sync A gen=1 instance=i", "at 18999"):
        stage.play(line.split())
    assert list(stage.group.members.members) == ["a-1"]
    stage.play(["at", "19000"])
    assert list(stage.group.members.members) == []


@pytest.mark.parametrize("name", [
    TimerName("join"), TimerName("sync"), TimerName("pending", "nobody"), TimerName("session", "nobody"),
])  # fmt: skip
def test_a_timer_whose_reason_has_gone_changes_nothing(name: TimerName) -> None:
    stable = group(*STABLE)
    stable.on_timer(name, 60_000, 60_000)
    assert stable.drain() == []
    assert (stable.state, stable.generation, list(stable.members.members)) == (ClassicGroupState.STABLE, 1, ["a-1"])


@pytest.mark.parametrize("fields", [{"protocol_type": ""}, {"protocols": ()}])
def test_a_first_member_without_a_protocol_is_refused(fields: dict[str, Any]) -> None:
    """No other member could share one with it."""
    joins = JoinRequest(
        "", "m", None, "c", "/h", 10_000, 60_000, "consumer", (("range", b""),), requires_known_id=False
    )
    empty = group()
    empty.join(replace(joins, **fields), "token", 0, 0)
    assert empty.drain() == [Reply("token", JoinResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ""))]
    assert empty.state is ClassicGroupState.EMPTY
