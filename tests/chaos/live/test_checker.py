"""Every kind of anomaly, clean histories, and the checker against a slow and simple one."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.chaos.histories import (
    SECOND,
    ack,
    clean,
    done,
    final,
    final_end,
    header,
    invoke,
    oracle,
    poll,
    random_histories,
)

from raftwerk.chaos.live.checker.checker import check_lines
from raftwerk.chaos.live.checker.findings import RECORD_KINDS
from raftwerk.chaos.live.history import HistoryError
from raftwerk.chaos.live.report.report_page import _spans

Line = dict[str, Any]


def found(lines: list[Line]) -> dict[str, int]:
    counts = check_lines(lines).verdict.findings.counts
    return {kind: count for kind, count in counts.items() if count}


def first(lines: list[Line], kind: str) -> str:
    return check_lines(lines).verdict.findings.evidence[kind][0].text


def test_a_clean_history_is_valid() -> None:
    verdict = check_lines(clean()).verdict
    assert verdict.word == "VALID"
    assert verdict.totals == {"sends": 5, "acked": 5, "failed": 0, "unknown": 0, "unanswered": 0, "reads": 10}
    assert verdict.notes == ()


def test_a_record_that_was_not_acked_may_be_missing_or_there() -> None:
    lines = [*clean(3), done("info", 3), done("info", 4), done("fail", 5), final((3, 4))]
    assert found(lines) == {}


def test_a_late_reader_may_start_again_after_an_assignment() -> None:
    again = {"process": "c0", "type": "ok", "f": "assign", "topic": "t", "partition": 0, "offset": 0, "start": 1}
    assert found([*clean(2), again, poll((0, 0), (1, 1))]) == {}


def test_lost() -> None:
    lines = [*clean(3), ack(3, 3), final((4, 4)), ack(4, 4)]
    assert found(lines) == {"lost": 1}
    assert first(lines, "lost") == (
        "record 0:3 acked at 3.100 s for t-0 offset 3, is gone; others were read up to offset 4"
    )


def test_lost_at_an_offset_that_went_to_another_record() -> None:
    assert found([*clean(3), ack(7, 2)]) == {"lost": 1, "inconsistent-offset": 1}


def test_lost_after_it_was_read() -> None:
    lines = [ack(0, 0), ack(1, 1), poll((0, 0), (1, 1)), final((1, 1))]
    assert found(lines) == {"lost": 1}
    assert "though it was read before" in first(lines, "lost")


def test_lost_of_a_partition_that_is_empty_in_the_end() -> None:
    assert found([*clean(1), ack(1, 0, partition=1), final_end(0, partition=1)]) == {"unseen": 1}


def test_vanished() -> None:
    lines = [ack(0, 0), done("info", 1), ack(2, 1), poll((0, 0), (1, 1)), final((0, 0), (1, 2))]
    assert found(lines) == {"vanished": 1, "inconsistent-offset": 1}


def test_vanished_from_the_end_of_the_log() -> None:
    """It was read at offset 3 or behind it, so it was committed, and in the end the log ends at offset 3."""
    for offset in (3, 5):
        lines = [*clean(3), done("info", 3), poll((offset, 3))]
        assert found(lines) == {}, "nobody has told where the log ends"
        assert found([*lines, final_end(3)]) == {"vanished": 1}
        assert first([*lines, final_end(3)], "vanished") == (
            f"record 0:3 was read at t-0 offset {offset}, and not in the final read"
        )


def test_duplicate() -> None:
    lines = [*clean(3), final((3, 1))]
    assert found(lines) == {"duplicate": 1}
    assert first(lines, "duplicate") == "record 0:1 is at t-0 offset 1 and at t-0 offset 3"


def test_duplicates_of_a_plain_producer_are_as_promised() -> None:
    assert found([*clean(3), header(0, idempotent=False), final((3, 1))]) == {}


def test_reordered() -> None:
    lines = [ack(0, 1), ack(1, 0), poll((0, 1), (1, 0)), final((0, 1), (1, 0))]
    assert found(lines) == {"reordered": 1}
    assert first(lines, "reordered") == "record 0:0 is at t-0 offset 1, after number 1 of the same producer"


def test_an_idempotent_producer_keeps_its_order_in_a_partition_whatever_the_keys() -> None:
    lines = [ack(0, 1), ack(1, 0, key=6, start=0), final((0, 1, 6), (1, 0)), final_end(2)]
    assert found(lines) == {"reordered": 1}
    assert found([header(0, idempotent=False), *lines]) == {}


def test_acks_of_an_idempotent_producer_are_reordered_also_if_nobody_has_read_the_records() -> None:
    lines = [ack(0, 1), ack(1, 0), poll((0, 2, 0, 1), partition=1), ack(2, 0, partition=1, producer=1)]
    assert found(lines) == {"reordered": 1}
    assert found([header(0, idempotent=False), *lines]) == {"realtime-order": 1}


def test_other_partitions_and_other_producers_have_no_order() -> None:
    lines = [ack(1, 0, start=0), ack(0, 0, partition=1), ack(0, 1, producer=1), final((0, 1), (1, 0, 0, 1))]
    assert found([*lines, final((0, 0), partition=1)]) == {}


def test_realtime_order() -> None:
    lines = [ack(0, 1), ack(0, 0, producer=1, start=SECOND), final((0, 0, 0, 1), (1, 0))]
    assert found(lines) == {"realtime-order": 1}
    said = "record 1:0 is at t-0 offset 0 and was sent at 1.000 s, after offset 1 had been acked at 0.100 s"
    assert first(lines, "realtime-order") == said
    assert found([*lines, header(1) | {"timed": False}]) == {}, "its start time is not real"


def test_realtime_order_behind_an_earlier_ack_of_the_same_producer() -> None:
    """The earliest ack behind belongs to the producer itself, whose records are reordered; the next one does not."""
    own, other, third = ack(0, 10), ack(0, 9, producer=1), ack(0, 8, producer=2)
    late = ack(1, 5, start=3 * SECOND)
    lines = [other, third, late, poll((5, 1))]
    assert found(lines) == {"realtime-order": 1}
    assert found([own, *lines]) == {"realtime-order": 1, "reordered": 1}
    assert "after offset 9 had been acked" in first([own, *lines], "realtime-order")


def test_inconsistent_offset() -> None:
    lines = [*clean(2), done("info", 9), poll((1, 9), process="c1")]
    assert found(lines)["inconsistent-offset"] == 1
    assert first(lines, "inconsistent-offset") == "t-0 offset 1 is record 0:1 and also record 0:9 (read)"


def test_an_ack_that_names_another_offset() -> None:
    assert found([ack(0, 4), ack(1, 1), final((0, 0), (1, 1))]) == {"inconsistent-offset": 1}


def test_a_record_in_another_partition_than_it_was_sent_to() -> None:
    lines = [*clean(1), final((0, 1), partition=1)]
    assert found([*lines, done("info", 1)]) == {"inconsistent-offset": 1}
    assert first([*lines, done("info", 1)], "inconsistent-offset") == (
        "record 0:1 was sent to t-0 and read at t-1 offset 0"
    )
    assert found([*lines, ack(1)])["inconsistent-offset"] == 1, "an ack without an offset names the partition"
    assert found([*lines, done("info", 1, partition=-1)]) == {}, "the client did not tell the partition"


def test_seen_before_send() -> None:
    lines = [ack(5, 0), poll((0, 5), end=4 * SECOND), final((0, 5))]
    assert found(lines) == {"seen-before-send": 1}
    assert first(lines, "seen-before-send") == "record 0:5 was read 1.000000 s before its send began"


def test_nonmonotonic_poll() -> None:
    assert found([*clean(3), poll((1, 1))]) == {"nonmonotonic-poll": 1}
    assert found([*clean(3), poll((0, 0), (2, 2), (1, 1), process="c1")])["nonmonotonic-poll"] == 1


def test_skipped_poll() -> None:
    assert found([*clean(3), poll((0, 0), (2, 2), process="c1")]) == {"skipped-poll": 1}


def test_a_skip_after_thousands_of_gaps() -> None:
    gaps = 10_000
    records = [(2 * number, number) for number in range(gaps + 3)]
    lines = [ack(number, offset, start=0) for offset, number in records]
    assert found([*lines, poll(*records[:-2], records[-1]), final(*records)]) == {"skipped-poll": 1}


def test_a_gap_that_is_one_for_all_is_no_skip() -> None:
    assert found([ack(0, 0), ack(1, 5), poll((0, 0), (5, 1)), final((0, 0), (5, 1))]) == {}


def test_phantom() -> None:
    assert found([*clean(2), poll((2, 77))]) == {"phantom": 1}


def test_failed_seen() -> None:
    assert found([*clean(2), done("fail", 2), final((2, 2))]) == {"failed-seen": 1}


def test_corrupt() -> None:
    assert found([*clean(2), final((2, 0, 0, -1))]) == {"corrupt": 1}
    assert found([ack(0, 0, key=3), final((0, 0, 4))]) == {"corrupt": 1}
    for keys in ((0, 5), (5, 0)):
        lines = [ack(0, 0), *(poll((0, 0, key), process=f"c{key}") for key in keys), final((0, 0))]
        assert found(lines) == {"corrupt": 1}, "of two reads one is wrong"
        assert first(lines, "corrupt") == "record 0:0 was sent with key 0 and read with key 5 at t-0 offset 0"


def test_unseen() -> None:
    lines = [*clean(3), ack(3, 3)]
    assert found(lines) == {"unseen": 1}
    assert first(lines, "unseen") == "record 0:3 acked for t-0 offset 3; reading ended at offset 2"


def test_unanswered() -> None:
    assert found([*clean(2), invoke(2)]) == {"unanswered": 1}


def test_a_run_that_was_cut_short_lost_nothing_that_nobody_looked_for() -> None:
    """Without a final read nobody can tell what became of sends in flight, or of records behind the last read."""
    lines = [ack(0, 0), ack(1, 1), ack(2, 2), ack(3, None), invoke(4), poll((0, 0), (1, 1))]
    assert (found(lines), check_lines(lines).verdict.word) == ({}, "VALID")
    assert any("cut short" in note for note in check_lines(lines).verdict.notes)
    assert found([*lines, poll((3, 4))]) == {"lost": 1}


def test_not_healed() -> None:
    heal = {"process": "nemesis", "f": "heal", "start": 1, "end": 2}
    assert found([*clean(2), heal | {"type": "ok"}]) == {}
    assert found([*clean(2), heal | {"type": "fail", "error": "t-0 has 2 of 3"}]) == {"not-healed": 1}


@pytest.mark.parametrize("lines", [[], [ack(0, 0)], [poll()]])
def test_a_poor_history_says_nothing(lines: list[Line]) -> None:
    assert check_lines(lines).verdict.valid in (None, False)
    assert check_lines(lines).verdict.word != "VALID"


def test_node_ended() -> None:
    ended = {"process": "nemesis", "type": "info", "f": "node-end", "node": 2, "error": "node 2 was killed", "start": 1}
    assert found([*clean(), ended]) == {"node-ended": 1}
    assert first([*clean(), ended], "node-ended") == "node 2 was killed"


@pytest.mark.parametrize(("faults", "word"), [('["kill"]', "UNKNOWN"), ("[]", "VALID")])
def test_a_run_that_was_to_inject_faults_and_injected_none_says_nothing(faults: str, word: str) -> None:
    begun = {"process": "nemesis", "type": "info", "f": "history", "version": 1, "start": 0, "faults": faults}
    fault = {"process": "nemesis", "f": "fault", "fault": "kill", "id": 1, "target": "node 1", "start": 1}
    verdict = check_lines([begun, *clean()]).verdict
    assert verdict.word == word
    assert verdict.notes == () if word == "VALID" else "no fault was injected" in verdict.notes[0]
    assert check_lines([begun, *clean(), fault | {"type": "invoke"}]).verdict.word == "VALID"


@pytest.mark.parametrize(("facts", "at_s"), [({}, 0.0), ({"began": -5 * SECOND}, 5.0)])
def test_all_times_are_counted_from_the_begin_of_the_run(facts: Line, at_s: float) -> None:
    begun = {"process": "nemesis", "type": "info", "f": "history", "version": 1, "start": -SECOND, **facts}
    fault = {"process": "nemesis", "type": "invoke", "f": "fault", "fault": "kill", "id": 1, "target": "node 1"}
    lines = [begun, invoke(0), invoke(1), ack(1, 0), fault | {"start": 0}, final((0, 1)), final_end(1)]
    result = check_lines(lines)
    assert f"sent at {at_s:.3f} s" in result.verdict.findings.evidence["unanswered"][0].text
    assert [row["at_s"] for row in _spans(result.series)] == [at_s]


def test_every_kind_has_a_test_here() -> None:
    names = {name.removeprefix("test_").replace("_", "-") for name in globals() if name.startswith("test_")}
    assert set(RECORD_KINDS) <= names


@pytest.mark.parametrize(
    "line",
    [
        {"f": "send"},
        {"f": "send", "type": "maybe"},
        invoke(1) | {"number": -1},
        invoke(1) | {"number": 1 << 50},
        invoke(1) | {"producer": 1 << 30},
        poll((1 << 50, 1)),
        poll((1,) * 2) | {"records": [[1]]},
        header(0) | {"version": 2},
        {"type": "ok"},
    ],
)
def test_lines_that_are_not_in_the_format_are_refused(line: Line) -> None:
    with pytest.raises(HistoryError):
        check_lines([line])


@settings(max_examples=600)
@given(random_histories(), st.randoms(use_true_random=False))
def test_the_streaming_checker_agrees_with_the_plain_one_in_any_order(lines: list[Line], rng: random.Random) -> None:
    expected = oracle(lines)
    rng.shuffle(lines)
    counts = check_lines(lines).verdict.findings.counts
    assert {kind: counts[kind] for kind in expected} == expected
