"""Commands of a local cluster whose files belong to another user, as after `sudo raftwerk up`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from raftwerk.cluster.local.layout import ClusterShape, plan_cluster, write_properties
from raftwerk.runtime.files.real_disk import LOCK_FILE

NOBODY = 65534
WITHOUT_RIGHTS = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
"""The superuser may read everything, unless its process has given that up."""


@pytest.mark.parametrize("command", ["logs -n 1", "kill 1", "stop 1", "start", "shrink -n 1 --yes", "delete --yes"])
def test_a_sentence_says_whose_files_they_are(command: str, tmp_path: Path) -> None:
    is_superuser = os.geteuid() == 0
    if is_superuser and shutil.which("setpriv") is None:
        pytest.skip("no setpriv: files that may not be read are NOT tested")
    file = tmp_path / "s1.properties"
    file.write_text("node.id=1\n")
    file.chmod(0o200)
    if is_superuser:
        os.chown(file, NOBODY, NOBODY)
    arguments = [sys.executable, "-m", "raftwerk", *command.split(), "-d", str(tmp_path)]
    prefix = WITHOUT_RIGHTS if is_superuser else []
    done = subprocess.run([*prefix, *arguments], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2, done.stderr
    assert f"permission denied for {file}; run the command as the user who started the cluster" in done.stderr
    assert "Traceback" not in done.stderr


OF_NOBODY = """
import fcntl, os, sys, time
lock = open(sys.argv[3], "w")
fcntl.flock(lock, fcntl.LOCK_EX)
os.setuid(int(sys.argv[4]))
print("locked", flush=True)
sys.stdin.read()
"""
"""Holds the lock of a node as a process of another user."""


@pytest.mark.process
@pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser can make a process of another user")
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="no setpriv: processes of others are NOT tested")
@pytest.mark.parametrize("command", ["down", "stop 1", "kill 1"])
def test_a_sentence_says_that_the_processes_are_of_another_user(command: str, tmp_path: Path) -> None:
    plan = plan_cluster(str(tmp_path / "c"), ClusterShape(1, port=21000))
    (node,) = plan.nodes
    os.makedirs(node.data_dir)
    write_properties(plan)
    Path(node.data_dir, "meta.properties").write_text(f"version=1\ncluster.id={plan.cluster_id}\nnode.id=1\n")
    lock = os.path.join(node.data_dir, LOCK_FILE)
    of_nobody = [sys.executable, "-c", OF_NOBODY, "node", node.properties_file, lock, str(NOBODY)]
    with subprocess.Popen(of_nobody, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        Path(node.pid_file).write_text(f"{holder.pid}\n")
        arguments = [sys.executable, "-m", "raftwerk", *command.split(), "-d", plan.directory]
        done = subprocess.run([*WITHOUT_RIGHTS, *arguments], capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 2, done.stderr
        reason = f"process {holder.pid} belongs to another user"
        assert done.stderr == f"Error: {reason}; run the command as the user who started the cluster\n"
