"""Which records of a transactional id may follow each other, and how they are read."""

from __future__ import annotations

import pytest

from raftwerk.broker.transactions.transaction_metadata import TransactionMetadata, TransactionState
from raftwerk.broker.transactions.transaction_records import transaction_record
from raftwerk.chaos.specification.transactions.recorded_state import (
    EPOCH_MAX,
    Phase,
    RecordedState,
    read_state,
    read_transactional_id,
)
from raftwerk.chaos.specification.transactions.state_steps import why_no_step
from raftwerk.wire.types import TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("b", 1)
NONE: frozenset[TopicPartition] = frozenset()
EMPTY = RecordedState(1, 7, 3, 1000, Phase.EMPTY, NONE, 10, -1)
ONGOING = EMPTY._replace(phase=Phase.ONGOING, partitions=frozenset({A}), start_ms=20)
COMMITS = ONGOING._replace(phase=Phase.PREPARE_COMMIT, producer_epoch=4, client_version=2)
COMMITTED = COMMITS._replace(phase=Phase.COMPLETE_COMMIT, partitions=NONE)
KEPT = ONGOING._replace(next_producer_id=7, next_producer_epoch=4)
USED_UP = COMMITTED._replace(producer_epoch=EPOCH_MAX - 1)

ALLOWED = [
    (None, EMPTY._replace(producer_epoch=0)),
    (EMPTY, None),
    (EMPTY, EMPTY._replace(producer_epoch=4)),
    (EMPTY, EMPTY),
    (COMMITTED, EMPTY._replace(producer_epoch=5)),
    (USED_UP, EMPTY._replace(producer_id=9, producer_epoch=0, previous_producer_id=7)),
    (EMPTY, ONGOING),
    (ONGOING, ONGOING._replace(partitions=frozenset({A, B}))),
    (ONGOING, KEPT),
    (ONGOING, COMMITS),
    (ONGOING, COMMITS._replace(producer_epoch=3, client_version=1)),
    (ONGOING, COMMITS._replace(producer_epoch=4, client_version=1, phase=Phase.PREPARE_ABORT)),
    (ONGOING, COMMITS._replace(version=0, client_version=0)),
    (EMPTY, COMMITS._replace(phase=Phase.PREPARE_ABORT, partitions=NONE)),
    (KEPT, COMMITS._replace(next_producer_id=7, next_producer_epoch=5)),
    (COMMITS, COMMITTED),
    (COMMITS._replace(next_producer_id=9), COMMITTED._replace(producer_id=9, producer_epoch=0, previous_producer_id=7)),
    (COMMITS._replace(next_producer_id=7, next_producer_epoch=5), COMMITTED._replace(producer_epoch=5)),
]
WRONG = [
    (None, ONGOING),
    (None, EMPTY),
    (ONGOING, None),
    (EMPTY, EMPTY._replace(producer_epoch=2)),
    (EMPTY, EMPTY._replace(producer_epoch=5)),
    (EMPTY, EMPTY._replace(producer_id=9, producer_epoch=0)),
    (ONGOING, EMPTY._replace(producer_epoch=4)),
    (COMMITS, EMPTY._replace(producer_epoch=5)),
    (EMPTY, ONGOING._replace(producer_epoch=4)),
    (EMPTY, ONGOING._replace(timeout_ms=5)),
    (EMPTY, ONGOING._replace(partitions=NONE)),
    (ONGOING, ONGOING._replace(partitions=frozenset({B}))),
    (ONGOING, ONGOING._replace(partitions=frozenset({A, B}), start_ms=30)),
    (COMMITS, COMMITS._replace(partitions=frozenset({A, B}))),
    (COMMITS, ONGOING._replace(producer_epoch=4, partitions=frozenset({A, B}))),
    (KEPT, KEPT._replace(partitions=frozenset({A, B}))),
    (ONGOING, KEPT._replace(next_producer_epoch=3)),
    (ONGOING, COMMITS._replace(partitions=NONE)),
    (ONGOING, COMMITS._replace(producer_epoch=3)),
    (ONGOING, COMMITS._replace(client_version=1)),
    (ONGOING, COMMITS._replace(producer_epoch=5)),
    (EMPTY, COMMITS._replace(partitions=NONE)),
    (COMMITS, COMMITS._replace(phase=Phase.PREPARE_ABORT)),
    (ONGOING, COMMITTED),
    (COMMITS, COMMITTED._replace(phase=Phase.COMPLETE_ABORT)),
    (COMMITS, COMMITTED._replace(partitions=frozenset({A}))),
    (COMMITS, COMMITTED._replace(producer_epoch=5)),
    (COMMITS._replace(next_producer_id=9), COMMITTED),
    (KEPT, COMMITS),
]


@pytest.mark.parametrize(("before", "after"), ALLOWED)
def test_allowed(before: RecordedState | None, after: RecordedState | None) -> None:
    assert why_no_step(before, after) is None


@pytest.mark.parametrize(("before", "after"), WRONG)
def test_not_allowed(before: RecordedState | None, after: RecordedState | None) -> None:
    assert why_no_step(before, after) is not None


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_record_is_read_as_the_coordinator_writes_it(level: int) -> None:
    value = TransactionMetadata(
        7, 3, 1000, TransactionState.ONGOING, frozenset({A, B}), 20, 30, 5, 300, 2, next_producer_epoch=-1
    )
    record = transaction_record("an id", value, level)
    assert read_transactional_id(record.key) == "an id"
    assert record.value is not None
    state = read_state(record.value)
    assert state[:8] == (int(level > 0), 7, 3, 1000, Phase.ONGOING, frozenset({A, B}), 30, 20)
    assert state[8:] == ((5, 300, 2, -1) if level else (-1, -1, 0, -1))


def test_the_producers_of_a_kept_transaction_are_read_at_any_level() -> None:
    value = TransactionMetadata(7, 3, 1000, TransactionState.ONGOING, frozenset({A}), next_producer_id=7)
    record = transaction_record("an id", value._replace(next_producer_epoch=4), 0)
    assert record.value is not None
    assert read_state(record.value).client == (7, 4)


def test_an_empty_transaction_has_no_partitions() -> None:
    record = transaction_record("an id", TransactionMetadata(7, 0, 1000, TransactionState.EMPTY), 0)
    assert record.value is not None
    assert read_state(record.value).partitions == NONE
