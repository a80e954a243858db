"""Where replicas' logs are to be made, and how the controller hears of it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from itertools import pairwise
from uuid import UUID

import pytest

from raftwerk.chaos.sim.kernel.event_loop import ProcessLoop, Scheduler
from raftwerk.controller.metadata.metadata_image import PartitionRegistration
from raftwerk.controller.metadata.metadata_records import LOST, MIGRATING, UNASSIGNED
from raftwerk.isr.directories.directory_assignments import DirectoryAssignments, Place, may_have_records, place_of
from raftwerk.isr.ports import ReplicaKey
from raftwerk.wire.errors import ErrorCode, ProtocolError

A, B, GONE = UUID(int=500), UUID(int=501), UUID(int=502)
TOPIC = UUID(int=7)


@pytest.mark.parametrize("has_records", [False, True])
@pytest.mark.parametrize(
    ("registered", "some_failed", "place"),
    [
        (A, False, Place.THERE),
        (B, True, Place.THERE),
        (UNASSIGNED, False, Place.ANYWHERE),
        (LOST, False, Place.ANYWHERE),
        (LOST, True, Place.ANYWHERE),
        (MIGRATING, False, Place.ANYWHERE),
        (MIGRATING, True, Place.OFFLINE),
        (GONE, False, Place.NOWHERE_YET),
        (GONE, True, Place.OFFLINE),
    ],
)
def test_place(registered: UUID, some_failed: bool, has_records: bool, place: Place) -> None:
    assert place_of(registered, [A, B], some_failed=some_failed, has_records=has_records) is place


@pytest.mark.parametrize(("has_records", "place"), [(False, Place.ANYWHERE), (True, Place.OFFLINE)])
def test_an_empty_log_does_not_take_the_place_of_one_whose_directory_was_never_told(
    has_records: bool, place: Place
) -> None:
    """The log was made, and its directory has failed before the controller heard of it."""
    assert place_of(UNASSIGNED, [A, B], some_failed=True, has_records=has_records) is place


@pytest.mark.parametrize(
    ("isr", "elr", "leader_epoch", "expected"),
    [
        ((1, 2), (), 0, False),  # a new partition
        ((2,), (), 3, False),
        ((1, 2), (), 1, True),
        ((), (1,), 0, True),
        ((), (2,), 3, False),
    ],
)
def test_which_replicas_may_have_records(
    isr: tuple[int, ...], elr: tuple[int, ...], leader_epoch: int, expected: bool
) -> None:
    registration = PartitionRegistration((1, 2), isr, elr, (), (), (), 2, leader_epoch, 5)
    assert may_have_records(registration, 1) is expected


class Controller:
    """Answers with the codes that stand ready, then with NONE."""

    def __init__(self) -> None:
        self.asked: list[dict[ReplicaKey, UUID]] = []
        self.answers: list[ErrorCode | Exception] = []

    async def send(self, assignments: Mapping[ReplicaKey, UUID]) -> Mapping[ReplicaKey, int]:
        self.asked.append(dict(assignments))
        await asyncio.sleep(0.001)
        answer = self.answers.pop(0) if self.answers else ErrorCode.NONE
        if isinstance(answer, Exception):
            raise answer
        return dict.fromkeys(assignments, int(answer))


def run(body: object) -> list[str]:
    """Returns the errors that were reported."""
    scheduler = Scheduler()
    ProcessLoop(scheduler, "test").run_until_complete(body, 600.0)  # type: ignore[arg-type]
    return [str(error) for error in scheduler.errors]


def test_assignments_that_the_metadata_has_are_not_sent() -> None:
    async def body() -> None:
        controller = Controller()
        assignments = DirectoryAssignments(controller.send, 50)
        assignments.note((TOPIC, 0), A, A)
        await asyncio.sleep(1)
        assert controller.asked == []

    run(body())


def test_assignments_are_batched_and_the_newest_counts() -> None:
    async def body() -> None:
        controller = Controller()
        assignments = DirectoryAssignments(controller.send, 50)
        assignments.note((TOPIC, 0), UNASSIGNED, A)
        assignments.note((TOPIC, 1), UNASSIGNED, A)
        assignments.note((TOPIC, 1), UNASSIGNED, B)
        await asyncio.sleep(0.0005)
        assignments.note((TOPIC, 0), UNASSIGNED, B)  # it moved while the request was under way
        await asyncio.sleep(1)
        assert controller.asked == [{(TOPIC, 0): A, (TOPIC, 1): B}, {(TOPIC, 0): B}]
        assert assignments.pending == {}

    run(body())


@pytest.mark.parametrize(
    "trouble", [ProtocolError(ErrorCode.REQUEST_TIMED_OUT, ""), OSError("gone"), ErrorCode.UNKNOWN_SERVER_ERROR]
)
def test_failed_requests_are_sent_again_after_a_growing_pause(trouble: ErrorCode | Exception) -> None:
    async def body() -> None:
        controller = Controller()
        controller.answers = [trouble] * 5
        assignments = DirectoryAssignments(controller.send, 50)
        assignments.note((TOPIC, 0), UNASSIGNED, A)
        await asyncio.sleep(0.7)
        assert 3 <= len(controller.asked) <= 5
        await asyncio.sleep(5)
        assert controller.asked == [{(TOPIC, 0): A}] * 6
        assert assignments.pending == {}

    run(body())


def test_an_unexpected_error_is_reported_and_the_assignments_sent_again() -> None:
    async def body() -> None:
        controller = Controller()
        controller.answers = [ValueError("what nobody expects")]
        assignments = DirectoryAssignments(controller.send, 50)
        assignments.note((TOPIC, 0), UNASSIGNED, A)
        await asyncio.sleep(1)
        assert controller.asked == [{(TOPIC, 0): A}] * 2
        assert assignments.pending == {}

    reported = run(body())
    assert len(reported) == 1 and "the directories of 1 replicas could not be told" in reported[0]


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_a_deleted_replica_is_not_sent_again(code: ErrorCode) -> None:
    async def body() -> None:
        controller = Controller()
        controller.answers = [code]
        assignments = DirectoryAssignments(controller.send, 50)
        assignments.note((TOPIC, 0), UNASSIGNED, A)
        await asyncio.sleep(5)
        assert len(controller.asked) == 1

    run(body())


def test_thousands_of_assignments_go_in_several_requests() -> None:
    async def body() -> None:
        controller = Controller()
        assignments = DirectoryAssignments(controller.send, 50)
        for index in range(5_000):
            assignments.note((TOPIC, index), UNASSIGNED, A)
        await asyncio.sleep(5)
        assert [len(batch) for batch in controller.asked] == [2_250, 2_250, 500]

    run(body())


def test_nothing_is_sent_after_stop() -> None:
    async def body() -> None:
        controller = Controller()
        assignments = DirectoryAssignments(controller.send, 50)
        await assignments.stop()
        assignments.note((TOPIC, 0), UNASSIGNED, A)
        await asyncio.sleep(1)
        assert controller.asked == []

    run(body())


def test_assignments_that_are_refused_do_not_keep_others_from_being_sent() -> None:
    async def body() -> None:
        controller = Controller()
        controller.answers = [ErrorCode.UNKNOWN_SERVER_ERROR]
        assignments = DirectoryAssignments(controller.send, 50)
        for index in range(2_251):
            assignments.note((TOPIC, index), UNASSIGNED, A)
        await asyncio.sleep(5)
        assert next(iter(controller.asked[1])) == (TOPIC, 2_250)
        assert assignments.pending == {}

    run(body())


def test_pauses_grow_to_ten_seconds_and_begin_anew_after_an_answer() -> None:
    """A controller that is down for an hour is asked some hundred times, and told within seconds when it is back."""

    async def body() -> None:
        loop, controller = asyncio.get_running_loop(), Controller()
        controller.answers = [OSError("gone")] * 12
        asked_at: list[float] = []

        async def send(assignments: Mapping[ReplicaKey, UUID]) -> Mapping[ReplicaKey, int]:
            asked_at.append(loop.time())
            return await controller.send(assignments)

        assignments = DirectoryAssignments(send, 50)
        assignments.note((TOPIC, 0), UNASSIGNED, A)
        await asyncio.sleep(120.0)
        pauses_s = [round(after - before, 2) for before, after in pairwise(asked_at)]
        assert pauses_s == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0, 10.0, 10.0]
        assert assignments.pending == {}
        controller.answers = [OSError("gone")]
        assignments.note((TOPIC, 1), UNASSIGNED, A)
        await asyncio.sleep(1.0)
        assert round(asked_at[-1] - asked_at[-2], 2) == 0.05
        assert assignments.pending == {}

    run(body())


def test_what_became_true_or_without_meaning_before_it_was_sent_is_not_sent() -> None:
    """The metadata has it meanwhile, or the replica is gone."""

    async def body() -> None:
        controller = Controller()
        assignments = DirectoryAssignments(controller.send, 50)
        for index in range(3):
            assignments.note((TOPIC, index), UNASSIGNED, A)
        assignments.note((TOPIC, 0), A, A)
        assignments.forget((TOPIC, 1))
        assignments.forget((TOPIC, 9))
        await asyncio.sleep(1.0)
        assert controller.asked == [{(TOPIC, 2): A}]

    run(body())


def test_a_replica_that_is_gone_when_its_assignment_is_refused_is_not_assigned_again() -> None:
    async def body() -> None:
        controller = Controller()
        controller.answers = [ErrorCode.UNKNOWN_SERVER_ERROR]
        assignments = DirectoryAssignments(controller.send, 50)
        for index in range(2):
            assignments.note((TOPIC, index), UNASSIGNED, A)
        await asyncio.sleep(0.0005)
        assignments.forget((TOPIC, 0))
        await asyncio.sleep(1.0)
        assert controller.asked == [{(TOPIC, 0): A, (TOPIC, 1): A}, {(TOPIC, 1): A}]

    run(body())


def test_an_assignment_without_an_answer_of_its_own_is_sent_again() -> None:
    async def body() -> None:
        asked: list[dict[ReplicaKey, UUID]] = []

        async def send(assignments: Mapping[ReplicaKey, UUID]) -> Mapping[ReplicaKey, int]:
            asked.append(dict(assignments))
            return {(TOPIC, 0): 0} if len(asked) == 1 else dict.fromkeys(assignments, 0)

        assignments = DirectoryAssignments(send, 50)
        for index in range(2):
            assignments.note((TOPIC, index), UNASSIGNED, A)
        await asyncio.sleep(1.0)
        assert asked == [{(TOPIC, 0): A, (TOPIC, 1): A}, {(TOPIC, 1): A}]

    run(body())


def test_a_stop_ends_the_attempts() -> None:
    async def body() -> None:
        controller = Controller()
        controller.answers = [OSError("gone")] * 100
        assignments = DirectoryAssignments(controller.send, 50)
        assignments.note((TOPIC, 0), UNASSIGNED, A)
        await asyncio.sleep(1.0)
        before = len(controller.asked)
        await assignments.stop()
        await asyncio.sleep(60.0)
        assert len(controller.asked) == before > 1
        assert assignments.pending == {}

    run(body())
