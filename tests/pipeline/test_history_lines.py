"""Histories as tables: the same lines however they are cut, and a sentence for what is not in the format."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.chaos import histories
from support.chaos.transaction_histories import good_history, group_offset, stable

from raftwerk.chaos.live.checker.checker import check_lines
from raftwerk.chaos.live.load.load_task import encode_value
from raftwerk.pipeline.audit import history_lines as history_lines
from raftwerk.pipeline.audit.anomalies import Audit, AuditVerdict
from raftwerk.pipeline.audit.audit_page import render
from raftwerk.pipeline.audit.block_checks import RecordBlock
from raftwerk.pipeline.audit.history import History, transactional_counts
from raftwerk.pipeline.audit.history_lines import DamagedHistory, FileSplit, file_splits, read_tables
from raftwerk.pipeline.audit.parcels import ReadSplits, pack, unpack
from raftwerk.pipeline.running_query import ProgressLog

SEND = {"process": "p", "type": "ok", "f": "send", "topic": "t", "partition": 0, "producer": 0, "key": 1, "start": 1}
POLL = {"process": "c", "type": "ok", "f": "poll", "topic": "t", "partition": 0, "start": 1, "end": 2}


def send(number: int, **more: Any) -> dict[str, Any]:
    return {**SEND, "number": number, "offset": number, "end": 9, **more}


def write(path: Path, lines: list[dict[str, Any]], more: str = "") -> str:
    text = "".join(json.dumps(line) + "\n" for line in lines) + more
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return str(path)


def numbers(pieces: list[FileSplit]) -> list[int]:
    return [n for piece in pieces for _, table in read_tables(piece) for n in table["number"].to_pylist()]


@settings(deadline=None)
@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=12), st.integers(1, 400), st.integers(1, 400))
def test_each_line_is_in_one_piece_wherever_a_file_is_cut(
    tmp_path_factory: pytest.TempPathFactory, wanted: list[int], piece: int, chunk: int
) -> None:
    path = write(tmp_path_factory.getbasetemp() / "cut.jsonl", [send(number) for number in wanted])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(history_lines, "SPLIT_BYTES", piece)
        patch.setattr(history_lines, "CHUNK_BYTES", chunk)
        pieces = sorted(file_splits([path]), key=lambda one: one.first)
        assert numbers(pieces) == wanted


@pytest.mark.parametrize("name", ["h.jsonl", "h.jsonl.gz"])
def test_a_last_line_cut_short_is_left_out(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, [send(0), send(1)], '{"process":"p","type":"ok","f":"se')
    assert numbers(file_splits([path])) == [0, 1]


def test_lines_of_no_interest_may_hold_anything(tmp_path: Path) -> None:
    strange = {"f": "cluster", "type": 7, "offset": "many", "records": {"a": 1}}
    path = write(tmp_path / "h.jsonl", [send(0), strange, send(1), {"f": "unknown", "number": 3}])
    assert numbers(file_splits([path])) == [0, 1]


TRANSACTIONAL = [*good_history(), stable(9, 9), {"process": "x", "type": "ok", "f": "hanging", "offset": "many"}]


def transactions_counted(path: str) -> dict[str, int]:
    counts: dict[str, int] = {}
    for piece in file_splits([path]):
        for batch in ReadSplits([piece])._read(piece):
            for row in batch.to_pylist():
                if row["kind"] == "not-judged":
                    counts[row["text"]] = counts.get(row["text"], 0) + row["n"]
    return transactional_counts(counts)


@pytest.mark.parametrize(
    "lines",
    [
        [send(0), *TRANSACTIONAL, send(1)],
        [one for one in TRANSACTIONAL if (one["f"], one["type"]) != ("txn", "invoke") or "w.2" in one["txn"]],
        [group_offset(7), {"process": "x", "f": "txn"}, {"process": "x", "f": "read", "type": 7, "records": [[1, 2]]}],
    ],
    ids=["strange and plain lines", "outcomes alone", "lines that Arrow parses, and damaged ones"],
)
@pytest.mark.parametrize("chunk", [300, 8 << 20])
def test_what_is_told_of_transactions_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: list[dict[str, Any]], chunk: int
) -> None:
    """As `chaos check` counts them, however they are cut, and whatever they hold."""
    monkeypatch.setattr(history_lines, "CHUNK_BYTES", chunk)
    counts = transactions_counted(write(tmp_path / "h.jsonl", lines))
    kinds = [one["f"] for one in lines]
    assert counts.get("polls of transactional topics", 0) == kinds.count("read")
    ends = sum(kind in ("group-offset", "stable", "hanging") for kind in kinds)
    assert counts["lines on the end of all transactions"] == ends
    if send(0) in lines:
        judged = check_lines(good_history()).verdict.transactions
        assert counts["transactions"] == judged["transactions"]


def test_a_history_without_transactions_counts_none(tmp_path: Path) -> None:
    assert transactions_counted(write(tmp_path / "h.jsonl", histories.clean(9))) == {}


def test_a_verdict_says_what_was_not_judged() -> None:
    verdict = AuditVerdict(totals={"acked": 5, "reads": 5})
    assert "not judged" not in verdict.to_text() and json.loads(verdict.to_json_text())["not_judged"] == []
    verdict.not_judged = {"transactions": 1200, "polls of transactional topics": 7}
    last = verdict.to_text().splitlines()[-1]
    assert last == "not judged: 1,200 transactions, 7 polls of transactional topics; raftwerk chaos check judges them"
    found = json.loads(verdict.to_json_text())["not_judged"]
    assert {one["what"]: one["count"] for one in found} == verdict.not_judged


def test_a_history_with_bad_transactions_alone_is_valid_and_says_what_is_not_judged(spark: Any, tmp_path: Path) -> None:
    bad = [one for one in good_history() if one["f"] != "read" or "final" not in one]  # nothing committed is there
    lines = [*histories.clean(5), *bad]
    assert check_lines(lines).verdict.word == "INVALID"
    with History.of_paths(spark, [write(tmp_path / "h.jsonl", lines)]) as history:
        verdict = Audit(history, 5, ProgressLog(quiet=True)).judge()
        page = render(history, verdict)
    assert verdict.word == "VALID"
    assert verdict.not_judged == transactions_counted(str(tmp_path / "h.jsonl")) | {
        "acked records for realtime-order": 5
    }
    assert "Not judged here, but by raftwerk chaos check" in page and "transactions</td>" in page


@pytest.mark.parametrize(
    "line",
    [
        send(-1), send(1 << 40), send(0, offset=-1), send(0, producer=1 << 20),
        send(0, partition=-2), send(0, key=None), send(0, type="done"), {**send(0), "number": "0"}, send(0, topic=None),
        {**POLL, "records": [[1, 2, 3]]}, {**POLL, "records": [[1, 2, 3, None]]}, {**POLL, "records": [[-1, 0, 0, 0]]},
        {**POLL, "records": None}, {**POLL, "records": [], "end": None}, {**POLL, "records": [[0, 0, -1, 0]]},
        {**SEND, "f": "assign"}, {**SEND, "f": "history", "version": 2},
    ],
)  # fmt: skip
def test_a_line_that_is_not_in_the_format_is_shown(tmp_path: Path, line: dict[str, Any]) -> None:
    path = write(tmp_path / "h.jsonl", [send(0), {**POLL, "records": [[0, 0, 0, 1], [1, -1, -1, 0]]}, line, send(2)])
    with pytest.raises(DamagedHistory) as caught:
        numbers(file_splits([path]))
    assert "a line is not in the format" in str(caught.value)
    assert json.dumps(line)[:60] in str(caught.value)


def test_a_file_that_is_cut_in_its_compression_is_named(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl.gz"
    write(path, [send(number) for number in range(500)])
    path.write_bytes(path.read_bytes()[:-20])
    (batch,) = ReadSplits(file_splits([str(path)]))._read(file_splits([str(path)])[0])
    assert batch.column("kind").to_pylist() == ["damaged"]
    assert f"{path} cannot be read to its end" in batch.column("text").to_pylist()[0]


def test_parcels_come_back_as_they_were() -> None:
    columns = {"rid": np.array([1, 2, 1 << 60]), "final": np.array([True, False, True])}
    rows, places = unpack(pack(columns, [("t\0x", 3), ("u", 0)]))
    assert places == [("t\0x", 3), ("u", 0)]
    assert {name: column.tolist() for name, column in rows.items()} == {k: v.tolist() for k, v in columns.items()}


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), max_size=30), st.integers(1, 7))
def test_a_record_is_seen_first_at_the_least_place_in_any_order(reads: list[tuple[int, int]], size: int) -> None:
    """Against sets: the first place, and each other place once, whatever parcels the reads come in."""
    block = RecordBlock(5)
    for begin in range(0, len(reads), size):
        rid, offset = np.array(reads[begin : begin + size], dtype=np.int64).T
        ones = np.ones(len(rid), dtype=np.int64)
        block.read({"rid": rid, "offset": offset, "key": ones, "end": ones, "final": ones > 1}, 0 * ones)
    places: dict[int, set[int]] = {}
    for number, at in reads:
        places.setdefault(number, set()).add(at)
    assert {number: int(block.seen[number]) for number in places} == {n: min(all_) for n, all_ in places.items()}
    others = [(n, one) for n, all_ in sorted(places.items()) for one in sorted(all_)[1:]]
    assert list(zip(*(column.tolist() for column in block.other_positions()))) == others


def test_records_of_a_topic_are_decoded_and_those_of_others_are_foreign(spark: Any) -> None:
    """Whatever the bytes are: a job that raised for some would end at a topic that others write to, too."""
    from raftwerk.pipeline.audit.history import _load_records

    def checked(body: bytes) -> bytes:
        return b"%08x:%b" % (zlib.crc32(body), body)

    foreign = (-1, 0, 0)
    rows: list[tuple[bytes | None, bytes | None, tuple[int, int, int]]] = [
        (b"7", encode_value(3, 14, 7, 60), (3, 14, 7)),
        (b"8", encode_value(3, 14, 7, 60), foreign),
        (None, encode_value(3, 14, 7, 60), foreign),
        (b"7", encode_value(1 << 20, 14, 7, 60), foreign),
        (b"7", checked(b"hello"), foreign),
        (b"7", checked(b"a:b:7:"), foreign),
        (None, b"1.5", (1, 5, 0)),
        (b"7", b"1.5", (1, 5, 7)),
        (b"k", b"1.5", foreign),
        (None, b"99999999999999999999.1", foreign),
        (None, b"1.99999999999999999999", foreign),
        (b"k", b"hello", foreign),
        (b"k", b"", foreign),
        (b"k", None, foreign),
        (b"\xff", b"12345678 something longer", foreign),
        (b"k", b"ffffffffffffffff:1:2:3", foreign),
        (b"k", b"-fffffff:1:2:3", foreign),
    ]
    records = spark.createDataFrame(
        [("t", 0, offset, key, value) for offset, (key, value, _) in enumerate(rows)],
        "topic STRING, partition INT, offset BIGINT, key BINARY, value BINARY",
    )
    found = {row.offset: (row.producer, row.number, row.key) for row in _load_records(records).collect()}
    assert [found[offset] for offset in range(len(rows))] == [expected for _, _, expected in rows]
