"""Temporary directories that a killed test run has left are removed by the next one."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from raftwerk.cluster.local.running_up import TEST_PID, staying_with
from raftwerk.cluster.local.supervisor import has_running_nodes
from raftwerk.testkit import process_cluster
from raftwerk.testkit.process_cluster import TestCluster

pytestmark = pytest.mark.process
_START = """
from raftwerk.testkit.process_cluster import TestCluster
cluster = TestCluster.start(1)
print(cluster.plan.directory, flush=True)
input()
"""


def test_directories_of_a_killed_run_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    foreign = tmp_path / "raftwerk-test-of-somebody"
    foreign.mkdir()
    command, pipe = [sys.executable, "-c", _START], subprocess.PIPE
    with subprocess.Popen(command, env=environment, text=True, stdin=pipe, stdout=pipe) as killed:
        assert killed.stdout is not None
        directory = killed.stdout.readline().strip()
        with TestCluster.start(1) as beside:
            assert os.path.exists(directory), "its process runs"
            killed.kill()
            killed.wait()
            deadline = time.monotonic() + 30
            while has_running_nodes(directory):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            with TestCluster.start(1):
                assert not os.path.exists(directory)
                assert os.path.exists(beside.plan.directory)
    assert os.listdir(tmp_path) == [foreign.name]


def test_the_directory_of_a_run_that_is_about_to_claim_it_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run removes what was abandoned after this one has made its file, and before it has locked it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    directory = tempfile.mkdtemp(prefix=process_cluster._PREFIX)
    real_lock = fcntl.flock
    removals: list[int] = []

    def lock(file: Any, how: int) -> None:
        if how & fcntl.LOCK_EX:
            process_cluster._remove_abandoned()
            removals.append(how)
        real_lock(file, how)

    monkeypatch.setattr(fcntl, "flock", lock)
    with staying_with(directory, TEST_PID):
        assert removals
        assert os.path.isdir(directory)
        process_cluster._remove_abandoned()
        assert os.path.isdir(directory)
