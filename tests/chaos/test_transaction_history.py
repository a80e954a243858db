"""The simulator's judgement of transactions: what must not be read, and what must be."""

import pytest

from raftwerk.chaos.sim.invariants.invariant_broken import InvariantBroken
from raftwerk.chaos.sim.invariants.transaction_invariants import EffectHistory, Outcome, TransactionHistory

PLACE = ("t", 0)


def history(outcome: Outcome, *read: str) -> TransactionHistory:
    made = TransactionHistory()
    transaction = made.begin("w/1/1")
    transaction.outcome = outcome
    transaction.written = {"w/1/1/0": PLACE, "w/1/1/1": ("t", 1)}
    for offset, value in enumerate(read):
        made.on_read(transaction.written.get(value, PLACE), offset, value)
    return made


def test_whole_transactions_and_absent_ones_are_right() -> None:
    history(Outcome.COMMITTED, "w/1/1/0", "w/1/1/1").check()
    history(Outcome.ASKED, "w/1/1/0", "w/1/1/1").check()
    history(Outcome.ASKED).check()
    history(Outcome.ABORTED).check()
    history(Outcome.OPEN).check()


@pytest.mark.parametrize("read", [(), ("w/1/1/0",)])
def test_a_reported_commit_is_never_undone(read: tuple[str, ...]) -> None:
    with pytest.raises(InvariantBroken, match="a reported commit is never undone"):
        history(Outcome.COMMITTED, *read).check()


def test_an_unknown_outcome_is_one_of_both() -> None:
    with pytest.raises(InvariantBroken, match="as a whole or not at all"):
        history(Outcome.ASKED, "w/1/1/1").check()


@pytest.mark.parametrize("outcome", [Outcome.OPEN, Outcome.ABORTED])
def test_nothing_is_read_that_was_not_committed(outcome: Outcome) -> None:
    with pytest.raises(InvariantBroken, match="nothing is read that was not committed"):
        history(outcome, "w/1/1/0")


def test_records_of_nobody_and_records_twice_are_noticed() -> None:
    with pytest.raises(InvariantBroken, match="unknown"):
        history(Outcome.COMMITTED, "w/2/1/0")
    with pytest.raises(InvariantBroken, match="there once"):
        history(Outcome.COMMITTED, "w/1/1/0", "w/1/1/0")


@pytest.mark.parametrize("outcome", [Outcome.COMMITTED, Outcome.ASKED])
def test_records_in_another_partition_or_order_are_noticed(outcome: Outcome) -> None:
    made = TransactionHistory()
    transaction = made.begin("w/1/1")
    transaction.outcome = outcome
    transaction.written = {"w/1/1/0": PLACE, "w/1/1/1": PLACE}
    made.on_read(PLACE, 1, "w/1/1/0")
    made.on_read(PLACE, 0, "w/1/1/1")
    with pytest.raises(InvariantBroken, match="a transaction's records keep their order"):
        made.check()
    transaction.written = {"w/1/1/1": PLACE, "w/1/1/0": ("t", 1)}
    with pytest.raises(InvariantBroken, match="in the partition that it was sent to"):
        made.check()


def test_each_input_has_its_effect_once() -> None:
    effects = EffectHistory()
    effects.on_read(PLACE, 0, "0/0")
    effects.on_read(PLACE, 0, "0/0")  # read again from the same place
    assert effects.why_incomplete({0: range(1)}) is None
    assert effects.why_incomplete({0: range(2)}) == "input 0/1 has no effect"
    with pytest.raises(InvariantBroken, match="exactly once"):
        effects.on_read(PLACE, 7, "0/0")
