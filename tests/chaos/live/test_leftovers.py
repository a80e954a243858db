"""What is left of chaos runs that a signal ends: nothing, or after SIGKILL what the next run removes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.e2e.command import undo_nohup

from raftwerk.chaos.live.load.child_process import tied
from raftwerk.chaos.live.nemesis import machine_capabilities
from raftwerk.chaos.live.nemesis.leftovers import RunRecord, recorded, remove_of_killed_runs
from raftwerk.chaos.live.nemesis.network_namespaces import NetworkNamespaces
from raftwerk.cli.main import cli

_PREPARED = """
import os, sys, time
from raftwerk.chaos.live.nemesis.leftovers import RunRecord, recorded
from raftwerk.chaos.live.nemesis.network_namespaces import NetworkNamespaces
from raftwerk.chaos.live.nemesis.node_filesystems import NodeFilesystems
from raftwerk.cluster.local.layout import ClusterShape, plan_cluster
nodes = sys.argv[1] + "/a run/nodes"
with recorded(RunRecord(os.getpid(), sys.argv[1], nodes, None, "t")):
    NodeFilesystems(plan_cluster(nodes, ClusterShape(brokers=2, port=21000)), ext4=False, size_mb=1).open()
    NetworkNamespaces([1, 2]).open()
    print("prepared", flush=True)
    time.sleep(1000)
"""
_RECORDED = """
import os, sys, time
from raftwerk.chaos.live.nemesis.leftovers import RunRecord, recorded
with recorded(RunRecord(os.getpid(), "somewhere", None, "a:1", "chaos-7")):
    print("recorded", flush=True)
    time.sleep(1000)
"""


@pytest.fixture(autouse=True)
def own_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "raftwerk-chaos"


def processes_of(where: Path) -> list[int]:
    """The processes with this path in their arguments."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.fsencode(where) in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def until(condition: Callable[[], bool], limit_s: float = 60.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@contextmanager
def run_under_load(where: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A run with clients at work, plain and transactional ones."""
    options = ["--minutes", "5", "--nemesis", "none", "--rate", "20", "-p", "1", "--producers", "1"]
    command = [sys.executable, "-m", "raftwerk", "chaos", "run", "-o", str(where), *options]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True, preexec_fn=undo_nohup)  # noqa: PLW1509
    try:
        until(lambda: (where / "history" / "writer-0.1.jsonl").exists() or process.poll() is not None)
        assert process.poll() is None
        yield process
    finally:
        process.kill()
        process.wait()
        for pid in processes_of(where):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.long
@pytest.mark.process
@pytest.mark.parametrize("sent", [signal.SIGHUP, signal.SIGTERM])
def test_a_run_that_is_told_to_end_leaves_nothing(tmp_path: Path, own_records: Path, sent: signal.Signals) -> None:
    with run_under_load(tmp_path / "run") as run:
        for _ in range(2):  # a terminal that closes may send it twice
            os.killpg(run.pid, sent)
        assert run.wait(60) == 128 + sent
        assert list(own_records.iterdir()) == []
        until(lambda: processes_of(tmp_path / "run") == [])


@pytest.mark.long
@pytest.mark.process
def test_what_a_killed_run_leaves_is_removed(tmp_path: Path, own_records: Path) -> None:
    where = tmp_path / "run"
    with run_under_load(where) as run:
        node = int((where / "nodes" / "n2.pid").read_text())
        os.kill(node, signal.SIGSTOP)
        assert CliRunner().invoke(cli, ["chaos", "clean"]).output == "nothing is left of runs that were killed\n"
        run.kill()
        run.wait()
        until(lambda: processes_of(where) == [node])
        output = CliRunner().invoke(cli, ["chaos", "clean"]).output
        assert output == f"the run of process {run.pid} in {where} was killed; removed what it had left: 1 node\n"
        assert list(own_records.iterdir()) == []
        until(lambda: processes_of(where) == [])  # a client that was being started ends by itself


def test_a_client_whose_parent_has_ended_already_does_not_begin() -> None:
    _, *options = tied(["echo", "begun"])
    options[options.index(str(os.getpid()))] = "1"
    done = subprocess.run([sys.executable, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stdout == "" and "has ended" in done.stderr


def test_mounts_and_network_namespaces_of_a_killed_run_are_removed(tmp_path: Path) -> None:
    reasons = machine_capabilities.unmet_needs(["network", "tmpfs"])
    if reasons:
        pytest.skip(f"no namespaces or small file systems here ({reasons[0]}): NOT tested")
    with subprocess.Popen([sys.executable, "-c", _PREPARED, str(tmp_path)], stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == b"prepared\n"
        assert remove_of_killed_runs() == []
        run.kill()
    (told,) = remove_of_killed_runs()
    assert told.endswith("removed what it had left: 2 mounts, 3 network namespaces")
    assert str(tmp_path) not in Path("/proc/mounts").read_text()
    listed = machine_capabilities.run_tool(["ip", "netns", "list"]).split()
    assert not any(NetworkNamespaces([], run.pid).owns(name) for name in listed)
    assert remove_of_killed_runs() == []


def test_of_a_run_on_another_cluster_is_told_what_it_may_have_left() -> None:
    with subprocess.Popen([sys.executable, "-c", _RECORDED], stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == b"recorded\n"
        run.kill()
    (told,) = remove_of_killed_runs()
    assert told.startswith(f"the run of process {run.pid} in somewhere was killed: in the cluster at a:1 it may have")
    assert told.endswith("names that begin with chaos-7") and remove_of_killed_runs() == []


def test_a_run_goes_on_where_no_record_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with recorded(RunRecord(1, "d", None, None, "t")):
        assert remove_of_killed_runs() == []


def test_records_that_cannot_be_read_are_left_alone(own_records: Path) -> None:
    own_records.mkdir(parents=True)
    for number, text in enumerate(["", "[]", '{"pid": 1}']):
        (own_records / f"{number}.json").write_text(text)
    assert remove_of_killed_runs() == []


@pytest.mark.parametrize("command", ["check", "report"])
def test_the_history_of_a_run_that_goes_on_is_not_judged(tmp_path: Path, command: str) -> None:
    """What a client has read may be written before what another one has sent."""
    (tmp_path / "producer.jsonl").write_text("")
    with recorded(RunRecord(4711, str(tmp_path), None, "a:1", "t")):
        done = CliRunner().invoke(cli, ["chaos", command, str(tmp_path)])
        assert done.exit_code == 1
        assert "the run of process 4711 still goes on" in done.output
    done = CliRunner().invoke(cli, ["chaos", command, str(tmp_path)])
    assert "still goes on" not in done.output
