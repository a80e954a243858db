"""Pid files of nodes that have ended: their numbers may be other processes' by now."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from raftwerk.cli.local_cluster.live_table import node_state
from raftwerk.cli.local_cluster.node_deaths import NodeDeaths
from raftwerk.cli.local_cluster.nodes import missing_majority
from raftwerk.cli.local_cluster.up import unclean_ends
from raftwerk.cluster.local.layout import ClusterShape, NodePlan, plan_cluster
from raftwerk.cluster.local.processes import is_paused
from raftwerk.cluster.local.supervisor import (
    STOPPED_CLEANLY,
    Child,
    LocalNodeError,
    Supervisor,
    brokers_that_do_not_listen,
    node_pid,
    stop_nodes_in,
)
from raftwerk.testkit.process_cluster import TestCluster


@contextmanager
def process(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process with these arguments that waits for the end of its input."""
    command = [sys.executable, "-c", "import sys; sys.stdin.read()", *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as running:
        try:
            yield running
        finally:
            running.kill()


@pytest.mark.process
def test_another_process_with_the_number_of_a_node_is_left_alone(tmp_path: Path) -> None:
    (node,) = plan_cluster(str(tmp_path / "c"), ClusterShape(1, port=21000)).nodes
    Path(node.directory).mkdir()
    elsewhere = str(tmp_path / "other" / "s1.properties")
    with process("raftwerk", "node", elsewhere) as stranger:
        Path(node.pid_file).write_text(f"{stranger.pid}\n")
        assert node_pid(node) is None
        assert not stop_nodes_in(node.directory, limit_s=0).pids
        assert stranger.poll() is None
    with process("raftwerk", "node", node.properties_file) as own:
        Path(node.pid_file).write_text(f"{own.pid}\n")
        deadline = time.monotonic() + 20
        while node_pid(node) is None and time.monotonic() < deadline:
            pass  # the system shows a process's arguments a little after its start
        assert node_pid(node) == own.pid
        assert list(stop_nodes_in(node.directory).pids) == [1]
        assert own.wait() < 0


@pytest.mark.process
def test_a_node_whose_pid_file_was_lost_is_found(tmp_path: Path) -> None:
    (node,) = plan_cluster(str(tmp_path / "c"), ClusterShape(1, port=21000)).nodes
    Path(node.directory).mkdir()
    Path(node.properties_file).touch()
    with process("raftwerk", "edit", node.properties_file), process("raftwerk", "node", node.properties_file) as own:
        deadline = time.monotonic() + 20
        while node_pid(node) is None and time.monotonic() < deadline:
            pass  # the system shows a process's arguments a little after its start
        assert node_pid(node) == own.pid
        assert stop_nodes_in(node.directory).pids == {1: own.pid}
        assert own.wait() < 0
    assert node_pid(node) is None


@pytest.mark.process
def test_a_broker_that_runs_and_does_not_listen_is_found(tmp_path: Path) -> None:
    (node,) = plan_cluster(str(tmp_path / "c"), ClusterShape(1, port=0)).nodes
    Path(node.directory).mkdir()
    with process("raftwerk", "node", node.properties_file) as own:
        Path(node.pid_file).write_text(f"{own.pid}\n")
        deadline = time.monotonic() + 20
        while node_pid(node) is None and time.monotonic() < deadline:
            pass  # the system shows a process's arguments a little after its start
        assert brokers_that_do_not_listen([node]) == {1: own.pid}
        with socket.create_server(("127.0.0.1", 0)) as broker:
            assert brokers_that_do_not_listen([_at_port(node, broker.getsockname()[1])]) == {}
        own.send_signal(signal.SIGSTOP)
        while not is_paused(own.pid):
            assert time.monotonic() < deadline
        assert brokers_that_do_not_listen([node]) == {}
    assert brokers_that_do_not_listen([node]) == {}


def _at_port(node: NodePlan, port: int) -> NodePlan:
    """The same node with its broker at another port."""
    listeners = node.properties["listeners"].replace(f":{node.port}", f":{port}")
    return replace(node, port=port, properties={**node.properties, "listeners": listeners})


@pytest.mark.process
def test_a_node_that_was_started_by_hand_in_the_directory_of_its_settings_counts(tmp_path: Path) -> None:
    plan = plan_cluster(str(tmp_path / "c"), ClusterShape(3, port=21000))
    by_hand = plan.node(2)
    Path(by_hand.data_dir).mkdir(parents=True)
    Path(by_hand.properties_file).touch()
    Path(by_hand.pid_file).touch()  # a clean stop before has emptied it
    lock = Path(by_hand.data_dir) / ".lock"
    hold = "import fcntl, sys; f = open(sys.argv[-1], 'w'); fcntl.flock(f, fcntl.LOCK_EX); print(); sys.stdin.read()"
    command = [sys.executable, "-c", hold, "raftwerk", "node", "s2.properties", str(lock)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, cwd=by_hand.directory) as running:
        assert running.stdout is not None and running.stdout.readline()
        assert node_pid(by_hand) == running.pid
        assert "without controllers 1, 3 there is no majority" in missing_majority(plan)
        assert missing_majority(plan, started=[1]) == ""
        running.kill()
    assert node_pid(by_hand) is None


@pytest.mark.process
def test_a_node_whose_pid_file_names_another_process_is_found_by_its_lock() -> None:
    with TestCluster.start(1) as cluster:
        (node,) = cluster.plan.nodes
        with process("another") as stranger:
            Path(node.pid_file).write_text(f"{stranger.pid}\n")
            pid = node_pid(node)
            assert pid is not None and pid != stranger.pid
        assert stop_nodes_in(node.directory).pids == {1: pid}
        assert node_pid(node) is None


@pytest.mark.process
def test_how_a_node_died_is_shown_until_it_is_started_again(tmp_path: Path) -> None:
    plan = plan_cluster(str(tmp_path / "c"), ClusterShape(1, port=21000))
    (node,) = plan.nodes
    Path(node.directory).mkdir()
    with process("raftwerk", "node", node.properties_file) as killed:
        child = Child(node, killed, None)
        Path(node.pid_file).write_text(f"{killed.pid}\n")
        assert node_state(child, killed.pid, is_controller=False).text == "up"
        killed.kill()
        killed.wait()
        supervisor = Supervisor(plan)
        supervisor.children[1] = child
        assert unclean_ends(supervisor) == {1: "killed by signal 9"}
        start = f"raftwerk start 1 -d {node.directory} starts it again"
        assert node_state(child, None, is_controller=False).text == f"killed by signal 9; {start}"
        assert (
            node_state(child, None, is_controller=False, restarts=True).text == "killed by signal 9; starting it again"
        )
        Path(node.pid_file).write_text(f"{killed.pid + 1}\n")  # `raftwerk start 1`, and then `raftwerk kill 1`
        assert node_state(child, None, is_controller=False).text == f"down; {start}"
        assert unclean_ends(supervisor) == {1: "down"}
        Path(node.pid_file).write_text("")  # by a node that stops cleanly
        assert node_state(child, None, is_controller=False).text == f"down; {start}"
        assert unclean_ends(supervisor) == {}
        child.newest_pid, child.others_ending = killed.pid + 1, STOPPED_CLEANLY  # when `raftwerk up` has seen that
        assert unclean_ends(supervisor) == {}
        assert node_state(child, None, is_controller=False, restarts=True).text == f"stopped cleanly; {start}"


@pytest.mark.process
@pytest.mark.parametrize(
    ("left", "ending"), [("another's number", "killed or has failed"), ("nothing", STOPPED_CLEANLY)]
)
def test_an_end_between_two_looks_is_told(tmp_path: Path, left: str, ending: str) -> None:
    """A node that `raftwerk start` has started may end before `raftwerk up` has seen it."""
    plan = plan_cluster(str(tmp_path / "c"), ClusterShape(1, port=21000))
    (node,) = plan.nodes
    Path(node.directory).mkdir()
    Path(node.properties_file).touch()
    supervisor, told = Supervisor(plan), list[str]()
    deaths = NodeDeaths(supervisor, restarts=False, tell=told.append)
    with process("raftwerk", "node", node.properties_file) as first:
        supervisor.children[1] = child = Child(node, first, None)
        Path(node.pid_file).write_text(f"{first.pid}\n")
        first.kill()
        first.wait()
        deaths.look()
    with process("being", "started") as second:
        Path(node.pid_file).write_text(f"{second.pid}\n")
        deaths.look()
        assert child.newest_pid is None, "it runs, and its arguments may be shown a little later"
        second.kill()
        second.wait()
    if left == "nothing":
        Path(node.pid_file).write_text("")
    deaths.look()
    deaths.look()
    next_step = f"raftwerk start 1 -d {node.directory} starts it again"
    assert told == [f"node 1 was killed by signal 9; {next_step}", f"node 1 was {ending}; {next_step}"]
    assert node_state(child, None, is_controller=False).text == f"{ending}; {next_step}"


@pytest.mark.process
def test_a_node_that_another_command_has_started_meanwhile_is_called_running(tmp_path: Path) -> None:
    plan = plan_cluster(str(tmp_path / "c"), ClusterShape(1, port=0))
    first, second = Supervisor(plan), Supervisor(plan)
    try:
        first.start()
        second.start_node(1)
        with pytest.raises(LocalNodeError) as told:
            second.wait_ready([1], 30.0)
        pid = first.children[1].process.pid
        assert str(told.value).startswith(f"node 1 is already running (process {pid}): another command has started it")
    finally:
        second.stop()
        first.stop()
