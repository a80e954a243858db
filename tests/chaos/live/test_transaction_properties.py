"""Properties of the judgement of transactions: what a faultless cluster does is valid, and with one fault it is not."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.chaos.transaction_histories import (
    SECOND,
    SimulatedLogs,
    asked,
    begun,
    ended,
    final,
    good_histories,
    process_all,
    read,
)

from raftwerk.chaos.live.checker.checker import check_lines

Line = dict[str, Any]
T0 = ["t", 0]


def found(lines: list[Line]) -> dict[str, int]:
    counts = check_lines(lines).verdict.findings.counts
    return {kind: count for kind, count in counts.items() if count}


@given(good_histories())
def test_what_a_faultless_cluster_does_is_valid(lines: list[Line]) -> None:
    assert found(lines) == {}


def drop_a_committed_record(lines: list[Line], rng: random.Random) -> set[str]:
    """The final read lacks a record of a transaction whose commit was reported."""
    told = {line["txn"] for line in lines if line["f"] == "txn" and line["type"] == "ok"}
    row, rows = rng.choice(
        [(row, line["records"]) for line in lines if line.get("final") for row in line["records"] if row[1] in told]
    )
    rows.remove(row)
    return {"lost-transaction", "torn-transaction"}


def abort_after_all(lines: list[Line], rng: random.Random) -> set[str]:
    """The client of a committed transaction was told of its abort."""
    rng.choice([one for one in lines if one["f"] == "txn" and one["type"] == "ok" and one["writes"]])["type"] = "fail"
    return {"aborted-read"}


def ask_later(lines: list[Line], rng: random.Random) -> set[str]:
    """The commit was asked for long after its records were read."""
    told = rng.choice([one for one in lines if one["f"] == "txn" and one["type"] == "ok" and one["writes"]])
    for line in lines:
        if line["f"] == "commit" and line["txn"] == told["txn"]:
            line["start"] = 10**6 * SECOND
    return {"intermediate-read", "fenced-commit"}


def repeat_a_record(lines: list[Line], rng: random.Random) -> set[str]:
    """A record is there once more, at the end of its partition."""
    line = rng.choice([line for line in lines if line.get("final") and line["records"]])
    line["records"].append([10**6, *line["records"][0][1:]])
    return {"duplicate"}


def swap_two_transactions(lines: list[Line], rng: random.Random) -> set[str]:
    """Of two transactions, one after the other, the second was there before the first had begun."""
    begins = [line for line in lines if line["f"] == "txn" and line["type"] == "ok" and line["writes"]]
    line = rng.choice(begins)
    end = 10**5 * SECOND
    for other in lines:
        if other["f"] == "txn" and other["txn"] == line["txn"]:
            other |= {"start": end, "writes": [*other["writes"], ["z", 0]]}
    late = begun("y.1:1", ["z", 0], at=0.1)
    lines += [late, asked("y.1:1", 0.1), ended(late, "ok", 1, at=0.2)]
    lines += final([0, line["txn"], len(line["writes"]) - 1], [1, "y.1:1", 0], topic="z", end=3)
    return {"write-cycle"}


def forget_an_offset(lines: list[Line], rng: random.Random) -> set[str]:
    """The group has an older offset in the end."""
    rng.choice([line for line in lines if line["f"] == "group-offset"])["offset"] -= 1
    return {"lost-offset"}


def lose_an_offset(lines: list[Line], rng: random.Random) -> set[str]:
    """The group has no offset in the end."""
    rng.choice([line for line in lines if line["f"] == "group-offset"])["offset"] = -1
    return {"lost-offset"}


def advance_an_offset(lines: list[Line], rng: random.Random) -> set[str]:
    """The group has an offset that nobody committed."""
    rng.choice([line for line in lines if line["f"] == "group-offset"])["offset"] += 1
    return {"aborted-offset"}


def repeat_an_effect(lines: list[Line], rng: random.Random) -> set[str]:
    """A transaction of another processor has the same effect."""
    effects = [
        line for line in lines if line["f"] == "txn" and line["type"] == "ok" and line.get("inputs") and line["writes"]
    ]
    line = rng.choice(effects)
    again = begun("q.1:1", *line["writes"], at=10**4, inputs=line["inputs"])
    lines += [again, asked("q.1:1", 10**4 + 1), ended(again, "ok", 10**6, at=10**4 + 2)]
    topic, partition = line["writes"][0][:2]
    lines += [read([10**6, "q.1:1", 0], topic=topic, partition=partition, at=10**5, process="final") | {"final": True}]
    return {"duplicate-effect"}


Mutation = Callable[[list[Line], random.Random], set[str]]
MUTATIONS: list[Mutation] = [
    drop_a_committed_record,
    abort_after_all,
    ask_later,
    repeat_a_record,
    swap_two_transactions,
    forget_an_offset,
    lose_an_offset,
    advance_an_offset,
    repeat_an_effect,
]


@pytest.mark.parametrize("mutation", MUTATIONS)
@given(lines=good_histories(), rng=st.randoms(use_true_random=False))
def test_a_good_history_with_one_fault_is_invalid(mutation: Mutation, lines: list[Line], rng: random.Random) -> None:
    changed = copy.deepcopy(lines)
    expected = mutation(changed, rng)
    assert set(found(changed)) & expected, found(changed)


def test_the_logs_of_these_tests_have_effects_of_all_committed_inputs() -> None:
    logs = SimulatedLogs()
    logs.transact("w.1:1", [T0, T0], "ok")
    process_all(logs, "p.1")
    assert [row[1:] for row in logs.logs["e", 0] if row[1]] == [["p.1:1", 0], ["p.1:2", 0]]
