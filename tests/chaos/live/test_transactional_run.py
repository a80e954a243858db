"""Short chaos runs with transactional clients on real processes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from raftwerk.chaos.live.load.java_producer import why_unavailable
from raftwerk.chaos.live.load.transactions.incarnations import Incarnation
from raftwerk.cli.main import cli

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
