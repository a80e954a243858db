"""A wave of members joins a large group: their heartbeats wait for one assignment, and none of them is forgotten."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from uuid import UUID

import pytest

from raftwerk.broker.coordinators.effects import Persist, Reply
from raftwerk.broker.groups.consumer.assignors import ASSIGNORS, PartitionCounts, PartitionIds, Subscriptions
from raftwerk.broker.groups.consumer.consumer_group import ConsumerGroup
from raftwerk.broker.groups.consumer.consumer_group_heartbeat import (
    HeartbeatRequest,
    HeartbeatResult,
    updated_metadata,
)
from raftwerk.broker.groups.consumer.consumer_group_member import ConsumerGroupMember
from raftwerk.broker.groups.consumer.waiting_heartbeats import (
    MEMBERS_PER_MS,
    WAITING_MAX,
    WAVE_BYTES_MAX,
    WaitingHeartbeats,
)
from raftwerk.broker.groups.effects import CancelTimer, SetTimer, TimerName
from raftwerk.broker.groups.group_config import GroupConfig
from raftwerk.broker.groups.records.consumer_group_records import (
    current_record,
    member_metadata_record,
    target_record,
)
from raftwerk.wire.errors import ErrorCode

TOPIC = UUID(int=1)
MEMBERS = 10 * MEMBERS_PER_MS
ASSIGNMENT = TimerName("assignment")


class OneTopic:
    """A topic with twice as many partitions as there are members at first."""

    def find(self, name: str) -> tuple[UUID, int] | None:
        return (TOPIC, 2 * MEMBERS) if name == "topic" else None

    def name_of(self, topic_id: UUID) -> str | None:
        return "topic" if topic_id == TOPIC else None

    def names(self) -> list[str]:
        return ["topic"]


class Wave:
    """A group of members that joined one after another, and what it has answered since."""

    def __init__(self) -> None:
        self.group = ConsumerGroup("g", GroupConfig(), OneTopic())
        self.answers: dict[str, HeartbeatResult] = {}
        self.timers: dict[TimerName, int] = {}
        self.now_ms = 0
        self.refusal = ErrorCode.NONE
        """With what the log refuses each write."""
        for number in range(MEMBERS):
            self.now_ms += 100
            self.join(f"old-{number:04}")
        assert len(self.answers) == len(self.group.members) == MEMBERS
        self.answers.clear()
        self.now_ms += 1000

    def join(self, member_id: str, instance_id: str | None = None) -> None:
        request = HeartbeatRequest(
            member_id, 0, rebalance_timeout_ms=1000, topic_names=("topic",), owned=(), instance_id=instance_id
        )
        self.send(request, member_id)

    def send(self, request: HeartbeatRequest, token: str) -> None:
        self.group.heartbeat(request, token, self.now_ms, self.now_ms)
        self.carry_out()

    def beat(self, member_id: str) -> None:
        self.send(HeartbeatRequest(member_id, self.group.members[member_id].epoch), member_id)

    def leave(self, member_id: str) -> None:
        self.send(HeartbeatRequest(member_id, -1), f"{member_id} leaves")

    def fire(self) -> None:
        """The timer of the next assignment."""
        self.now_ms = max(self.now_ms, self.timers.pop(ASSIGNMENT))
        self.group.on_timer(ASSIGNMENT, self.now_ms, self.now_ms)
        self.carry_out()

    def carry_out(self) -> None:
        while effects := self.group.drain():
            for effect in effects:
                if isinstance(effect, Reply):
                    self.answers[effect.token] = effect.result
                elif isinstance(effect, Persist) and self.refusal:
                    self.group.on_refused(effect.tag, self.refusal, self.now_ms, self.now_ms)
                elif isinstance(effect, Persist):
                    self.group.on_persisted(effect.tag, ErrorCode.NONE, self.now_ms, self.now_ms)
                elif isinstance(effect, SetTimer):
                    self.timers[effect.name] = effect.deadline_ms
                elif isinstance(effect, CancelTimer):
                    self.timers.pop(effect.name, None)


@pytest.fixture
def wave() -> Wave:
    return Wave()


@pytest.fixture
def assignments(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many members each target assignment from now on was computed for."""
    made: list[int] = []
    uniform = ASSIGNORS["uniform"]

    def counted(
        subscriptions: Subscriptions, counts: PartitionCounts, previous: Mapping[str, PartitionIds]
    ) -> dict[str, PartitionIds]:
        made.append(len(subscriptions))
        return uniform(subscriptions, counts, previous)

    monkeypatch.setitem(ASSIGNORS, "uniform", counted)
    yield made


def test_one_assignment_serves_a_wave(wave: Wave, assignments: list[int]) -> None:
    epoch = wave.group.epoch
    wave.join("new-0")
    assert wave.answers["new-0"].member_epoch == epoch + 1, "nobody waits after a quiet time"
    for number in range(1, 50):
        wave.join(f"new-{number}")
        wave.join(f"new-{number}")  # sent again
    assert len(wave.answers) == 1 and wave.timers[ASSIGNMENT] == wave.now_ms + (MEMBERS + 1) // MEMBERS_PER_MS
    wave.fire()
    assert assignments == [MEMBERS + 1, MEMBERS + 50] and wave.group.epoch == epoch + 2
    assert {wave.answers[f"new-{number}"].member_epoch for number in range(1, 50)} == {epoch + 2}
    wave.fire()  # those that were sent again
    assert ASSIGNMENT not in wave.timers and len(assignments) == 2
    owners = [part for parts in wave.group.target.values() for part in parts]
    assert len(owners) == len(set(owners)) == 2 * MEMBERS
    assert not any(one.error for one in wave.answers.values())


def test_who_needs_no_assignment_does_not_wait(wave: Wave, assignments: list[int]) -> None:
    wave.join("new-0")
    wave.join("new-1")
    assert wave.group.epoch == wave.group.target_epoch
    wave.beat("old-0003")
    assert wave.answers["old-0003"].error is ErrorCode.NONE
    assert "new-1" not in wave.answers and assignments == [MEMBERS + 1]


def test_after_a_departure_others_wait_for_the_next_assignment(wave: Wave, assignments: list[int]) -> None:
    wave.join("new-0")
    wave.leave("old-0001")
    for number in (2, 3, 4):
        wave.beat(f"old-{number:04}")
    assert "old-0002" not in wave.answers
    wave.fire()
    assert assignments == [MEMBERS + 1, MEMBERS]
    assert all(wave.answers[f"old-{number:04}"].member_epoch == wave.group.target_epoch for number in (2, 3, 4))


def test_a_member_that_leaves_while_it_waits_is_gone(wave: Wave) -> None:
    wave.join("new-0")
    wave.join("new-1")
    wave.leave("new-1")
    assert wave.answers["new-1"].error is ErrorCode.NONE and wave.answers["new-1 leaves"].member_epoch == -1
    assert "new-1" not in wave.group.members


def test_of_two_with_one_instance_the_second_is_refused(wave: Wave) -> None:
    wave.join("new-0")
    wave.join("static-a", "instance")
    wave.join("static-b", "instance")
    wave.fire()
    assert wave.answers["static-a"].error is ErrorCode.NONE
    assert ASSIGNMENT not in wave.timers
    assert wave.answers["static-b"].error is ErrorCode.UNRELEASED_INSTANCE_ID


def test_not_more_wait_than_one_batch_holds(wave: Wave, assignments: list[int]) -> None:
    for number in range(WAITING_MAX + 2):
        wave.join(f"new-{number:03}")
    assert assignments == [MEMBERS + 1, MEMBERS + 1 + WAITING_MAX] and len(wave.answers) == WAITING_MAX + 1
    wave.fire()
    assert len(wave.answers) == WAITING_MAX + 2 and ASSIGNMENT not in wave.timers


def test_who_waits_is_told_that_the_group_has_moved(wave: Wave) -> None:
    wave.join("new-0")
    wave.join("new-1")
    wave.group.close(ErrorCode.NOT_COORDINATOR)
    wave.carry_out()
    assert wave.answers["new-1"].error is ErrorCode.NOT_COORDINATOR and ASSIGNMENT not in wave.timers


def test_a_group_for_which_someone_waits_is_not_empty(wave: Wave) -> None:
    wave.join("new-0")
    wave.join("new-1")
    for member_id in list(wave.group.members):
        wave.group.remove(wave.group.members[member_id])
    assert not wave.group.is_empty
    wave.fire()
    assert set(wave.group.members) == {"new-1"}


def test_a_leave_that_is_refused_forgets_nobody_who_waits(wave: Wave) -> None:
    """Those who wait are taken in before a member among them leaves, also where it then may not."""
    wave.join("static", "instance")
    wave.join("new-1")
    wave.join("new-2")
    wave.send(HeartbeatRequest("new-1", -1, instance_id="instance"), "new-1 leaves")
    assert wave.answers["new-1 leaves"].error is ErrorCode.FENCED_INSTANCE_ID
    assert wave.answers["new-1"].error is wave.answers["new-2"].error is ErrorCode.NONE
    assert {"new-1", "new-2"} <= set(wave.group.members)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_members_of_a_wave_that_is_too_large_try_again_and_one_alone_does_not(wave: Wave, count: int) -> None:
    """In a smaller wave their records may fit into a batch. Those of one alone never will."""
    wave.join("new-0")
    for number in range(count):
        wave.join(f"large-{number}")
    wave.refusal = ErrorCode.UNKNOWN_SERVER_ERROR
    wave.fire()
    expected = ErrorCode.UNKNOWN_SERVER_ERROR if count == 1 else ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert [wave.answers[f"large-{number}"].error for number in range(count)] == [expected] * count
    assert len(wave.group.members) == MEMBERS + 1


# -- how many wait


def of_size(size_bytes: int) -> HeartbeatRequest:
    """A heartbeat of which the records have about that size."""
    request = HeartbeatRequest("m", 0)
    request = HeartbeatRequest("m", 0, topic_regex="r" * (size_bytes - request.size_bytes))
    assert request.size_bytes == size_bytes
    return request


def test_the_records_of_all_that_wait_are_half_a_batch_at_most() -> None:
    """A batch has a megabyte by default. What a group has learnt about its waves holds for the next ones."""
    half = of_size(WAVE_BYTES_MAX // 2)
    waiting = WaitingHeartbeats()
    assert WAVE_BYTES_MAX == 524_288
    for _ in range(2):
        for _ in range(2):
            assert waiting.has_room_for(half)
            waiting.add(half, None)
        assert not waiting.has_room_for(of_size(1_000))
        assert len(waiting.take()) == 2
    waiting.halve()
    waiting.add(half, None)
    assert not waiting.has_room_for(of_size(1_000))


def test_one_heartbeat_may_always_wait() -> None:
    """Nothing smaller could be tried."""
    waiting = WaitingHeartbeats()
    large = of_size(2 * WAVE_BYTES_MAX)
    assert waiting.has_room_for(large)
    waiting.add(large, None)
    assert not waiting.has_room_for(large)


def test_the_time_between_two_assignments_grows_with_the_group() -> None:
    """Ten members add a millisecond. After that time nobody waits who does not wait behind others."""
    waiting = WaitingHeartbeats()
    assert not waiting.must_wait(0)
    waiting.assigned(1_000, 259)
    assert waiting.must_wait(1_024)
    assert not waiting.must_wait(1_025)
    waiting.add(of_size(1_000), None)
    assert waiting.must_wait(1_025)


# -- what a heartbeat says


NAMES = tuple(f"topic-{number}" for number in range(20))
FULL = HeartbeatRequest("m", 5, rebalance_timeout_ms=1_000, topic_names=NAMES, owned=())


@pytest.mark.parametrize(("request_", "is_full"), [
    (FULL, True),
    (replace(FULL, rebalance_timeout_ms=0), True),
    (replace(FULL, topic_names=None, topic_regex="t.*"), True),
    (replace(FULL, topic_names=(), owned=((TOPIC, 0),)), True),
    (replace(FULL, rebalance_timeout_ms=-1), False),
    (replace(FULL, topic_names=None), False),
    (replace(FULL, owned=None), False),
    (HeartbeatRequest("m", 0), True),
    (HeartbeatRequest("m", 5), False),
])  # fmt: skip
def test_a_member_that_says_everything_is_told_everything(request_: HeartbeatRequest, is_full: bool) -> None:
    """It joins, or may have missed the answer that gave it its assignment."""
    assert request_.is_full is is_full


@pytest.mark.parametrize("request_", [
    HeartbeatRequest("m", 0),
    FULL,
    HeartbeatRequest("m" * 5_000, 0, topic_names=NAMES),
    HeartbeatRequest("m", 0, "c" * 900, "h" * 900, "i" * 900, "r" * 900, topic_regex="x" * 900, assignor="a" * 900),
    HeartbeatRequest("m", 0, topic_names=("é" * 200,) * 3),
])  # fmt: skip
def test_the_size_of_a_members_records_is_not_underestimated(request_: HeartbeatRequest) -> None:
    """Otherwise a wave would be refused because it is too large for a batch."""
    subscription = updated_metadata(None, request_)
    member = ConsumerGroupMember(request_.member_id, subscription)
    records = (
        member_metadata_record("g", request_.member_id, subscription),
        target_record("g", request_.member_id, ()),
        current_record("g", request_.member_id, member.current()),
    )
    size_bytes = sum(len(key) + len(value or b"") for key, value in records)
    assert size_bytes <= request_.size_bytes <= size_bytes + 600
