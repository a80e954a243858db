"""`raftwerk run`: a cluster for as long as a command runs; its exit code, its environment, and signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from raftwerk.cluster.local.running_up import staying_with
from raftwerk.cluster.local.supervisor import node_pid
from raftwerk.testkit.process_cluster import TestCluster

RAFTWERK = [sys.executable, "-m", "raftwerk"]
PRINT_ENVIRONMENT = "import json, os; print(json.dumps(dict(os.environ)), flush=True)"
WAIT_FOR_SIGNAL = f"""
import signal, sys, time
seen = []
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, frame: seen.append(number))
{PRINT_ENVIRONMENT}
while not seen:
    time.sleep(0.02)
time.sleep(0.3)
print(seen, flush=True)
sys.exit(3)
"""


@pytest.fixture
def temporary(tmp_path: Path) -> Iterator[dict[str, str]]:
    """An environment whose temporary directory is this test's own, and is empty again at the end."""
    where = tmp_path / "t"
    where.mkdir()
    yield {**os.environ, "TMPDIR": str(where)}
    assert list(where.iterdir()) == []


def run(*arguments: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [*RAFTWERK, "run", *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=90, check=False)


def read_json(stream: IO[str]) -> dict[str, str]:
    for line in stream:
        if line.startswith("{"):
            found: dict[str, str] = json.loads(line)
            return found
    raise AssertionError("the command printed nothing")


def test_a_command_finds_the_cluster_and_its_exit_code_is_passed_on(temporary: dict[str, str]) -> None:
    script = f"{sys.executable} -m raftwerk produce t -m x && {sys.executable} -m raftwerk kill 2 && exit 7"
    create = f"{sys.executable} -m raftwerk topics create t --replicas 3 && "
    done = run("-n", "3", "-o", "min.insync.replicas=2", "--", "sh", "-c", create + script, env=temporary)
    assert done.returncode == 7, done.stderr
    assert "3 nodes ready at 127.0.0.1:" in done.stderr
    assert done.stdout.startswith("Created topic t.")


def test_what_the_environment_says(temporary: dict[str, str], tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    done = run("--output", str(kept), sys.executable, "-c", PRINT_ENVIRONMENT, env=temporary)
    environment = json.loads(done.stdout)
    assert environment["RAFTWERK_BOOTSTRAP"] == environment["KAFKA_BOOTSTRAP_SERVERS"]
    assert environment["RAFTWERK_DIR"] == str(kept)
    assert (kept / "n1.log").exists()


def test_nodes_log_as_the_environment_says(temporary: dict[str, str]) -> None:
    command = ["sh", "-c", 'head -1 "$RAFTWERK_DIR/n1.log"']
    environment = {**temporary, "RAFTWERK_LOG_FORMAT": "json"}
    done = subprocess.run([*RAFTWERK, "run", "--", *command], env=environment, capture_output=True, check=True)
    assert json.loads(done.stdout)["node"] == 1


def test_commands_that_cannot_run_and_clusters_that_do_not_start(temporary: dict[str, str]) -> None:
    missing = run("no-such-command", env=temporary)
    assert (missing.returncode, "no-such-command: No such file" in missing.stderr) == (127, True)
    assert "ready at" not in missing.stderr, "no cluster is started for it"
    no_program = run("/etc", env=temporary)
    assert (no_program.returncode, no_program.stderr) == (126, "raftwerk run: /etc: Permission denied\n")
    refused = run("-o", "metadata.log.dir=/proc/x", "--", "true", env=temporary)
    assert (refused.returncode, "Traceback" in refused.stderr) == (125, False), refused.stderr
    assert run("sh", "-c", "kill -9 $$", env=temporary).returncode == 128 + 9


def test_a_misspelt_setting_is_refused(temporary: dict[str, str]) -> None:
    done = run("-o", "min.insinc.replicas=2", "--", "true", env=temporary)
    assert done.returncode == 2
    assert "did you mean min.insync.replicas?" in done.stderr
    done = run("-o", "node.id=7", "--", "true", env=temporary)
    assert done.returncode == 2
    assert "node.id=7: each node of a local cluster has a value of its own; leave it out: the nodes have" in done.stderr


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_reaches_the_command_and_the_cluster_is_stopped_after_it(
    sent: signal.Signals, temporary: dict[str, str]
) -> None:
    command = [*RAFTWERK, "run", sys.executable, "-c", WAIT_FOR_SIGNAL]
    with subprocess.Popen(command, env=temporary, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        read_json(process.stdout)
        process.send_signal(sent)
        assert process.stdout.read() == f"[{int(sent)}]\n"
        assert process.wait(60) == 3


def test_ctrl_c_in_a_terminal_reaches_the_command_once(temporary: dict[str, str]) -> None:
    terminal = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"
    command = [sys.executable, "-c", terminal, *RAFTWERK, "run", sys.executable, "-c", WAIT_FOR_SIGNAL]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, env=temporary, stdin=pipe, stdout=pipe, text=True, start_new_session=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        read_json(process.stdout)
        process.stdin.write("\x03")
        process.stdin.flush()
        assert "[2]" in process.stdout.readline()
        assert process.wait(60) == 3


def test_a_signal_while_the_cluster_starts_leaves_nothing(temporary: dict[str, str]) -> None:
    where = Path(temporary["TMPDIR"])
    command = [*RAFTWERK, "run", "-n", "3", "--", "echo", "never"]
    with subprocess.Popen(command, env=temporary, stdout=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 30
        while not list(where.glob("*/n1.pid")):
            assert time.monotonic() < deadline
            time.sleep(0.005)
        process.terminate()
        assert process.stdout is not None
        assert process.wait(60) in (128 + signal.SIGTERM, 0)
        assert process.stdout.read() in ("", "never\n")


def test_the_command_logs_in_to_a_secured_cluster(temporary: dict[str, str]) -> None:
    raftwerk = f"{sys.executable} -m raftwerk"
    script = (
        f"{raftwerk} topics create t > /dev/null && {raftwerk} users list && "
        f"{raftwerk} topics list --command-config $RAFTWERK_DIR/security/client.properties"
    )
    done = run("--secure", "--", "sh", "-c", script, env=temporary)
    assert (done.returncode, done.stderr.count("\n")) == (0, 1), done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["admin", "app", "t"]


def test_a_quorum_of_two_voters_is_told(temporary: dict[str, str]) -> None:
    done = run("-n", "2", "--", "true", env=temporary)
    assert done.returncode == 0, done.stderr
    assert "note: the quorum has two voters and needs both; with three it survives the loss of one" in done.stderr


def test_topics_of_an_earlier_run_are_told(temporary: dict[str, str], tmp_path: Path) -> None:
    kept = str(tmp_path / "kept")
    first = run("--output", kept, "--", "true", env=temporary)
    again = run("--output", kept, "--", "true", env=temporary)
    assert (first.returncode, again.returncode) == (0, 0), again.stderr
    assert "earlier run" not in first.stderr
    assert f"note: {kept} has the topics of an earlier run" in again.stderr


def test_a_cluster_that_runs_in_the_directory_is_left_alone(temporary: dict[str, str], tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    with TestCluster.start(2, directory=str(kept)) as cluster:
        files = {one.name: one.read_bytes() for one in kept.iterdir() if one.suffix in (".pid", ".properties")}
        refused = run("-n", "2", "--output", str(kept), "true", env=temporary)
        sentence = f"nodes 1, 2 of {kept} are already running: raftwerk down -d {kept} stops the cluster"
        assert (refused.returncode, refused.stderr) == (125, f"raftwerk run: {sentence}\n")
        assert files == {one.name: one.read_bytes() for one in kept.iterdir() if one.suffix in (".pid", ".properties")}
        assert [node_pid(one) is not None for one in cluster.plan.nodes] == [True, True]
    with staying_with(str(kept)):
        refused = run("-n", "2", "--output", str(kept), "true", env=temporary)
        sentence = f"raftwerk up runs with {kept} already (process {os.getpid()}): raftwerk down -d {kept} ends it"
        assert (refused.returncode, refused.stderr) == (125, f"raftwerk run: {sentence}\n")
