"""Decisions about a transactional id whose producer has used up its epochs, or is known by its former producer id."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from raftwerk.broker.transactions.transaction_decisions import (
    Answer,
    Decision,
    InitRequest,
    Producer,
    Transition,
    add_partitions,
    end_transaction,
    init_producer_id,
    verify_partitions,
)
from raftwerk.broker.transactions.transaction_metadata import EPOCH_MAX, TransactionMetadata, TransactionState
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.types import TopicPartition

LAST_EPOCH = EPOCH_MAX - 1
"""The highest epoch that a producer may have. The one above it fences that producer."""
PARTITIONS = frozenset({TopicPartition("flights", 0)})
NEW_ID = 500
NOW_MS = 9_000


def initialize(current: TransactionMetadata, expected: Producer | None, new_id: int | None = NEW_ID) -> Decision:
    request = InitRequest(60_000, expected)
    return init_producer_id(
        current, request, is_busy=False, producer_ids=lambda: new_id, transaction_version=2, now_ms=NOW_MS
    )


def add(current: TransactionMetadata, producer: Producer) -> Decision:
    return add_partitions(current, producer, PARTITIONS, is_busy=False, client_version=2, now_ms=NOW_MS)


def end(
    current: TransactionMetadata,
    producer: Producer,
    client_version: int = 2,
    *,
    is_commit: bool = True,
    new_id: int | None = NEW_ID,
) -> Decision:
    return end_transaction(
        current,
        producer,
        is_commit=is_commit,
        is_busy=False,
        client_version=client_version,
        producer_ids=lambda: new_id,
        now_ms=NOW_MS,
    )


def transition(decision: Decision) -> Transition:
    assert isinstance(decision, Transition)
    return decision


def granted(decision: Decision) -> Producer:
    """The producer that the decision makes its client, in the answer and in the next state alike."""
    value, answer = transition(decision)
    assert answer.error == ErrorCode.NONE
    assert value.client == (answer.producer_id, answer.producer_epoch)
    return Producer(answer.producer_id, answer.producer_epoch)


def with_another_id() -> TransactionMetadata:
    """The state after the producer 7 with the last epoch has asked for its next one: it is the producer `NEW_ID`."""
    exhausted = TransactionMetadata(7, LAST_EPOCH, 60_000, TransactionState.COMPLETE_COMMIT)
    return transition(initialize(exhausted, Producer(7, LAST_EPOCH))).value


def test_a_producer_with_the_last_epoch_goes_on_with_another_id() -> None:
    value = with_another_id()
    assert value.client == (NEW_ID, 0)
    assert value.previous_producer_id == 7


def test_a_client_that_has_missed_its_new_producer_id_is_given_it_again() -> None:
    """It still names its former producer id, with the last epoch. A lower epoch belongs to a producer before it."""
    value = with_another_id()
    assert granted(initialize(value, Producer(7, LAST_EPOCH))) == (NEW_ID, 0)
    for epoch in (LAST_EPOCH - 1, 0):
        assert initialize(value, Producer(7, epoch)) == Answer(ErrorCode.PRODUCER_FENCED)
    assert initialize(value, Producer(8, LAST_EPOCH)) == Answer(ErrorCode.PRODUCER_FENCED)


def test_a_client_that_asks_again_for_the_last_epoch_is_given_that_one() -> None:
    """It has missed the answer. It needs no other producer id yet."""
    value = transition(initialize(TransactionMetadata(7, LAST_EPOCH - 1), Producer(7, LAST_EPOCH - 1))).value
    assert value.client == (7, LAST_EPOCH)
    assert granted(initialize(value, Producer(7, LAST_EPOCH - 1))) == (7, LAST_EPOCH)


def test_the_last_producer_goes_on_with_another_id_after_its_transaction_was_aborted() -> None:
    """The epoch above its own, with which it was fenced, is the highest: none can follow."""
    open_one = transition(add(TransactionMetadata(7, LAST_EPOCH), Producer(7, LAST_EPOCH))).value
    aborted = open_one.fenced(0, NOW_MS).completed(NOW_MS)
    assert aborted.client == (7, EPOCH_MAX)
    assert granted(initialize(aborted, Producer(7, LAST_EPOCH))) == (NEW_ID, 0)
    assert granted(initialize(aborted, None)) == (NEW_ID, 0)


def test_while_there_is_no_new_producer_id_the_client_is_to_ask_again() -> None:
    exhausted = TransactionMetadata(7, LAST_EPOCH, 60_000, TransactionState.COMPLETE_COMMIT)
    open_one = transition(add(exhausted, Producer(7, LAST_EPOCH))).value
    retry = Answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert initialize(exhausted, None, new_id=None) == retry
    assert end(open_one, Producer(7, LAST_EPOCH), new_id=None) == retry


def test_the_end_of_the_last_epoch_gives_another_producer_id() -> None:
    """The markers still carry the former id, with the epoch that no producer has. The next epoch is the first."""
    open_one = transition(add(TransactionMetadata(7, LAST_EPOCH), Producer(7, LAST_EPOCH))).value
    decision = transition(end(open_one, Producer(7, LAST_EPOCH)))
    assert decision.answer == Answer(ErrorCode.NONE, NEW_ID, 0)
    assert (decision.value.producer_id, decision.value.producer_epoch) == (7, EPOCH_MAX)
    after = decision.value.completed(NOW_MS)
    assert (after.client, after.previous_producer_id) == ((NEW_ID, 0), 7)
    assert end(after, Producer(7, LAST_EPOCH)) == Answer(ErrorCode.NONE, NEW_ID, 0), "the answer was lost"


def test_a_former_producer_that_asks_for_its_next_epoch_does_not_abort_the_transaction_of_its_successor() -> None:
    open_one = transition(add(TransactionMetadata(7, 4, 60_000), Producer(7, 4))).value
    for epoch in (0, 3, 5):
        assert initialize(open_one, Producer(7, epoch)) == Answer(ErrorCode.PRODUCER_FENCED)
    aborted = transition(initialize(open_one, Producer(7, 4)))
    assert aborted.value.state is TransactionState.PREPARE_ABORT
    assert aborted.answer == Answer(ErrorCode.CONCURRENT_TRANSACTIONS)


@pytest.mark.parametrize("is_commit", [True, False])
def test_an_end_of_a_former_producer_is_not_taken_for_a_repeated_one_of_its_successor(is_commit: bool) -> None:
    """The successor keeps its epoch when its transaction ends: the one below was that of the producer before."""
    state = TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT
    of_old_client = TransactionMetadata(7, 4, 60_000, state, client_version=0)
    assert end(of_old_client, Producer(7, 3), is_commit=is_commit) == Answer(ErrorCode.PRODUCER_FENCED)
    of_new_client = of_old_client._replace(client_version=2)
    assert end(of_new_client, Producer(7, 3), is_commit=is_commit) == Answer(ErrorCode.NONE, 7, 4)


@pytest.mark.parametrize("client_version", [0, 2])
def test_a_transaction_keeps_its_start_until_its_end_and_the_abort_of_none_starts_with_itself(
    client_version: int,
) -> None:
    """It is what tools show of a transaction that takes long."""
    open_one = transition(add(TransactionMetadata(7, 0), Producer(7, 0))).value._replace(start_ms=5_000)
    ending = transition(end(open_one, Producer(7, 0), client_version)).value
    assert (ending.start_ms, ending.completed(NOW_MS).start_ms) == (5_000, 5_000)
    more = add_partitions(
        open_one,
        Producer(7, 0),
        frozenset({TopicPartition("hotels", 0)}),
        is_busy=False,
        client_version=2,
        now_ms=NOW_MS,
    )
    assert transition(more).value.start_ms == 5_000
    nothing = TransactionMetadata(7, 0)
    if client_version == 2:
        assert transition(end(nothing, Producer(7, 0), is_commit=False)).value.start_ms == NOW_MS
    else:
        assert end(nothing, Producer(7, 0), 0, is_commit=False) == Answer(ErrorCode.INVALID_TXN_STATE)


@pytest.mark.parametrize("client_version", [0, 2])
@pytest.mark.parametrize("ask", ["add", "verify", "end"])
def test_the_epoch_that_fences_the_last_producer_belongs_to_nobody(ask: str, client_version: int) -> None:
    """A client that names it has made it up, for no answer has ever had it."""
    open_one = transition(add(TransactionMetadata(7, LAST_EPOCH), Producer(7, LAST_EPOCH))).value
    fenced = open_one.fenced(client_version, NOW_MS).completed(NOW_MS)
    assert fenced.producer_epoch == EPOCH_MAX
    nobody = Producer(7, EPOCH_MAX)
    asks: dict[str, Callable[[], object]] = {
        "add": lambda: add(fenced, nobody),
        "verify": lambda: verify_partitions(fenced, nobody, PARTITIONS),
        "end": lambda: end(fenced, nobody, client_version, is_commit=False),
    }
    code = ErrorCode.PRODUCER_FENCED
    assert asks[ask]() == (dict.fromkeys(PARTITIONS, code) if ask == "verify" else Answer(code))
