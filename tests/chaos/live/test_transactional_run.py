"""Short chaos runs with transactional clients on real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from raftwerk.chaos.live.load import java_producer
from raftwerk.chaos.live.load.java_producer import JavaProducer, why_unavailable
from raftwerk.chaos.live.load.load_task import Task
from raftwerk.chaos.live.load.transactions.end_state import EndState
from raftwerk.chaos.live.load.transactions.incarnations import Incarnation
from raftwerk.chaos.live.load.transactions.transactional_topics import PARTITIONS
from raftwerk.cli.main import cli
from raftwerk.wire.types import TopicPartition

_PARENT = """
import subprocess, sys
from raftwerk.chaos.live.load.child_process import tied
child = subprocess.Popen(tied(["sleep", "1000"]))
print(child.pid, flush=True)
child.wait()
"""
_STALLS_LATE = """
import os, signal, sys
sys.stdin.read()
for _ in range(2):
    os.kill(os.getpid(), signal.SIGSTOP)
"""
_RUN = ["--minutes", "0.15", "--nemesis", "kill,pause", "--hold", "1", "--interval", "1"]
_LOAD = ["--rate", "20", "--producers", "1", "--consumers", "1", "--partitions", "1"]


@pytest.mark.long
@pytest.mark.process
@pytest.mark.parametrize("options", [["--secure"], pytest.param(["--java"], marks=pytest.mark.java)])
def test_transactions_are_whole_and_processed_once(tmp_path: Path, options: list[str]) -> None:
    if "--java" in options and (reason := why_unavailable()) is not None:
        pytest.skip(f"{reason}: the Java clients are NOT tested")
    where = tmp_path / "run"
    result = CliRunner().invoke(cli, ["chaos", "run", "-o", str(where), *_RUN, *_LOAD, *options])
    assert result.exit_code == 0, result.output
    verdict = json.loads((where / "verdict.json").read_text())
    assert verdict["verdict"] == "VALID" and verdict["errors"] == [] and sum(verdict["inflicted"].values()) >= 1
    figures = verdict["transactions"]
    assert figures["committed"] >= 10 and figures["effects"] >= 10 and figures["incarnations"] >= 4
    assert "committed transactions were read whole" in (where / "report.html").read_text()
    elle = tmp_path / "elle.edn"
    assert CliRunner().invoke(cli, ["chaos", "check", str(where), "--to-elle", str(elle)]).exit_code == 0
    assert elle.read_text().count(":append") >= figures["committed"]


def test_a_java_tool_that_ends_by_itself_ends_the_load_process_with_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has ended standard input, so the tool has crashed."""
    monkeypatch.setattr(java_producer, "tied", list)
    monkeypatch.setattr(JavaProducer, "_command", lambda _: ["sh", "-c", "exit 3"])
    read_end, write_end = os.pipe()
    path = tmp_path / "java-producer-2.jsonl"
    with os.fdopen(read_end) as stdin, os.fdopen(write_end, "w"):
        monkeypatch.setattr(sys, "stdin", stdin)
        with pytest.raises(SystemExit, match="has ended by itself with exit code 3"):
            JavaProducer(Task("java-producer", 2, "127.0.0.1:1", "t", 1, str(path), limit_s=5.0)).run()
    assert '"f":"history"' in path.read_text(), "what the tool had told is kept"


@pytest.mark.parametrize("is_told", [True, False])
def test_the_end_of_each_input_partition_is_written_also_where_a_group_has_no_offset(
    tmp_path: Path, is_told: bool
) -> None:
    path = tmp_path / "end-state-0.jsonl"
    state = EndState(Task("end-state", 0, "127.0.0.1:1", "t", PARTITIONS, str(path)))
    state.no_answer = "" if is_told else "no broker answers"
    state.write_group_offsets({"t-group": {TopicPartition("t-inputs", 1): 7}} if is_told else None)
    state.history.close()
    rows = [line for line in map(json.loads, path.read_text().splitlines()) if line["f"] == "group-offset"]
    assert [(row["group"], row["topic"], row["partition"]) for row in rows] == [
        (group, topic, partition)
        for group, topic in (("t-group", "t-inputs"), ("t-copiers", "t-others"))
        for partition in range(PARTITIONS)
    ]
    told = [(row["type"], row.get("offset"), row.get("error")) for row in rows]
    if is_told:
        assert told == [("ok", offset, None) for offset in (-1, 7, -1, -1, -1, -1)]
    else:
        assert told == [("info", None, "no broker answers")] * 6


def test_a_tool_ends_when_its_load_process_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", _PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        status = Path(f"/proc/{parent.stdout.readline().strip()}/status")
        _until(lambda: "Name:\tsleep" in _text(status))
        parent.kill()
    _until(lambda: not status.exists() or "State:\tZ" in _text(status))


def test_an_incarnation_that_stands_still_after_it_was_asked_to_stop_is_woken(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", _STALLS_LATE], stdin=subprocess.PIPE)
    with process:
        incarnation = Incarnation("processor-0.1", process, str(tmp_path / "none"))
        incarnation.ask_to_stop()
        assert incarnation.wait(time.monotonic() + 20) == 0


def test_an_incarnation_that_does_nothing_for_a_minute_is_killed(tmp_path: Path) -> None:
    history = tmp_path / "history"
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        incarnation = Incarnation("processor-0.1", process, str(history))
        for now in (100.0, 159.0):
            incarnation.kill_if_silent(now)
        history.write_text("something")
        for now in (161.0, 220.0):
            incarnation.kill_if_silent(now)
            assert process.poll() is None
        incarnation.kill_if_silent(222.0)
        assert process.wait(20) == -signal.SIGKILL


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
