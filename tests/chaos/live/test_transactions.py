"""The judgement of transactions: good histories pass, and each anomaly is found and named."""

from __future__ import annotations

import random
from typing import Any

import pytest
from support.chaos.histories import clean
from support.chaos.transaction_histories import (
    GROUP,
    UNCOMMITTED,
    asked,
    begun,
    ended,
    final,
    good_history,
    group_offset,
    read,
    stable,
)

from raftwerk.chaos.live.checker.checker import check_lines
from raftwerk.chaos.live.checker.findings import TRANSACTION_KINDS

Line = dict[str, Any]
T0, T1, U0 = ["t", 0], ["t", 1], ["u", 0]


def found(lines: list[Line]) -> dict[str, int]:
    counts = check_lines(lines).verdict.findings.counts
    return {kind: count for kind, count in counts.items() if count}


def first(lines: list[Line], kind: str) -> str:
    return check_lines(lines).verdict.findings.evidence[kind][0].text


def committed(name: str, *writes: list[Any], acks: tuple[int | None, ...], at: float = 1.0, **more: Any) -> list[Line]:
    """A transaction that begins at this time, asks for its commit after 0.2 s, and is told of it after 0.3 s."""
    line = begun(name, *writes, at=at, **more)
    return [line, asked(name, at + 0.2), ended(line, "ok", *acks, at=at + 0.3)]


# -- what is right


def test_a_good_history_is_valid() -> None:
    verdict = check_lines(good_history()).verdict
    assert (verdict.word, found(good_history())) == ("VALID", {})
    figures = verdict.transactions
    assert {name: figures[name] for name in ("committed", "aborted", "unknown", "effects")} == {
        "committed": 8,
        "aborted": 3,
        "unknown": 2,
        "effects": 4,
    }
    assert verdict.notes == ()


def test_sends_and_transactions_are_judged_together() -> None:
    verdict = check_lines([*clean(), *good_history()]).verdict
    assert verdict.word == "VALID" and verdict.totals["acked"] == 5 and verdict.transactions["transactions"] == 13


def test_a_load_that_was_not_looked_at_makes_the_history_unknown() -> None:
    acked = [line for line in clean(5) if line["f"] == "send"]
    assert check_lines([*acked, *good_history()]).verdict.word == "UNKNOWN"
    unread = [line for line in good_history() if line["f"] not in ("read", "final", "assign", "group-offset")]
    assert check_lines([*clean(5), *unread]).verdict.word == "UNKNOWN"


def test_the_order_of_lines_does_not_matter() -> None:
    lines = good_history()
    reads = [line for line in lines if line["f"] in ("read", "assign")]
    others = [line for line in lines if line["f"] not in ("read", "assign")]
    random.Random(1).shuffle(others)
    assert found([*reads, *others]) == {}


def test_a_history_without_commits_says_nothing() -> None:
    verdict = check_lines([begun("w.1:1", T0), *final(end=0)]).verdict
    assert verdict.word == "UNKNOWN"
    assert verdict.notes == ("no transaction was committed: there is nothing to lose in them",)


def test_a_history_without_reads_at_read_committed_says_nothing() -> None:
    """As when a transaction that stays open keeps all readers at read_committed from reading."""
    lines = [*committed("w.1:1", T0, acks=(0,)), read([0, "w.1:1", 0], isolation=UNCOMMITTED)]
    verdict = check_lines(lines).verdict
    assert verdict.word == "UNKNOWN"
    assert verdict.notes[0] == "nothing was read at read_committed: what was committed cannot be looked for"
    assert check_lines([*lines, read([0, "w.1:1", 0], process="other")]).verdict.word == "VALID"


def test_without_a_final_read_what_anybody_read_counts() -> None:
    lines = committed("w.1:1", T0, U0, acks=(0, 0))
    assert found([*lines, read([0, "w.1:1", 0]), read([0, "w.1:1", 1], topic="u")]) == {}
    lines += committed("w.1:2", U0, acks=(1,), at=2.0)
    assert found([*lines, read([0, "w.1:1", 0]), read([1, "w.1:2", 0], topic="u")]) == {"torn-transaction": 1}


def test_concurrent_transactions_may_lie_in_any_order() -> None:
    one, two = begun("w.1:1", T0, U0, at=1.0), begun("v.1:1", T0, U0, at=1.1)
    lines = [one, two, asked("w.1:1", 2.0), asked("v.1:1", 2.0), ended(one, "ok", 0, 1, at=3.0)]
    lines += [ended(two, "ok", 1, 0, at=3.0), *final([0, "w.1:1", 0], [1, "v.1:1", 0], end=4)]
    assert found([*lines, *final([0, "v.1:1", 1], [1, "w.1:1", 1], topic="u", end=4)]) == {}


def test_an_unknown_outcome_is_one_of_both() -> None:
    line = begun("w.1:1", T0, U0)
    unknown = [
        *committed("v.1:1", T1, acks=(0,)),
        line,
        asked("w.1:1", 2.0),
        *final([0, "v.1:1", 0], partition=1, end=2),
    ]
    there = [*final([0, "w.1:1", 0], end=2), *final([0, "w.1:1", 1], topic="u", end=2)]
    assert found([*unknown, *there]) == {}
    assert found([*unknown, *final(end=2), *final(topic="u", end=2)]) == {}


# -- what is wrong


def test_vanished() -> None:
    """Its outcome is unknown, but somebody read it at read_committed, so it was committed."""
    line = begun("v.1:1", T0, U0, at=3.0)
    lines = [*committed("w.1:1", T0, acks=(0,)), line, asked("v.1:1", 4.0), *final(topic="u", end=2)]
    final_read = final([0, "w.1:1", 0], end=5)
    assert found([*lines, *final_read]) == {}
    assert found([*lines, read([0, "w.1:1", 0], [2, "v.1:1", 0], isolation=UNCOMMITTED), *final_read]) == {}
    lines += [read([0, "w.1:1", 0], [2, "v.1:1", 0], at=10.0)]
    assert found([*lines, *final_read]) == {"vanished": 1}
    assert first([*lines, *final_read], "vanished") == (
        "transaction v.1:1 was read at read_committed, and is not in the final read: record 0 (t-0)"
    )
    assert found([*lines, final_read[0]]) == {}, "the final read did not come to the end"


@pytest.mark.parametrize("end", [1, 2])
def test_vanished_from_the_end_of_the_log(end: int) -> None:
    """It was read at or behind the offset at which the log ends when everything is over."""
    lines = [*committed("w.1:1", T0, acks=(0,)), begun("v.1:1", T0, at=3.0), asked("v.1:1", 4.0)]
    lines += [read([0, "w.1:1", 0], [2, "v.1:1", 0], at=10.0), *final([0, "w.1:1", 0], end=end)]
    assert found(lines) == {"vanished": 1}


def test_vanished_from_the_end_of_the_log_though_its_commit_was_reported() -> None:
    lines = [*committed("w.1:1", T0, acks=(0,)), *committed("v.1:1", T0, acks=(2,), at=3.0)]
    lines += final([0, "w.1:1", 0], end=1)
    assert found(lines) == {"unseen": 1}
    assert found([*lines, read([0, "w.1:1", 0], [2, "v.1:1", 0], at=10.0)]) == {"vanished": 1}


def test_lost_transaction() -> None:
    lines = [*committed("w.1:1", T0, acks=(0,)), *committed("w.1:2", T0, acks=(2,), at=2.0)]
    lines += final([0, "w.1:1", 0], end=4)
    assert found(lines) == {"lost-transaction": 1}
    assert first(lines, "lost-transaction") == (
        "transaction w.1:2 was committed at 1.300 s; gone is record 0 (t-0 offset 2)"
    )


@pytest.mark.parametrize("is_known", [True, False])
def test_torn_transaction(is_known: bool) -> None:
    lines = committed("w.1:1", T0, U0, acks=(0, 0))[: 3 if is_known else 2]
    lines += [*committed("v.1:1", T1, acks=(0,)), *final([0, "v.1:1", 0], partition=1, end=2)]
    lines += [*final([0, "w.1:1", 0], end=2), *final(topic="u", end=2)]
    assert found(lines) == {"torn-transaction": 1}
    where = [" offset 0" if is_known else ""] * 2
    assert first(lines, "torn-transaction") == (
        f"transaction w.1:1 ({'committed' if is_known else 'unknown'}): the final read has record 0 (t-0{where[0]}), "
        f"and not record 1 (u-0{where[1]})"
    )


def test_unseen() -> None:
    lines = [*committed("w.1:1", T0, acks=(5,)), *final(end=3)]
    assert found(lines) == {"unseen": 1}
    assert first(lines, "unseen") == "transaction w.1:1 is committed; no final read came to record 0 (t-0 offset 5)"


def test_a_run_that_was_cut_short_lost_no_transaction_that_nobody_looked_for() -> None:
    lines = committed("w.1:1", T0, U0, T0, acks=(0, 4, 7))
    lines += [*committed("w.1:2", T0, acks=(3,), at=2.0), *committed("w.1:3", U0, acks=(None,), at=3.0)]
    lines += [read([0, "w.1:1", 0])]
    assert found(lines) == {}
    passed = [*lines, *committed("w.1:4", T0, acks=(9,), at=4.0), read([9, "w.1:4", 0], at=5.0)]
    assert found(passed) == {"torn-transaction": 1, "lost-transaction": 1}


def test_aborted_read() -> None:
    line = begun("w.1:2", T0, at=3.0)
    lines = [*committed("w.1:1", T0, acks=(0,)), line, *final([0, "w.1:1", 0], end=4)]
    aborted = [*lines, ended(line, "fail", 2, at=4.0), read([2, "w.1:2", 0])]
    assert found(aborted) == {"aborted-read": 1}
    assert first(aborted, "aborted-read") == (
        "record 0 of transaction w.1:2 at t-0 offset 2 was read at read_committed; "
        "the transaction was aborted at 3.000 s"
    )
    assert "nobody asked for its commit" in first([*lines, read([2, "w.1:2", 0])], "aborted-read")
    assert found([*lines, ended(line, "fail", 2, at=4.0), read([2, "w.1:2", 0], isolation=UNCOMMITTED)]) == {}


def test_aborted_read_of_a_zombie() -> None:
    """Its commit was asked for when its successor had begun, so it cannot have been committed."""
    lines = [begun("w.1:1", T0, at=1.0), *committed("w.2:1", U0, acks=(0,), at=2.0), asked("w.1:1", 3.0)]
    lines += final([0, "w.2:1", 0], topic="u", end=2)
    assert found([*lines, *final(end=2)]) == {}
    assert found([*lines, *final([0, "w.1:1", 0], end=2)]) == {"aborted-read": 1}
    said = first([*lines, *final([0, "w.1:1", 0], end=2)], "aborted-read")
    assert said.endswith("its commit was asked for at 2.000 s, and its successor began at 1.000 s")


def test_fenced_commit() -> None:
    zombie = begun("w.1:1", T0, at=1.0)
    lines = [zombie, *committed("w.2:1", U0, acks=(0,), at=2.0), asked("w.1:1", 3.0), ended(zombie, "ok", 0, at=4.0)]
    lines += [*final([0, "w.1:1", 0], end=2), *final([0, "w.2:1", 0], topic="u", end=2)]
    assert found(lines) == {"fenced-commit": 1}
    assert first(lines, "fenced-commit") == (
        "transaction w.1:1 was committed at 3.000 s; its commit was asked for at 2.000 s, and its successor began at "
        "1.000 s"
    )


def test_intermediate_read() -> None:
    lines = [*committed("w.1:1", T0, acks=(0,), at=5.0), *final([0, "w.1:1", 0], end=2)]
    assert found([*lines, read([0, "w.1:1", 0], at=5.2)]) == {}
    early = [*lines, read([0, "w.1:1", 0], at=5.1)]
    assert found(early) == {"intermediate-read": 1}
    assert first(early, "intermediate-read") == (
        "record 0 of transaction w.1:1 at t-0 offset 0 was read at read_committed 0.100000 s before the commit was "
        "asked for"
    )


def test_write_cycle() -> None:
    """In one partition the later one is first, in the other one second."""
    lines = [*committed("w.1:1", T0, U0, acks=(1, 0)), *committed("v.1:1", T0, U0, acks=(0, 1), at=4.0)]
    lines += final([0, "v.1:1", 0], [1, "w.1:1", 0], end=4)
    lines += final([0, "w.1:1", 1], [1, "v.1:1", 1], topic="u", end=4)
    assert found(lines) == {"write-cycle": 1}
    assert first(lines, "write-cycle") == (
        "record 0 of transaction w.1:1 at t-0 offset 1 stands behind transaction v.1:1 at offset 0, which began at "
        "3.000 s, though its own had ended at 0.300 s"
    )


def test_write_cycle_of_a_zombie_whose_end_nobody_was_told() -> None:
    lines = [
        begun("w.1:1", T0, at=1.0),
        *committed("w.2:1", T0, acks=(0,), at=2.0),
        *committed("w.2:2", T0, acks=(2,), at=3.0),
    ]
    late = read([0, "w.2:1", 0], [2, "w.2:2", 0], [4, "w.1:1", 0], isolation=UNCOMMITTED)
    assert found([*lines, late, *final([0, "w.2:1", 0], [2, "w.2:2", 0], end=6)]) == {"write-cycle": 1}


def test_write_cycle_of_a_zombie_behind_the_first_transaction_of_its_successor() -> None:
    lines = [begun("w.1:1", T0, at=1.0), *committed("w.2:1", T0, acks=(0,), at=2.0)]
    lines += final([0, "w.2:1", 0], end=3)
    assert found([*lines, read([0, "w.2:1", 0], [2, "w.1:1", 0], isolation=UNCOMMITTED)]) == {"write-cycle": 1}


def processed(*rows: tuple[int, int], offset: int) -> list[Line]:
    """Two input records, and transactions that processed these ranges of them; `offset`: the group's in the end."""
    lines = [*committed("w.1:1", T0, T0, acks=(0, 1)), *final([0, "w.1:1", 0], [1, "w.1:1", 1], end=3)]
    effects: list[list[Any]] = []
    for number, (start, end) in enumerate(rows):
        writes = [["e", 0, "t", 0, at] for at in range(start, min(end, 2))]
        acks = tuple(range(len(effects), len(effects) + len(writes)))
        effects += [[at, f"p.1:{number}", index] for index, at in enumerate(acks)]
        inputs = [["t", 0, start, end]]
        lines += committed(f"p.1:{number}", *writes, acks=acks, at=5.0 + number, inputs=inputs)
    return [*lines, *final(*effects, topic="e", end=10), group_offset(offset)]


def test_effects_and_offsets_that_fit() -> None:
    assert found(processed((0, 1), (1, 2), (2, 3), offset=3)) == {}


def test_duplicate_effect() -> None:
    lines = processed((0, 1), (0, 2), offset=2)
    assert found(lines) == {"duplicate-effect": 1, "lost-offset": 1}
    assert first(lines, "duplicate-effect") == (
        "t-0 offset 0 has an effect at e-0 offset 0, in transaction p.1:0, and another at e-0 offset 1, in transaction "
        "p.1:1"
    )


def test_groups_that_process_the_same_topic_have_their_effects_each_for_themselves() -> None:
    lines = processed((0, 1), (1, 2), offset=2)
    other = [
        line | {key: f"other.{line[key]}" for key in ("txn", "id", "group") if key in line}
        for line in lines
        if line.get("txn", "").startswith("p.") or line["f"] == "group-offset"
    ]
    moved = [
        line | {"writes": [["o", *row[1:]] for row in line["writes"]]} if "writes" in line else line for line in other
    ]
    copies = final(*([at, f"other.p.1:{at}", 0] for at in range(2)), topic="o", end=10)
    assert found([*lines, *moved, *copies]) == {}
    late = [line for line in moved if "p.1:1" not in line.get("txn", "")]
    assert found([*lines, *late, *final([0, "other.p.1:0", 0], topic="o", end=10)]) == {
        "lost-effect": 1,
        "aborted-offset": 1,
    }


def test_lost_effect() -> None:
    lines = processed((1, 2), offset=2)
    assert found(lines) == {"lost-effect": 1}
    assert first(lines, "lost-effect") == (
        f"record 0 of transaction w.1:1 at t-0 offset 0 has no effect; group {GROUP} came to offset 2"
    )


def test_lost_effect_in_a_partition_that_no_transaction_processed() -> None:
    """The group jumped over it, or never came there."""
    lines = [*processed((0, 1), (1, 2), offset=2), *committed("v.1:1", T1, acks=(0,))]
    lines += final([0, "v.1:1", 0], partition=1, end=2)
    assert found([*lines, group_offset(2, partition=1)]) == {"lost-effect": 1, "aborted-offset": 1}
    assert first([*lines, group_offset(2, partition=1)], "lost-effect") == (
        f"record 0 of transaction v.1:1 at t-1 offset 0 has no effect; group {GROUP} came to offset 2"
    )
    assert found(lines) == {"unprocessed": 1}


def test_unprocessed() -> None:
    lines = processed((0, 1), offset=1)
    assert found(lines) == {"unprocessed": 1}
    assert first(lines, "unprocessed") == (
        f"record 1 of transaction w.1:1 at t-0 offset 1 has no effect; group {GROUP} came to offset 1"
    )


def test_lost_offset() -> None:
    lines = processed((0, 1), (1, 2), offset=1)
    assert found(lines) == {"lost-offset": 1}
    assert first(lines, "lost-offset") == f"transaction p.1:1 gave group {GROUP} offset 2 of t-0; in the end it has 1"
    again = first(processed((0, 1), (0, 2), offset=2), "lost-offset")
    assert (
        again == f"transaction p.1:0 moved group {GROUP} from t-0 offset 0 to 1, and transaction p.1:1 began again at 0"
    )


def test_lost_offset_of_a_partition_in_which_the_group_has_none_in_the_end() -> None:
    lines = processed((0, 1), (1, 2), offset=2)
    assert found([*lines[:-1]]) == {}, "nobody has looked at the end"
    for ends in ([group_offset(-1)], [stable(3, 3)], [group_offset(0, partition=1)]):
        assert found([*lines[:-1], *ends]) == {"lost-offset": 1}
    assert first([*lines, group_offset(-1)], "lost-offset") == (
        f"transaction p.1:1 gave group {GROUP} offset 2 of t-0; in the end it has none"
    )
    untold = group_offset(0) | {"type": "info", "error": "no broker answers"}
    del untold["offset"]
    assert found([*lines[:-1], stable(3, 3), untold]) == {}, "the cluster has not told it"


def test_aborted_offset() -> None:
    lines = processed((0, 1), (1, 2), offset=3)
    assert found(lines) == {"aborted-offset": 1}
    assert first(lines, "aborted-offset") == (
        f"group {GROUP} has offset 3 of t-0 in the end; transactions that committed gave it at most 2, in transaction "
        "p.1:1"
    )


def test_aborted_offset_where_nothing_was_committed() -> None:
    one = begun("p.1:1", at=1.0, inputs=[["t", 0, 0, 3]])
    lines = [*committed("w.1:1", U0, acks=(0,)), one, ended(one, "fail", at=2.0)]
    lines += [*final([0, "w.1:1", 0], topic="u", end=2), *final(end=3)]
    assert found([*lines, group_offset(0)]) == {}
    assert found([*lines, group_offset(3)]) == {"aborted-offset": 1}
    assert first([*lines, group_offset(3)], "aborted-offset") == (
        f"group {GROUP} has offset 3 of t-0 in the end; no transaction that committed gave it one"
    )


def test_an_offset_whose_commit_has_an_unknown_outcome_may_have_taken_effect() -> None:
    unknown = [begun("p.1:9", at=30.0, inputs=[["t", 0, 2, 3]]), asked("p.1:9", 31.0)]
    for offset in (2, 3):
        assert found([*processed((0, 1), (1, 2), offset=offset), *unknown]) == {}


def test_the_effect_of_an_aborted_input_is_an_aborted_read() -> None:
    aborted = begun("w.1:2", T0, at=3.0)
    lines = [*processed((0, 1), (1, 2), offset=5), aborted, ended(aborted, "fail", 3, at=4.0)]
    lines += committed("p.1:7", ["e", 0, "t", 0, 3], acks=(2,), at=40.0, inputs=[["t", 0, 3, 5]])
    lines += [*final(end=5), *final([2, "p.1:7", 0], topic="e", end=10)]
    assert found(lines) == {"aborted-read": 1}
    assert first(lines, "aborted-read") == (
        "at e-0 offset 2 transaction p.1:7 has the effect of t-0 offset 3, which holds no committed record"
    )


def test_stuck_stable_offset() -> None:
    lines = [*good_history(), stable(4, 4), stable(3, 4)]
    assert found(lines) == {"stuck-stable-offset": 1}
    assert first(lines, "stuck-stable-offset") == (
        "the last stable offset of t-0 is 3, and the log ends at 4, 30 s after the last transaction"
    )


def test_hanging_transaction() -> None:
    line = stable(3, 4) | {"f": "hanging", "producer_id": 7, "offset": 3}
    assert found([*good_history(), line]) == {"hanging-transaction": 1}
    assert first([*good_history(), line], "hanging-transaction") == (
        "t-0 has a transaction of producer id 7 open from offset 3 on, 30 s after the last one should have ended"
    )


def test_skipped_poll() -> None:
    lines = [*committed("w.1:1", T0, T0, T0, acks=(0, 1, 2)), *final(*([n, "w.1:1", n] for n in range(3)), end=4)]
    assert found([*lines, read([0, "w.1:1", 0], [2, "w.1:1", 2])]) == {"skipped-poll": 1}


def test_each_assignment_of_a_reader_is_judged_for_itself() -> None:
    writes = [committed(f"w.1:{n}", T0, acks=(2 * n,), at=n) for n in range(6)]
    records = [[2 * n, f"w.1:{n}", 0] for n in range(6)]
    lines = [*(line for one in writes for line in one), *final(*records, end=12)]

    def from_(offset: int) -> Line:
        return {"process": "reader", "type": "ok", "f": "assign", "topic": "t", "partition": 0, "offset": offset}

    assert found([*lines, from_(8), read(*records[4:]), from_(0), read(*records[:2])]) == {}, "it went back"
    skipping = [from_(0), read(records[0], *records[2:4]), from_(8), read(*records[4:])]
    assert found([*lines, *skipping]) == {"skipped-poll": 1}


def test_reads_of_what_nobody_wrote_of_two_records_at_one_offset_and_back_again() -> None:
    lines = [*committed("w.1:1", T0, T0, acks=(0, 1)), *final([0, "w.1:1", 0], [1, "w.1:1", 1], end=3)]
    assert found(lines) == {}
    assert found([*lines, read([2, "x.1:1", 0], isolation=UNCOMMITTED)]) == {"phantom": 1}
    assert found([*lines, read([2, "w.1:1", 2], isolation=UNCOMMITTED)]) == {"phantom": 1}
    assert found([*lines, read([2, None, 0], isolation=UNCOMMITTED)]) == {"corrupt": 1}
    assert found([*lines, read([0, "w.1:1", 1], isolation=UNCOMMITTED)]) == {"inconsistent-offset": 1}
    assert found([*lines, read([1, "w.1:1", 1], [0, "w.1:1", 0])]) == {"nonmonotonic-poll": 1}
    assert found([*lines, read([2, "w.1:1", 0], isolation=UNCOMMITTED)]) == {"duplicate": 1}
    assert found([*lines, *final([0, "w.1:1", 0], topic="u", end=2)])["duplicate"] == 1


def test_reordered() -> None:
    lines = [*committed("w.1:1", T0, T0, acks=(1, 0)), *final([0, "w.1:1", 1], [1, "w.1:1", 0], end=3)]
    assert found(lines) == {"reordered": 1}


COPIER = {"process": "copier", "type": "info", "f": "history", "version": 1, "copies": ["t", "c", GROUP], "start": 0}


def test_copies_are_there_once() -> None:
    lines = [
        *committed("w.1:1", T0, T0, acks=(0, 1)),
        *final([0, "w.1:1", 0], [1, "w.1:1", 1], end=3),
        COPIER,
        group_offset(2),
    ]
    assert found([*lines, *final([5, "w.1:1", 0], [8, "w.1:1", 1], topic="c", end=9)]) == {}
    twice = [*lines, *final([5, "w.1:1", 0], [8, "w.1:1", 1], [9, "w.1:1", 1], topic="c", end=10)]
    assert found(twice) == {"duplicate-effect": 1}
    assert first(twice, "duplicate-effect") == (
        "record 1 of transaction w.1:1 was copied to c-0 offset 8 and to c-0 offset 9"
    )
    assert found([*lines, *final([5, "w.1:1", 0], topic="c", end=9)]) == {"lost-effect": 1}
    assert found([*lines[:-1], group_offset(1), *final([5, "w.1:1", 0], topic="c", end=9)]) == {"unprocessed": 1}
    aborted = [*lines, begun("w.1:2", T0, at=4.0)]
    read_there = final([5, "w.1:1", 0], [6, "w.1:1", 1], [8, "w.1:2", 0], topic="c", end=9)
    assert found([*aborted, *read_there]) == {"aborted-read": 1}


@pytest.mark.parametrize(("end", "told"), [(group_offset(1), "1"), (group_offset(-1), "none"), (stable(3, 3), "none")])
def test_lost_offset_of_a_copying_group(end: Line, told: str) -> None:
    lines = [COPIER, *committed("w.1:1", T0, T0, acks=(0, 1)), *final([0, "w.1:1", 0], [1, "w.1:1", 1], end=3)]
    lines += final([5, "w.1:1", 0], [8, "w.1:1", 1], topic="c", end=9)
    assert found(lines) == {}, "nobody has looked at the end"
    assert found([*lines, end]) == {"lost-offset": 1}
    assert first([*lines, end], "lost-offset") == f"group g has copied t-0 offset 1; in the end its offset is {told}"


def test_copies_stand_in_the_order_of_their_source() -> None:
    lines = [*committed("w.1:1", T0, acks=(0,)), *committed("w.1:2", T0, acks=(2,), at=5.0)]
    lines += [*committed("v.1:1", T1, acks=(0,)), *final([0, "v.1:1", 0], partition=1, end=2)]
    lines += [*final([0, "w.1:1", 0], [2, "w.1:2", 0], end=4), COPIER, group_offset(4), group_offset(2, partition=1)]
    assert found([*lines, *final([0, "w.1:1", 0], [1, "v.1:1", 0], [2, "w.1:2", 0], topic="c", end=4)]) == {}
    turned = [*lines, *final([0, "w.1:2", 0], [1, "v.1:1", 0], [2, "w.1:1", 0], topic="c", end=4)]
    assert found(turned) == {"reordered": 1}
    assert first(turned, "reordered") == (
        "the copy of record 0 of transaction w.1:1, which is t-0 offset 0, stands at c-0 offset 2 behind that of "
        "offset 2, at offset 0"
    )


def test_copies_that_were_read_before_they_were_committed() -> None:
    """The final read has them no more: that of an aborted record, and one that the copier aborted and made anew."""
    unknown = [begun("v.1:1", T0, at=4.0), asked("v.1:1", 5.0)]
    aborted = begun("w.1:2", T0, at=4.0)
    lines = [*committed("w.1:1", T0, acks=(0,)), aborted, *unknown, COPIER, group_offset(2)]
    lines += [*final([0, "w.1:1", 0], end=6), *final([5, "w.1:1", 0], topic="c", end=9)]
    assert found(lines) == {}
    for name in ("w.1:2", "v.1:1"):
        seen = [*lines, read([3, name, 0], topic="c", at=10.0)]
        assert found(seen) == {"aborted-read": 1}
        assert first(seen, "aborted-read") == (
            f"the copy of record 0 of transaction {name} at c-0 offset 3 was read at read_committed; the record is not "
            "committed"
        )
    again = [*lines, read([3, "w.1:1", 0], [5, "w.1:1", 0], topic="c", at=10.0)]
    assert found(again) == {"vanished": 1}
    assert first(again, "vanished") == (
        "the copy of record 0 of transaction w.1:1 at c-0 offset 3 was read at read_committed, and is not in the final "
        "read"
    )
    cut_short = [*committed("w.1:1", T0, acks=(0,)), *unknown, COPIER, read([0, "w.1:1", 0])]
    assert found([*cut_short, read([3, "v.1:1", 0], [5, "w.1:1", 0], topic="c", at=10.0)]) == {}


def test_every_kind_has_a_test_here() -> None:
    names = {name.removeprefix("test_").replace("_", "-") for name in globals() if name.startswith("test_")}
    assert set(TRANSACTION_KINDS) <= names
