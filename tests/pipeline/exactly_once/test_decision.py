"""How the driver's decision is kept as metadata of offsets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftwerk.cluster.client.transactions.producer_transactions import ProducerIdAndEpoch
from raftwerk.pipeline.source.exactly_once.decision import (
    PART_CHARS,
    Decision,
    ForeignMetadataError,
    TaskTransaction,
    from_parts,
    part_count,
    to_parts,
)

PRODUCERS = st.builds(ProducerIdAndEpoch, st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1))
TRANSACTIONS = st.lists(st.builds(TaskTransaction, st.from_regex(r"\d{1,5}-\d", fullmatch=True), PRODUCERS))
DECISIONS = st.builds(
    Decision, st.integers(1), st.text(), st.integers(0), TRANSACTIONS.map(tuple), is_done=st.booleans()
)


@given(DECISIONS)
def test_a_decision_is_read_as_it_was_written(decision: Decision) -> None:
    assert from_parts(to_parts(decision)) == decision


def test_thousands_of_tasks_fit_into_a_few_parts() -> None:
    tasks = tuple(TaskTransaction(f"{one}-0", ProducerIdAndEpoch(10**12 + 7 * one, one % 900)) for one in range(5000))
    parts = to_parts(Decision(3, "q", 7, tasks))
    assert 1 < len(parts) < 20 and max(map(len, parts)) <= PART_CHARS
    assert part_count(parts[0]) == len(parts)
    assert from_parts(parts).transactions == tasks
    with pytest.raises(ForeignMetadataError):
        from_parts(parts[:-1])


@pytest.mark.parametrize("metadata", ["", "NO_METADATA", "1:", "0:", "x:y", "1:eNo=", "1:bm90IGpzb24="])
def test_what_others_commit_is_no_decision(metadata: str) -> None:
    with pytest.raises(ForeignMetadataError):
        from_parts([metadata] * part_count(metadata))


def test_what_a_decision_covers() -> None:
    decision = Decision(1, "q", 7, (TaskTransaction("0-0", ProducerIdAndEpoch(1, 0)),))
    assert decision.covers("q", 7) and decision.covers("q", 6)
    assert not decision.covers("q", 8) and not decision.covers("another", 7)
    assert decision.done().covers("q", 7) and decision.done().is_done and decision.done().serial == 2
    assert not decision.void().covers("q", 7) and decision.void().covers("q", 6)
