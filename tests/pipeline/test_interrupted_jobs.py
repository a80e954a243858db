"""Ctrl-C in a job: no pages of errors, no JVM that stays behind, and nothing half written."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from support.pipeline.topics import Sent, send

from raftwerk.cli.main import cli
from raftwerk.pipeline.running_query import stop_on_signal
from raftwerk.pipeline.topics import Topics


def test_a_signal_asks_to_stop_and_one_that_follows_at_once_is_the_same() -> None:
    before = signal.getsignal(signal.SIGINT)
    with stop_on_signal() as stopping:
        assert not stopping()
        signal.raise_signal(signal.SIGINT)
        assert stopping()
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_sigint_raises_where_nobody_asks_whether_to_stop() -> None:
    with stop_on_signal() as stopping:
        stopping.raises = True
        signal.raise_signal(signal.SIGTERM)
        assert stopping()


@pytest.mark.process
@pytest.mark.java
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_job_that_is_interrupted_while_spark_starts_leaves_nothing(
    bootstrap: str, topic: str, tmp_path: Path, sent: signal.Signals, code: int
) -> None:
    pytest.importorskip("pyspark", reason="no PySpark: jobs are NOT tested")
    Topics(bootstrap, (topic,)).create(1, {})
    out = tmp_path / "lake"
    job = ["pipeline", "run", "lake", "-t", topic, "--output", str(out), "-b", bootstrap]
    command = [sys.executable, "-m", "raftwerk", *job]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True) as process:
        assert process.stdout is not None
        told = process.stdout.readline()
        assert b"starting Spark (local[2])" in told
        told += process.stdout.readline()  # the JVM says something when it starts
        os.killpg(process.pid, sent)
        os.killpg(process.pid, sent)
        told += process.stdout.read()  # it ends with the last process that has it: the JVM
        assert process.wait(60) == code, told.decode()
    assert b"Traceback" not in told and not out.exists()
    assert _group_is_gone(process.pid)


def _group_is_gone(group: int) -> bool:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


def _running_job(bootstrap: str, topic: str, out: Path) -> subprocess.Popen[str]:
    """A job in a process group of its own that has read what there is, and waits for more."""
    job = ["pipeline", "run", "lake", "-t", topic, "--output", str(out), "-b", bootstrap]
    process = subprocess.Popen(
        [sys.executable, "-m", "raftwerk", *job],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "1 row " in line:
            return process
    raise AssertionError("the job ended before it had read a record")


@pytest.mark.process
@pytest.mark.java
def test_a_signal_to_the_group_of_a_job_stops_it_cleanly(bootstrap: str, topic: str, tmp_path: Path) -> None:
    """As systemd and `timeout` send it. It must not end the JVM before the job has stopped."""
    pytest.importorskip("pyspark", reason="no PySpark: jobs are NOT tested")
    Topics(bootstrap, (topic,)).create(1, {})
    send(bootstrap, topic, [Sent(0, b"k", b"v")])
    out = tmp_path / "lake"
    with _running_job(bootstrap, topic, out) as process:
        (status,) = _status(out)
        assert status["running"] and status["state"].startswith(f"running as process {process.pid} of ")
        assert status["bootstrap_servers"] == bootstrap and status["lag_of_brokers"] in (0, 1)
        assert status["last_batch"]["rows"] == status["rows_of_this_run"] == 1
        os.killpg(process.pid, signal.SIGTERM)
        told, _ = process.communicate(timeout=60)  # it ends with the last process that has it: the JVM
    assert process.returncode == 0 and "lake: stopped after 1 row" in told and "Traceback" not in told, told
    send(bootstrap, topic, [Sent(0, b"k", b"v")] * 2)
    (status,) = _status(out)
    assert status["state"] == "not running: stopped by a signal"
    assert (status["committed_batch"], status["lag_of_brokers"]) == (0, 2)


def _status(out: Path) -> list[dict[str, Any]]:
    result = CliRunner().invoke(cli, ["pipeline", "status", str(out), "--json"])
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.output.splitlines()]


def _finished_job(*words: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "raftwerk", "pipeline", "run", *words, "--json"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


@pytest.mark.process
@pytest.mark.java
def test_a_job_whose_jvm_dies_says_so_and_goes_on_where_it_was(bootstrap: str, topic: str, tmp_path: Path) -> None:
    """Then `maintain` finds the table whole."""
    pytest.importorskip("pyspark", reason="no PySpark: jobs are NOT tested")
    Topics(bootstrap, (topic,)).create(1, {})
    send(bootstrap, topic, [Sent(0, b"k", b"v")])
    with _running_job(bootstrap, topic, tmp_path / "lake") as process:
        (jvm,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(jvm), signal.SIGKILL)
        told, _ = process.communicate(timeout=60)
    assert process.returncode == 1 and "Error: Spark's JVM has ended, or was killed" in told, told
    assert "Traceback" not in told
    send(bootstrap, topic, [Sent(0, b"k", b"w")] * 9)
    out = str(tmp_path / "lake")
    assert _finished_job("lake", "-t", topic, "--output", out, "-b", bootstrap, "-e")["rows"] == 10
    done = _finished_job("maintain", out, "--retain", "0 seconds", "--snapshots")
    assert (done["merged"], [one["operation"] for one in done["snapshots"]]) == (0, ["append"])
