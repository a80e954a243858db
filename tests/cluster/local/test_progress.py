"""Nodes that stop are waited for as long as they make progress."""

from __future__ import annotations

import fcntl
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from support.e2e.clusters import start_cluster

from raftwerk.cluster.local import progress
from raftwerk.cluster.local.layout import ClusterShape, plan_cluster
from raftwerk.cluster.local.progress import StoppingNode, killed_sentence, wait_stopped
from raftwerk.cluster.local.running_up import AnotherUpError, running_up, staying_with
from raftwerk.cluster.local.supervisor import Child, LocalNodeError, Supervisor


class Process:
    """One that ends after so many looks at it, and writes its progress at the first of them."""

    def __init__(self, progress_file: Path, looks: int | None, progress_until: int) -> None:
        self.file = progress_file
        self.is_killed = False
        self._left = None if looks is None else iter(range(looks))
        self._progress = iter(range(progress_until))

    def is_running(self) -> bool:
        number = next(self._progress, None)
        if number is not None:
            self.file.write_text(f"has closed {number} of 99 logs")
        return not self.is_killed and (self._left is None or next(self._left, None) is not None)

    def kill(self) -> None:
        self.is_killed = True

    def stopping(self, node_id: int) -> StoppingNode:
        return StoppingNode(node_id, str(self.file), self.is_running, self.kill)


def test_a_node_that_makes_progress_is_waited_for_and_one_that_makes_none_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_TELL_EVERY_S", 0.1)
    slow, stuck = Process(tmp_path / "n1.progress", 40, 40), Process(tmp_path / "n2.progress", None, 1)
    told: list[str] = []
    assert wait_stopped([slow.stopping(1), stuck.stopping(2)], 0.3, told.append) == [2]
    assert not slow.is_killed and stuck.is_killed
    assert "waiting for node 1, which has closed " in told[0] and "node 2, which has closed 0 of 99 logs" in told[0]
    assert os.listdir(tmp_path) == []


def test_what_is_said_of_nodes_that_were_killed() -> None:
    assert killed_sentence([2], 30) == (
        "Node 2 made no progress for 30 s and was killed: its logs are checked at the next start."
    )
    assert killed_sentence([1, 2], 0.5).startswith("Nodes 1, 2 made no progress for 0.5 s and were killed: their")


@pytest.mark.process
def test_a_node_says_what_it_does_while_it_stops(tmp_path: Path) -> None:
    with start_cluster(tmp_path, 1) as supervisor:
        (node,) = supervisor.plan.nodes
        assert not os.path.exists(node.progress_file)
        for _ in itertools.repeat(None, 2):  # the second one changes nothing
            os.kill(supervisor.children[1].pid, signal.SIGTERM)
        assert supervisor.children[1].process.wait(30) == 0
        assert Path(node.progress_file).read_text() == "leaves the quorum"
        supervisor.start_node(1)
        assert not os.path.exists(node.progress_file)


def test_only_one_up_stays_with_a_directory(tmp_path: Path) -> None:
    directory = str(tmp_path)
    assert running_up(directory) is None and running_up(str(tmp_path / "none")) is None
    with staying_with(directory):
        assert running_up(directory) == os.getpid()
        with pytest.raises(AnotherUpError, match=f"process {os.getpid()}"), staying_with(directory):
            pass
    assert running_up(directory) is None
    (tmp_path / "up.pid").write_text(f"{os.getpid()}\n")  # as after a crash
    assert running_up(directory) is None


def test_a_command_that_looks_for_it_keeps_no_up_from_starting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has a lock on the file for a moment."""
    path = tmp_path / "up.pid"
    path.write_text("")
    with open(path, encoding="ascii") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        monkeypatch.setattr(time, "sleep", lambda seconds: fcntl.flock(looking, fcntl.LOCK_UN))
        with staying_with(str(tmp_path)):
            assert running_up(str(tmp_path)) == os.getpid()


@pytest.mark.parametrize("is_second_ready", [True, False])
def test_nodes_that_wait_for_one_that_gets_ready_have_their_time_from_then_on(
    tmp_path: Path, *, is_second_ready: bool
) -> None:
    """On a busy machine nodes become ready one by one, and each may wait for the one before it."""
    supervisor = Supervisor(plan_cluster(str(tmp_path), ClusterShape(2, port=0)))
    nobody = subprocess.Popen([sys.executable, "-c", ""])
    pipes = [os.pipe(), os.pipe()]
    says_it = []
    for node, (read_end, write_end), ready_s in zip(supervisor.plan.nodes, pipes, (0.7, 1.4), strict=True):
        supervisor.children[node.node_id] = Child(node, nobody, read_end)
        says_it.append(threading.Timer(ready_s, os.write, (write_end, b"ready")))
    for timer in says_it[: 1 + is_second_ready]:
        timer.start()
    try:
        if is_second_ready:
            supervisor.wait_ready(limit_s=1.0)
        else:
            with pytest.raises(
                LocalNodeError, match=r"^node 2 is not ready after 1 s without progress; see \S+/n2.log$"
            ):
                supervisor.wait_ready(limit_s=1.0)
    finally:
        for timer in says_it:
            timer.cancel()
        nobody.wait()
        supervisor.leave_running()
        for _, write_end in pipes:
            os.close(write_end)


def test_the_logs_of_all_nodes_that_are_not_ready_are_named(tmp_path: Path) -> None:
    supervisor = Supervisor(plan_cluster(str(tmp_path), ClusterShape(3, port=0)))
    nobody = subprocess.Popen([sys.executable, "-c", ""])
    supervisor.children = {node.node_id: Child(node, nobody, None) for node in supervisor.plan.nodes}
    supervisor.children[1].ready_at = 1.0
    with pytest.raises(LocalNodeError) as raised:
        supervisor.wait_ready(limit_s=0)
    told = f"nodes 2, 3 are not ready after 0 s without progress; see {tmp_path}/n2.log and {tmp_path}/n3.log"
    assert str(raised.value).startswith(told)
    nobody.wait()
