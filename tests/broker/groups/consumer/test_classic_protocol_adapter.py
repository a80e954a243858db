"""Requests of the classic protocol that a consumer group refuses, or that change nothing in it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.broker.consumer_transcript import FakeTopics

from raftwerk.broker.coordinators.effects import Persist, Reply
from raftwerk.broker.groups.classic.classic_events import JoinRequest, SyncRequest
from raftwerk.broker.groups.classic.consumer_protocol import read_assignment, write_subscription
from raftwerk.broker.groups.consumer.consumer_group import ConsumerGroup
from raftwerk.broker.groups.consumer.consumer_group_heartbeat import HeartbeatRequest
from raftwerk.broker.groups.effects import JoinResult, LeaveResult, SyncResult
from raftwerk.broker.groups.group_config import ConsumerConfig, GroupConfig
from raftwerk.wire.errors import ErrorCode

NONE, UNKNOWN, FENCED = ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID
INCONSISTENT = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
JOIN = JoinRequest(
    member_id="",
    new_member_id="classic-2",
    instance_id=None,
    client_id="c",
    client_host="/h",
    session_timeout_ms=10_000,
    rebalance_timeout_ms=20_000,
    protocol_type="consumer",
    protocols=(("range", write_subscription(["t"], ())),),
    requires_known_id=False,
)
SYNC = SyncRequest("classic", 2, "static", "consumer", "range", ())


class Mixed:
    """A group of the member `consumer`, and of the static member `classic` that uses the classic protocol."""

    def __init__(self) -> None:
        self.group = ConsumerGroup("g", GroupConfig(consumer=ConsumerConfig(max_size=3)), FakeTopics())
        self.answers: list[Any] = []
        joins = HeartbeatRequest("consumer", 0, rebalance_timeout_ms=20_000, topic_names=("t",), owned=())
        self.group.heartbeat(joins, "token", 0, 0)
        self.carry_out()
        assert self.join(new_member_id="classic", instance_id="static").error is NONE
        assert self.group.members["classic"].epoch == 2

    def carry_out(self) -> Any:
        """The last answer."""
        while effects := self.group.drain():
            for effect in effects:
                if isinstance(effect, Reply):
                    self.answers.append(effect.result)
                elif isinstance(effect, Persist):
                    self.group.on_persisted(effect.tag, NONE, 0, 0)
        return self.answers.pop()

    def join(self, **fields: Any) -> JoinResult:
        self.group.classic_protocol.join(replace(JOIN, **fields), "token", 0, 0)
        answer = self.carry_out()
        assert isinstance(answer, JoinResult)
        return answer

    def sync(self, **fields: Any) -> SyncResult:
        self.group.classic_protocol.sync(replace(SYNC, **fields), "token", 0, 0)
        answer = self.carry_out()
        assert isinstance(answer, SyncResult)
        return answer

    def leave(self, *leavers: tuple[str, str | None]) -> list[ErrorCode]:
        codes = self.group.classic_protocol.leave(list(leavers), "token", 0, 0)
        assert self.carry_out() == LeaveResult(), "the request is answered in any case"
        return codes


@pytest.fixture
def mixed() -> Mixed:
    return Mixed()


def test_a_member_joins_in_the_epoch_of_the_group_with_its_first_protocol(mixed: Mixed) -> None:
    joined = mixed.join(protocols=(*JOIN.protocols, ("sticky", b"")))
    assert joined == JoinResult(NONE, "classic-2", mixed.group.epoch, "consumer", "range")


def test_a_client_that_must_know_its_id_first_is_given_one(mixed: Mixed) -> None:
    """It becomes a member when it comes back with it. A static member is known by its instance."""
    assert mixed.join(requires_known_id=True) == JoinResult(ErrorCode.MEMBER_ID_REQUIRED, "classic-2")
    assert "classic-2" not in mixed.group.members
    assert mixed.join(requires_known_id=True, member_id="classic-2").error is NONE
    assert mixed.join(requires_known_id=True, new_member_id="classic-3", instance_id="static").error is NONE
    assert sorted(mixed.group.members) == ["classic-2", "classic-3", "consumer"]


def test_a_full_group_takes_only_its_members(mixed: Mixed) -> None:
    assert mixed.join().error is NONE
    assert len(mixed.group.members) == 3
    assert mixed.join(new_member_id="classic-3") == JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED)
    assert mixed.join(member_id="classic-2").error is NONE
    assert mixed.join(new_member_id="classic-4", instance_id="static").error is NONE


@pytest.mark.parametrize("fields", [
    {"protocol_type": "connect"},
    {"protocols": ()},
    {"protocols": (("roundrobin", JOIN.protocols[0][1]),)},
    {"protocols": (("range", b"no subscription"),)},
])  # fmt: skip
def test_who_shares_no_protocol_with_the_classic_members_is_refused(mixed: Mixed, fields: dict[str, Any]) -> None:
    """Otherwise the group could not become a classic one again."""
    assert mixed.join(member_id="m", **fields) == JoinResult(INCONSISTENT, "m")
    assert sorted(mixed.group.members) == ["classic", "consumer"]


def test_a_member_may_change_its_own_protocols(mixed: Mixed) -> None:
    roundrobin = (("roundrobin", JOIN.protocols[0][1]),)
    assert mixed.join(member_id="classic", instance_id="static", protocols=roundrobin).error is NONE
    assert mixed.sync(generation=mixed.group.members["classic"].epoch, protocol_name="roundrobin").error is NONE


@pytest.mark.parametrize(("member_id", "instance_id", "expected"), [
    ("classic", "static", NONE), ("other", "static", FENCED), ("classic", "unknown", UNKNOWN),
    ("other", None, UNKNOWN), ("consumer", None, UNKNOWN), ("classic", None, NONE),
])  # fmt: skip
def test_members_are_known_by_id_and_hold_their_instance(
    mixed: Mixed, member_id: str, instance_id: str | None, expected: ErrorCode
) -> None:
    """A member of the consumer protocol cannot use the classic one beside it."""
    assert mixed.group.classic_protocol.heartbeat(member_id, instance_id, 2, 0) is expected
    assert mixed.sync(member_id=member_id, instance_id=instance_id).error is expected


@pytest.mark.parametrize("instance_id", ["static", "unknown"])
def test_a_join_with_the_id_of_another_instance_is_refused(mixed: Mixed, instance_id: str) -> None:
    expected = FENCED if instance_id == "static" else UNKNOWN
    assert mixed.join(member_id="other", instance_id=instance_id) == JoinResult(expected, "other")


@pytest.mark.parametrize("generation", [1, 3])
def test_another_generation_than_the_members_epoch_is_refused(mixed: Mixed, generation: int) -> None:
    illegal = ErrorCode.ILLEGAL_GENERATION
    assert mixed.group.classic_protocol.heartbeat("classic", "static", generation, 0) is illegal
    assert mixed.sync(generation=generation) == SyncResult(illegal)


@pytest.mark.parametrize(("fields", "expected"), [
    ({}, NONE), ({"protocol_type": None, "protocol_name": None}, NONE),
    ({"protocol_type": "connect"}, INCONSISTENT), ({"protocol_name": "sticky"}, INCONSISTENT),
])  # fmt: skip
def test_a_sync_names_the_protocol_of_the_group_or_none(
    mixed: Mixed, fields: dict[str, Any], expected: ErrorCode
) -> None:
    """Clients name it from version 5 on."""
    assert mixed.sync(**fields).error is expected


def test_a_sync_is_answered_with_the_partitions_that_are_free(mixed: Mixed) -> None:
    assert read_assignment(mixed.sync().assignment)[0] == ()
    gives_up = HeartbeatRequest("consumer", 1, owned=())
    mixed.group.heartbeat(gives_up, "token", 0, 0)
    mixed.carry_out()
    assert mixed.group.classic_protocol.heartbeat("classic", "static", 2, 0) is ErrorCode.REBALANCE_IN_PROGRESS
    mixed.join(member_id="classic", instance_id="static")
    result = mixed.sync()
    assert (result.protocol_type, result.protocol_name) == ("consumer", "range")
    assert len(read_assignment(result.assignment)[0]) == 2


def test_those_who_leave_are_named_by_id_or_by_instance(mixed: Mixed) -> None:
    assert mixed.leave(("nobody", None), ("", "nobody")) == [UNKNOWN, UNKNOWN]
    assert mixed.leave(("other", "static"), ("classic", "unknown")) == [FENCED, UNKNOWN]
    assert sorted(mixed.group.members) == ["classic", "consumer"]
    epoch = mixed.group.epoch
    assert mixed.leave(("nobody", None), ("", "static")) == [UNKNOWN, NONE]
    assert list(mixed.group.members) == ["consumer"]
    assert mixed.group.epoch == epoch + 1, "the others take its partitions"


def test_a_group_that_has_moved_tells_its_members_to_find_the_coordinator(mixed: Mixed) -> None:
    moved = ErrorCode.NOT_COORDINATOR
    mixed.group.close(moved)
    assert mixed.join() == JoinResult(moved)
    assert mixed.sync() == SyncResult(moved)
    assert mixed.group.classic_protocol.heartbeat("classic", "static", 2, 0) is moved


@pytest.mark.parametrize("is_refused", [True, False])
def test_a_join_whose_write_fails_is_told_to_its_member_by_id(mixed: Mixed, is_refused: bool) -> None:
    """Clients go by the id: one that has got it with an error joins again with it."""
    mixed.group.classic_protocol.join(JOIN, "token", 0, 0)
    (write,) = [effect for effect in mixed.group.drain() if isinstance(effect, Persist)]
    error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    (mixed.group.on_refused if is_refused else mixed.group.on_persisted)(write.tag, error, 0, 0)
    assert mixed.carry_out() == JoinResult(error, "classic-2")
