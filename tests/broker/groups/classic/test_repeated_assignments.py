"""A leader that sends its assignments again changes none: of a generation one record is written."""

from __future__ import annotations

from typing import Any

from raftwerk.broker.coordinators.effects import Persist, Reply
from raftwerk.broker.groups.classic.classic_events import JoinRequest, SyncRequest
from raftwerk.broker.groups.classic.classic_group import ClassicGroup
from raftwerk.broker.groups.effects import Effect, SyncResult
from raftwerk.broker.groups.group_config import ClassicConfig
from raftwerk.wire.errors import ErrorCode


def joined_alone() -> ClassicGroup:
    """A group whose only member "m" has joined in generation 1."""
    group = ClassicGroup("g", ClassicConfig(initial_rebalance_delay_ms=0))
    request = JoinRequest("", "m", None, "c", "/h", 10_000, 10_000, "consumer", (("range", b""),), False)
    group.join(request, "join", 0, 0)
    group.drain()
    return group


def sync(group: ClassicGroup, assignment: bytes, token: str) -> list[Effect]:
    group.sync(SyncRequest("m", 1, None, None, None, (("m", assignment),)), token, 0, 0)
    return group.drain()


def records(effects: list[Effect]) -> list[Persist[Any]]:
    return [effect for effect in effects if isinstance(effect, Persist)]


def test_the_first_assignments_stand_while_they_are_not_committed() -> None:
    group = joined_alone()
    (first,) = records(sync(group, b"first", "sync 1"))
    again = sync(group, b"second", "sync 2")
    assert records(again) == [], "another coordinator would load the second ones, the members have the first"
    assert Reply("sync 1", SyncResult(ErrorCode.REBALANCE_IN_PROGRESS)) in again
    group.on_persisted(first.tag, ErrorCode.NONE, 0, 0)
    (answer,) = [effect for effect in group.drain() if isinstance(effect, Reply)]
    assert answer == Reply("sync 2", SyncResult(ErrorCode.NONE, "consumer", "range", b"first"))
