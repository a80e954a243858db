"""Which markers wait for which broker, and what becomes of them by its answer. Pure."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from raftwerk.broker.transactions.marker_queues import (
    Ending,
    MarkerQueues,
    Nobody,
    request_fields,
    response_codes,
    split,
)
from raftwerk.isr.leader.transaction_markers import TransactionMarker
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.types import TopicPartition

A, B, C, GONE = (TopicPartition(name, index) for name, index in (("t", 0), ("t", 1), ("u", 0), ("gone", 0)))
LEADERS = {A: 0, B: 2, C: Nobody.NO_LEADER, GONE: Nobody.GONE}


def ending(producer_id: int = 7, coordinator_partition: int = 3, *, is_commit: bool = True) -> Ending:
    return Ending(coordinator_partition, f"id-{producer_id}", TransactionMarker(producer_id, 5, 9, is_commit, 2))


@pytest.fixture
def queues() -> MarkerQueues:
    return MarkerQueues(LEADERS.__getitem__)


def test_markers_wait_by_the_leaders_of_their_partitions_of_which_broker_0_may_be_one(queues: MarkerQueues) -> None:
    assert queues.add(ending(), [A, B, C]) == []
    assert queues.add(ending(8), [B]) == []
    assert sorted(queues.brokers) == [0, 2]
    assert len(queues) == 4
    assert queues.take(2) == {ending(): {B: None}, ending(8): {B: None}}
    assert queues.brokers == [0] and len(queues) == 2
    assert queues.take(2) == {}
    assert queues.take(Nobody.NO_LEADER) == {ending(): {C: None}}


def test_in_a_partition_that_is_gone_there_is_nothing_to_end(queues: MarkerQueues) -> None:
    assert queues.add(ending(), [GONE, A]) == [GONE]
    assert len(queues) == 1


def test_a_marker_that_waits_already_waits_once(queues: MarkerQueues) -> None:
    for _ in range(2):
        queues.add(ending(), [A])
    assert len(queues) == 1


def test_markers_of_a_partition_that_another_broker_coordinates_are_forgotten(queues: MarkerQueues) -> None:
    """The other one sends them: with this broker's coordinator epoch they would be refused."""
    for partition in (3, 4):
        queues.add(ending(7, partition), [A, C])
    queues.add(ending(7, 3), [B])
    queues.drop(3)
    assert queues.brokers == [0], "nothing waits for broker 2 any more"
    assert queues.take(0) == {ending(7, 4): {A: None}}
    assert queues.take(Nobody.NO_LEADER) == {ending(7, 4): {C: None}}


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_request_has_all_markers_with_their_partitions_by_topic(is_commit: bool) -> None:
    batch = {ending(is_commit=is_commit): dict.fromkeys([A, B, C])}
    assert request_fields(batch) == {
        "markers": [
            {
                "producer_id": 7,
                "producer_epoch": 5,
                "transaction_result": is_commit,
                "topics": [{"name": "t", "partition_indexes": [0, 1]}, {"name": "u", "partition_indexes": [0]}],
                "coordinator_epoch": 9,
                "transaction_version": 2,
            }
        ]
    }


@pytest.mark.parametrize(
    ("code", "is_done"),
    [
        (ErrorCode.NONE, True),
        (ErrorCode.INVALID_PRODUCER_EPOCH, True),
        (ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, True),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, False),
        (ErrorCode.NOT_ENOUGH_REPLICAS, False),
        (ErrorCode.REQUEST_TIMED_OUT, False),
        (ErrorCode.TRANSACTION_COORDINATOR_FENCED, False),
    ],
)
def test_a_marker_is_sent_until_it_is_written_or_not_needed(code: ErrorCode, is_done: bool) -> None:
    done, again = split(ending(), [A], {(7, A): code})
    assert (done, again) == (([A], {}) if is_done else ([], {A: code}))


def test_a_partition_that_the_answer_leaves_out_needs_its_marker_again() -> None:
    rows = [SimpleNamespace(partition_index=index, error_code=code) for index, code in ((0, 0), (1, 6))]
    marker = SimpleNamespace(producer_id=7, topics=[SimpleNamespace(name="t", partitions=rows)])
    answer: Any = SimpleNamespace(markers=[marker])
    codes = response_codes(answer)
    assert codes == {(7, A): ErrorCode.NONE, (7, B): ErrorCode.NOT_LEADER_OR_FOLLOWER}
    done, again = split(ending(), [A, B, C], codes)
    assert done == [A]
    assert again == {B: ErrorCode.NOT_LEADER_OR_FOLLOWER, C: ErrorCode.UNKNOWN_SERVER_ERROR}
    assert split(ending(8), [A], codes) == ([], {A: ErrorCode.UNKNOWN_SERVER_ERROR}), "of another producer"
