"""What the simulator checks of each marker and each reported end of a transaction."""

from __future__ import annotations

import pytest

from raftwerk.broker.transactions.transaction_metadata import TransactionMetadata, TransactionState
from raftwerk.broker.transactions.transaction_records import transaction_record
from raftwerk.chaos.sim.invariants.decision_invariants import DecisionChecker
from raftwerk.chaos.sim.invariants.invariant_broken import InvariantBroken
from raftwerk.isr.leader.transaction_markers import TransactionMarker, encode_marker
from raftwerk.wire.records import NewRecord, encode_batch, read_header
from raftwerk.wire.types import TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("b", 3)
ONGOING = TransactionMetadata(7, 4, 1000).with_partitions(frozenset({A}), 2, 1)
DECIDED = ONGOING.ending(TransactionState.PREPARE_COMMIT, 2, 2)


def checker(*values: TransactionMetadata) -> DecisionChecker:
    """One that has seen records with these values."""
    made = DecisionChecker()
    for value in values:
        record = transaction_record("t", value, 2)
        made.on_committed(bytes(encode_batch([NewRecord(record.key, record.value, (), 0)])))
    return made


def append(decisions: DecisionChecker, key: TopicPartition, epoch: int, *, is_commit: bool = True) -> None:
    batch = bytes(encode_marker(TransactionMarker(7, epoch, 0, is_commit, 2), 0))
    decisions.check_appended(key, read_header(batch), batch)


def test_a_decided_end_has_its_markers_and_is_reported() -> None:
    decisions = checker(ONGOING, DECIDED, DECIDED.completed(3))
    append(decisions, A, 5)
    decisions.check_reported((7, 5), is_commit=True)


@pytest.mark.parametrize(
    ("key", "epoch", "is_commit"), [(A, 4, True), (A, 5, False), (B, 5, True)], ids=["epoch", "result", "partition"]
)
def test_markers_that_nobody_has_decided(key: TopicPartition, epoch: int, is_commit: bool) -> None:
    with pytest.raises(InvariantBroken, match="a marker follows a durable decision"):
        append(checker(ONGOING, DECIDED), key, epoch, is_commit=is_commit)


@pytest.mark.parametrize("values", [(), (ONGOING,)], ids=["nothing", "open"])
def test_ends_that_are_not_durable(values: tuple[TransactionMetadata, ...]) -> None:
    decisions = checker(*values)
    with pytest.raises(InvariantBroken, match="a marker follows a durable decision"):
        append(decisions, A, 5)
    with pytest.raises(InvariantBroken, match="a reported end is durable"):
        decisions.check_reported((7, 5), is_commit=True)


def test_batches_of_records_are_no_markers() -> None:
    batch = bytes(encode_batch([NewRecord(b"k", b"v", (), 0)], producer_id=7, producer_epoch=5, is_transactional=True))
    checker().check_appended(A, read_header(batch), batch)


def test_the_recovered_producer_of_a_transaction_that_was_kept_is_told_of_its_end() -> None:
    """The markers carry the producer of the records (KIP-939)."""
    kept = ONGOING.kept(8, 0, 1000, 2)
    decisions = checker(kept, kept.ending(TransactionState.PREPARE_COMMIT, 2, 3))
    append(decisions, A, 5)
    decisions.check_reported((8, 1), is_commit=True)
    with pytest.raises(InvariantBroken):
        decisions.check_reported((7, 5), is_commit=True)
