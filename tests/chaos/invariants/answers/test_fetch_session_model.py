"""The model of fetch sessions, by which answers are judged."""

from __future__ import annotations

import pytest

from raftwerk.chaos.sim.invariants.answers.fetch_session_model import FetchSessionModels
from raftwerk.chaos.sim.invariants.invariant_broken import InvariantBroken
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    FetchTopicResponse,
    ForgottenTopic,
)


def request(epoch: int, *partitions: int, session_id: int = 7, leader_epoch: int = 0) -> FetchRequest:
    wanted = [FetchPartition(one, leader_epoch) for one in partitions]
    return FetchRequest(session_id=session_id, session_epoch=epoch, topics=[FetchTopic("t", None, wanted)])


def response(*rows: FetchPartitionResponse, error_code: int = 0) -> FetchResponse:
    return FetchResponse(error_code, 7, [FetchTopicResponse("t", None, list(rows))])


def test_a_session_holds_what_was_listed_less_what_was_forgotten() -> None:
    models = FetchSessionModels()
    first = response(FetchPartitionResponse(0, 0, 5, 5, 0), FetchPartitionResponse(1, 0, 6, 6, 0))
    models.on_answered(1, request(0, 0, 1, session_id=0), first)
    following = request(1, 2)
    following.forgotten = [ForgottenTopic("t", None, [0])]
    session = models.on_answered(1, following, response())
    assert session is not None
    assert sorted(partition for _, partition in session.wanted) == [1, 2]
    assert session.told == {("t", 1): (6, 0)}


def test_after_an_error_or_in_another_leader_epoch_all_is_to_be_told_again() -> None:
    models = FetchSessionModels()
    failed = FetchPartitionResponse(0, int(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    models.on_answered(1, request(0, 0, 1, session_id=0), response(failed, FetchPartitionResponse(1, 0, 6, 6, 0)))
    session = models.on_answered(1, request(1, 1, leader_epoch=3), response())
    assert session is not None and session.told == {}


@pytest.mark.parametrize(("next_offset", "told"), [(0, {}), (1, {("t", 0): (6, 0)})])
def test_what_was_told_with_records_that_were_not_taken_is_to_be_told_again(
    next_offset: int, told: dict[tuple[str, int], tuple[int, int]]
) -> None:
    """A follower whose disk is full asks for the same records again; one that has taken them knows what it was told."""
    models = FetchSessionModels()
    models.on_answered(1, request(0, 0, session_id=0), response(FetchPartitionResponse(0, 0, 6, 6, 0, records=b"r")))
    wanted = [FetchTopic("t", None, [FetchPartition(0, 0, next_offset)])]
    again = FetchRequest(session_id=7, session_epoch=1, topics=wanted)
    session = models.on_answered(1, again, response())
    assert session is not None and session.told == told
    session = models.on_answered(1, FetchRequest(session_id=7, session_epoch=2, topics=[]), response())
    assert session is not None and session.told == told


def test_an_epoch_is_answered_once() -> None:
    models = FetchSessionModels()
    models.on_answered(1, request(0, 0, session_id=0), response())
    models.on_answered(1, request(1), response())
    models.on_answered(1, request(1), response(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH))
    with pytest.raises(InvariantBroken, match=r"a fetch session goes on by its epochs.*at epoch 2"):
        models.on_answered(1, request(1), response())


def test_sessions_end_with_their_process() -> None:
    models = FetchSessionModels()
    models.on_answered(1, request(0, 0, session_id=0), response())
    models.forget(1)
    with pytest.raises(InvariantBroken, match="it is unknown"):
        models.on_answered(1, request(1), response())
