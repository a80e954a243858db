"""Nodes that commands of a local cluster are given: each counts once, and none is deleted while it runs."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from raftwerk.cli.administration.configs import log_dirs
from raftwerk.cli.local_cluster.node_logs import logs
from raftwerk.cli.local_cluster.nodes import kill, start, stop
from raftwerk.cli.main import cli
from raftwerk.cluster.local.layout import ClusterPlan, ClusterShape, NodePlan, plan_cluster, write_properties
from raftwerk.cluster.local.supervisor import node_pid


@pytest.fixture
def plan(tmp_path: Path) -> ClusterPlan:
    found = plan_cluster(str(tmp_path / "c"), ClusterShape(3, port=21000))
    Path(found.directory).mkdir()
    write_properties(found)
    data = Path(found.node(1).data_dir)
    data.mkdir(parents=True)
    (data / "meta.properties").write_text(f"version=1\ncluster.id={found.cluster_id}\nnode.id=1\n")
    return found


@contextmanager
def running(node: NodePlan) -> Iterator[subprocess.Popen[bytes]]:
    """A process that stands for the node: it has the node's arguments, and waits for the end of its input."""
    command = [sys.executable, "-c", "import sys; sys.stdin.read()", "raftwerk", "node", node.properties_file]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        Path(node.pid_file).write_text(f"{process.pid}\n")
        deadline = time.monotonic() + 20
        while node_pid(node) is None and time.monotonic() < deadline:
            pass  # the system shows a process's arguments a little after its start
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("command", [kill, stop, start, logs, log_dirs])
def test_a_node_that_is_named_twice_counts_once(command: click.Command) -> None:
    assert (2, 1) in command.make_context("it", ["2", "1", "2"]).params.values()


@pytest.mark.process
def test_a_signal_is_sent_and_told_once(plan: ClusterPlan) -> None:
    with running(plan.node(2)) as process:
        done = CliRunner().invoke(cli, ["kill", "2", "2", "-s", "CONT", "-d", plan.directory])
    assert done.output == f"Sent SIGCONT to node 2 (process {process.pid}).\n"


@pytest.mark.process
def test_a_cluster_with_a_running_node_is_not_deleted_and_that_is_said(plan: ClusterPlan) -> None:
    with running(plan.node(1)):
        done = CliRunner().invoke(cli, ["delete", "--yes", "-d", plan.directory])
    where = f"raftwerk down -d {plan.directory}"
    assert done.output == f"Error: nothing was deleted: running nodes: 1; {where} stops them\n"
    assert done.exit_code == 1 and Path(plan.node(1).properties_file).exists()
