"""The format of histories: readers read what writers write; and its conversion to EDN."""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.chaos.histories import ack, clean, done, invoke, poll
from support.chaos.transaction_histories import UNCOMMITTED, asked, begun, ended, read

from raftwerk.chaos.live.checker.checker import check_paths
from raftwerk.chaos.live.checker.jepsen_edn import EdnWriter, write_edn
from raftwerk.chaos.live.checker.transactions.elle_edn import ElleWriter
from raftwerk.chaos.live.checker.transactions.read_table import COMMITTED
from raftwerk.chaos.live.history import HistoryError, HistoryWriter, Send, history_files, read_lines
from raftwerk.chaos.live.load.load_task import Task, decode_record, encode_value
from raftwerk.chaos.live.load.transactions import transactional_topics


def write(path: Path, lines: list[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_of_a_send_that_was_not_acked_javas_producer_does_not_tell_the_partition(tmp_path: Path) -> None:
    told = [
        {"name": "producer_send_success", "value": "3.0", "partition": 2, "offset": 5},
        {"name": "producer_send_error", "value": "3.1", "message": "timed out"},
        {"name": "tool_data", "sent": 3},
    ]
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\n" + "".join(f"echo '{json.dumps(line)}'\n" for line in told))
    java.chmod(0o755)
    task = Task("java-producer", 3, "nowhere:1", "t", 4, str(tmp_path / "p.jsonl"))
    command = [sys.executable, "-m", "raftwerk.chaos.live.load.java_producer", task.to_argument()]
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=environment) as load:
        assert load.wait(60) == 1, "nobody has stopped the tool"
    _, acked, failed, unanswered = read_lines(task.history)
    assert [(one["type"], one["partition"]) for one in (acked, failed, unanswered)] == [
        ("ok", 2),
        ("info", -1),
        ("info", -1),
    ]


def test_what_is_written_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    writer = HistoryWriter(str(path), "p0")
    writer.begin(producer=0, idempotent=True)
    send = Send(0, 1, 2, 'a"b', 3, 100)
    writer.send_invoked(send)
    writer.send_done(send, "ok", 200, offset=7)
    writer.send_done(send, "info", 200, error='it "failed"')
    writer.polled(('a"b', 3), [(7, 0, 1, 2), (8, -1, 0, 0)], (5, 6), final=True)
    writer.close()
    header, invoked, acked, unknown, polled = read_lines(str(path))
    sent = {"process": "p0", "f": "send", "topic": 'a"b', "partition": 3, "producer": 0, "number": 1, "key": 2}
    assert header["version"] == 1 and header["producer"] == 0
    assert invoked == {**sent, "type": "invoke", "start": 100}
    assert acked == {**sent, "type": "ok", "start": 100, "offset": 7, "end": 200}
    assert unknown == {**sent, "type": "info", "start": 100, "end": 200, "error": 'it "failed"'}
    assert polled["records"] == [[7, 0, 1, 2], [8, -1, 0, 0]] and polled["final"] is True


def test_the_directory_of_a_run_holds_its_histories(tmp_path: Path) -> None:
    inner = tmp_path / "history"
    inner.mkdir()
    half = len(clean()) // 2
    write(inner / "b.jsonl", clean()[half:])
    with gzip.open(inner / "a.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(line) + "\n" for line in clean()[:half])
    (inner / "other.txt").write_text("no history")
    assert [Path(path).name for path in history_files([str(tmp_path)])] == ["a.jsonl.gz", "b.jsonl"]
    assert check_paths([str(tmp_path)]).verdict.word == "VALID"


def test_a_last_line_cut_short_is_left_out(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", clean())
    path.write_text(path.read_text() + '{"process":"p0","ty')
    assert check_paths([str(path)]).verdict.word == "VALID"


@pytest.mark.parametrize("text", ["nonsense\n", "[1]\n", '{"f": "send"}\n{broken\n'])
def test_a_broken_line_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(text)
    with pytest.raises(HistoryError, match=r"a\.jsonl:\d: "):
        list(read_lines(str(path)))


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"a":1}', "the field 'f' is missing"),
        ('{"process":"p0","type":"ok","f":"final","topic":"t","partition":0}', "the field 'offset' is missing"),
        ('{"process":"p0","type":"done","f":"send"}', "'done' is not known"),
        ('{"process":"p0","type":"ok","f":"history","version":2}', "version 2; this checker knows version 1"),
    ],
)
def test_a_line_that_is_not_in_the_format_is_told_with_its_place(tmp_path: Path, line: str, why: str) -> None:
    path = write(tmp_path / "a.jsonl", clean())
    number = len(path.read_text().splitlines()) + 1
    path.write_text(f"{path.read_text()}{line}\n")
    with pytest.raises(HistoryError) as refused:
        check_paths([str(path)])
    assert str(refused.value).startswith(f"{path}:{number}: {why} (docs/chaos-history.md has the format): {{")


def test_no_history_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match="no history in"):
        check_paths([str(tmp_path)])
    with pytest.raises(HistoryError, match="cannot read"):
        check_paths([str(tmp_path / "nothing.jsonl")])


def test_values_carry_who_sent_them() -> None:
    value = encode_value(3, 17, 9, 100)
    assert len(value) == 100
    assert decode_record(5, b"9", value) == (5, 3, 17, 9)
    assert decode_record(5, b"8", value)[1] == -1
    assert decode_record(5, b"9", value[:-1] + b"y")[1] == -1
    assert decode_record(5, b"9", None)[1] == -1
    assert decode_record(5, b"9", b"\xff\x00")[1] == -1
    assert decode_record(5, b"4", b"2.77") == (5, 2, 77, 4)


def test_edn(tmp_path: Path) -> None:
    """Two sends in flight have two processes. An unknown outcome ends its process; the next send takes the free one."""
    at = 10**9
    fault = {"process": "nemesis", "f": "fault", "fault": "kill", "id": 1, "target": "node 1", "start": 5}
    lines = [
        {**fault, "type": "invoke"},
        invoke(0, start=at),
        invoke(1, start=at),
        done("info", 0, start=at),
        ack(1, 4, start=at),
        invoke(2, start=3 * at),
        done("fail", 2, start=3 * at),
        poll((4, 1), end=9 * at),
        {**fault, "type": "info", "end": 10 * at},
    ]
    output = io.StringIO()
    writer = EdnWriter(output)
    for line in lines:
        writer.add(line)
    assert output.getvalue().splitlines() == [
        '{:index 0, :time 5, :type :info, :process :nemesis, :f :start-kill, :value "node 1"}',
        "{:index 1, :time 1000000000, :type :invoke, :process 0, :f :send, :value [[:send 0 0]]}",
        "{:index 2, :time 1000000000, :type :invoke, :process 1, :f :send, :value [[:send 0 1]]}",
        "{:index 3, :time 1100000000, :type :info, :process 0, :f :send, :value [[:send 0 0]]}",
        "{:index 4, :time 1100000000, :type :ok, :process 1, :f :send, :value [[:send 0 [4 1]]]}",
        "{:index 5, :time 3000000000, :type :invoke, :process 1, :f :send, :value [[:send 0 2]]}",
        "{:index 6, :time 3100000000, :type :fail, :process 1, :f :send, :value [[:send 0 2]]}",
        "{:index 7, :time 8999999999, :type :invoke, :process 2, :f :poll, :value [[:poll]]}",
        "{:index 8, :time 9000000000, :type :ok, :process 2, :f :poll, :value [[:poll {0 [[4 1]]}]]}",
        '{:index 9, :time 10000000000, :type :info, :process :nemesis, :f :stop-kill, :value "node 1"}',
    ]


def test_edn_of_consumers() -> None:
    """A reader keeps its process; assignments add up."""
    assign = {"process": "c0", "type": "ok", "f": "assign", "topic": "t", "offset": 0, "start": 1}
    output = io.StringIO()
    writer = EdnWriter(output)
    for line in ({**assign, "partition": 0}, {**assign, "partition": 1}, poll((0, 0)), poll(process="c1")):
        writer.add(line)
    rows = [line.split(":process ")[1] for line in output.getvalue().splitlines() if ":type :ok" in line]
    assert rows == [
        "0, :f :assign, :value [0]}",
        "0, :f :assign, :value [0 1]}",
        "0, :f :poll, :value [[:poll {0 [[0 0]]}]]}",
        "1, :f :poll, :value [[:poll {0 []}]]}",
    ]


def test_edn_of_files_is_in_the_order_of_times(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", [invoke(5), ack(5, 0)])
    write(tmp_path / "b.jsonl", [invoke(3, producer=1), ack(3, 1, producer=1)])
    output = tmp_path / "out.edn"
    assert write_edn([str(tmp_path)], str(output)) == 4
    times = [int(line.split(":time ")[1].split(",")[0]) for line in output.read_text().splitlines()]
    assert times == sorted(times)


def test_edn_of_transactions() -> None:
    """A transaction is one operation with several sends; keys are names, as the run has several such topics."""
    line = begun("w.1:1", ["t", 0], ["u", 2], at=1.0)
    aborted = begun("w.1:2", ["t", 0], at=2.0)
    assign = {"process": "reader", "type": "ok", "f": "assign", "topic": "t", "partition": 0, "offset": 0, "start": 1}
    lines = [line, ended(line, "ok", 4, None, at=1.5), aborted, ended(aborted, "info", at=2.5)]
    lines += [assign | {"isolation": COMMITTED}, read([4, "w.1:1", 0], [5, None, 0]), read(isolation=UNCOMMITTED)]
    output = io.StringIO()
    writer = EdnWriter(output)
    for one in lines:
        writer.add(one)
    assert [row.split(":type ")[1] for row in output.getvalue().splitlines()] == [
        ':invoke, :process 0, :f :txn, :value [[:send "t-0" 0] [:send "u-2" 1]]}',
        ':ok, :process 0, :f :txn, :value [[:send "t-0" [4 0]] [:send "u-2" [nil 1]]]}',
        ':invoke, :process 0, :f :txn, :value [[:send "t-0" 1048576]]}',
        ':info, :process 0, :f :txn, :value [[:send "t-0" 1048576]]}',
        ':invoke, :process 1, :f :assign, :value ["t-0"]}',
        ':ok, :process 1, :f :assign, :value ["t-0"]}',
        ":invoke, :process 1, :f :poll, :value [[:poll]]}",
        ':ok, :process 1, :f :poll, :value [[:poll {"t-0" [[4 0]]}]]}',
    ]


def test_elle_of_transactions() -> None:
    """Appends to several lists, and reads of whole lists; copies in other topics belong to no transaction."""
    one, two = begun("w.1:1", ["t", 0], ["u", 2], at=1.0), begun("w.1:2", ["t", 0], ["t", 0], at=3.0)
    crashed, unknown = begun("w.2:1", ["u", 2], at=5.0), begun("w.3:1", ["u", 2], at=6.0)
    lines = [one, ended(one, "ok", 0, 0, at=2.0), read([0, "w.1:1", 0], at=2.5), two]
    lines += [ended(two, "ok", 2, 3, at=4.0), crashed, unknown, asked("w.3:1", 6.5)]
    lines += [read([2, "w.1:2", 0], at=7.0), read([3, "w.1:2", 1], at=8.0)]
    lines += [read([0, "w.1:1", 1], topic="copy", at=9.0), read([0, "w.1:1", 1], partition=2, topic="u", at=10.0)]
    output = io.StringIO()
    writer = ElleWriter(output)
    for line in lines:
        writer.add(line)
    writer.finish()
    assert output.getvalue().splitlines()[0] == (
        '{:index 0, :time 1000000000, :type :invoke, :process 0, :f :txn, :value [[:append "t-0" 0] [:append "u-2" 1]]}'
    )
    second, third = 1 << 20, 2 << 20
    assert [row.split(":type ")[1].replace(":f :txn, ", "") for row in output.getvalue().splitlines()][1:] == [
        ':ok, :process 0, :value [[:append "t-0" 0] [:append "u-2" 1]]}',
        ':invoke, :process 1, :value [[:r "t-0" nil]]}',
        ':ok, :process 1, :value [[:r "t-0" [0]]]}',
        f':invoke, :process 0, :value [[:append "t-0" {second}] [:append "t-0" {second + 1}]]}}',
        f':ok, :process 0, :value [[:append "t-0" {second}] [:append "t-0" {second + 1}]]}}',
        f':invoke, :process 2, :value [[:append "u-2" {third}]]}}',
        f':invoke, :process 3, :value [[:append "u-2" {third + second}]]}}',
        ':invoke, :process 1, :value [[:r "t-0" nil]]}',
        f':ok, :process 1, :value [[:r "t-0" [0 {second}]]]}}',
        ':invoke, :process 1, :value [[:r "u-2" nil]]}',
        ':ok, :process 1, :value [[:r "u-2" [1]]]}',
        f':fail, :process 2, :value [[:append "u-2" {third}]]}}',
        f':info, :process 3, :value [[:append "u-2" {third + second}]]}}',
        ':invoke, :process 1, :value [[:r "t-0" nil]]}',
        f':ok, :process 1, :value [[:r "t-0" [0 {second} {second + 1}]]]}}',
    ]


def test_values_of_transactional_records_carry_who_wrote_them() -> None:
    value = transactional_topics.encode_value("writer-0.3:17", 2, 100)
    assert len(value) == 100
    assert transactional_topics.decode_value(value) == ("writer-0.3:17", 2)
    for changed in (value[:-1] + b"y", b"", b"no", None, b"\xff\x00"):
        assert transactional_topics.decode_value(changed) == (None, 0)
