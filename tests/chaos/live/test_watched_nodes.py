"""Nodes that end by themselves during a chaos run are reported; those that a fault ends are not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from raftwerk.chaos.live.nemesis.node_processes import LocalNodes
from raftwerk.chaos.live.nemesis.watched_nodes import WatchedNodes
from raftwerk.cli.main import cli
from raftwerk.cluster.local.layout import ClusterShape, plan_cluster
from raftwerk.cluster.local.supervisor import LocalNodeError
from raftwerk.runtime.loop import EXIT_BROKEN_INVARIANT


class EndingNodes:
    """Nodes that end when a test says so, each process with a new id."""

    ids: list[int] = [1, 2]  # noqa: RUF012

    def __init__(self) -> None:
        self.pids = {1: 101, 2: 102}
        self.codes: dict[int, int | None] = {}
        self.refusals: list[Exception] = []

    def end(self, node_id: int, code: int | None) -> None:
        self.codes[node_id] = code
        del self.pids[node_id]

    def pid(self, node_id: int) -> int:
        return self.pids[node_id]

    def alive(self, node_id: int) -> bool:
        return node_id in self.pids

    def exit_code(self, node_id: int) -> int | None:
        return self.codes.get(node_id)

    def signal(self, node_id: int, sent: signal.Signals) -> None:
        if sent is signal.SIGKILL and self.alive(node_id):
            self.end(node_id, -sent)

    def last_log_line(self, node_id: int) -> str:
        return "the last line"

    def start(self, node_id: int) -> None:
        if self.refusals:
            raise self.refusals.pop()
        self.pids.setdefault(node_id, 200 + node_id)


@pytest.fixture
def nodes() -> EndingNodes:
    return EndingNodes()


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def watched(nodes: EndingNodes, told: list[str]) -> WatchedNodes:
    return WatchedNodes(nodes, lambda _, text: told.append(text))


@pytest.mark.parametrize(
    ("code", "how"),
    [
        (-11, "node 2 was killed by SIGSEGV"),
        (-40, "node 2 was killed by signal 40"),
        (3, "node 2 ended with exit code 3 (its log ends with: the last line)"),
        (None, "node 2 ended (its log ends with: the last line)"),
    ],
)
def test_an_end_that_no_fault_caused_is_told_once(
    watched: WatchedNodes, nodes: EndingNodes, told: list[str], code: int | None, how: str
) -> None:
    watched.look()
    assert told == []
    nodes.end(2, code)
    watched.look()
    watched.look()
    watched.start(2)
    assert told == [f"{how}, and no fault of this run ended it"]
    nodes.end(2, code)
    watched.look()
    assert len(told) == 2


def test_an_end_is_noticed_before_the_node_is_signalled_or_started(
    watched: WatchedNodes, nodes: EndingNodes, told: list[str]
) -> None:
    nodes.end(1, -9)
    watched.start(1)
    nodes.end(2, -9)
    watched.signal(2, signal.SIGKILL)
    assert [one.split()[1] for one in told] == ["1", "2"]


def test_a_node_that_a_supervisor_has_started_again_is_noticed(
    watched: WatchedNodes, nodes: EndingNodes, told: list[str]
) -> None:
    nodes.pids[2] = 302
    watched.look()
    watched.look()
    assert told == ["node 2 ended, and no fault of this run ended it"]


def test_what_the_run_kills_is_not_told(watched: WatchedNodes, nodes: EndingNodes, told: list[str]) -> None:
    watched.signal(1, signal.SIGSTOP)
    watched.signal(1, signal.SIGKILL)
    watched.look()
    watched.start(1)
    watched.look()
    assert told == []
    nodes.end(1, -9)
    watched.look()
    assert len(told) == 1


def test_a_node_with_a_failing_disk_may_end_itself_once_and_late(
    watched: WatchedNodes, nodes: EndingNodes, told: list[str]
) -> None:
    watched.may_end(1, later=True)
    watched.start(1)
    nodes.end(1, 1)
    watched.look()
    watched.start(1)
    assert told == []
    nodes.end(1, 1)
    watched.look()
    assert len(told) == 1


def test_a_broken_invariant_is_told_also_of_a_node_with_a_failing_disk(
    watched: WatchedNodes, nodes: EndingNodes, told: list[str]
) -> None:
    watched.may_end(1, later=True)
    nodes.end(1, EXIT_BROKEN_INVARIANT)
    watched.look()
    assert told == [
        "node 1 ended with exit code 70 (its log ends with: the last line), and no fault of this run ended it"
    ]


def test_a_node_that_has_got_over_a_full_disk_must_live(
    watched: WatchedNodes, nodes: EndingNodes, told: list[str]
) -> None:
    watched.may_end(1)
    watched.got_over(1)
    nodes.end(1, 1)
    watched.look()
    assert len(told) == 1
    watched.may_end(2)
    nodes.end(2, 1)
    watched.got_over(2)
    watched.look()
    assert len(told) == 1, "it had ended before"


def test_a_failed_fsync_may_still_come_to_light_behind_a_full_disk(
    watched: WatchedNodes, nodes: EndingNodes, told: list[str]
) -> None:
    watched.may_end(1, later=True)
    watched.may_end(1)
    watched.got_over(1)
    nodes.end(1, 1)
    watched.look()
    assert told == []


def test_a_signal_is_told_also_of_a_node_with_a_failing_disk(
    watched: WatchedNodes, nodes: EndingNodes, told: list[str]
) -> None:
    watched.may_end(1, later=True)
    nodes.end(1, -11)
    watched.look()
    assert told == ["node 1 was killed by SIGSEGV, and no fault of this run ended it"]


def test_a_node_that_cannot_be_started_again_is_told_once(
    watched: WatchedNodes, nodes: EndingNodes, told: list[str]
) -> None:
    watched.signal(1, signal.SIGKILL)
    nodes.refusals = [LocalNodeError("it ended")] * 6
    watched.start(1)
    watched.start(1)
    assert told == ["node 1 could not be started again: it ended"]
    watched.start(1)
    assert nodes.alive(1) and len(told) == 1


def test_the_last_line_of_a_log_is_told_without_its_time(tmp_path: Path) -> None:
    plan = plan_cluster(str(tmp_path), ClusterShape(brokers=1, port=21000))
    Path(plan.nodes[0].log_file).write_text("2026-11-24T02:25:10.740Z ERROR node=1 raftwerk: stops\n")
    assert LocalNodes(plan).last_log_line(1) == "ERROR node=1 raftwerk: stops"


@pytest.mark.long
@pytest.mark.process
def test_a_run_in_which_somebody_else_kills_a_node_is_not_valid(tmp_path: Path) -> None:
    where = tmp_path / "run"
    options = ["--minutes", "0.1", "--nemesis", "none", "--rate", "50", "--consumers", "1", "--no-transactions"]
    command = [sys.executable, "-m", "raftwerk", "chaos", "run", "-o", str(where), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        loaded = where / "history" / "producer-0.jsonl"
        deadline = time.monotonic() + 60
        while not loaded.exists():
            assert run.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)
        os.kill(int((where / "nodes" / "n2.pid").read_text()), signal.SIGSEGV)
        output, _ = run.communicate(timeout=120)
    assert run.returncode == 1, output
    told = "node 2 was killed by SIGSEGV, and no fault of this run ended it"
    assert f"Error: {told}" in output and output.splitlines()[-2] == "INVALID"
    verdict = json.loads((where / "verdict.json").read_text())
    assert verdict["verdict"] == "INVALID" and verdict["errors"] == [told]
    assert verdict["anomalies"]["node-ended"]["count"] == 1
    assert told in (where / "report.html").read_text()
    again = CliRunner().invoke(cli, ["chaos", "check", str(where)])
    assert again.exit_code == 1 and told in again.output
