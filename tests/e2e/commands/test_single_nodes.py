"""`status`, `kill`, `start`, `doctor`, `perf` and `completion` as a person uses them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from raftwerk.cluster.local.layout import load_plan


def raftwerk(*arguments: str, code: int = 0) -> str:
    command = [sys.executable, "-P", "-m", "raftwerk", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == code, f"{arguments}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def states(directory: str, code: int) -> dict[int, str]:
    lines = raftwerk("status", "-d", directory, "--json", code=code).splitlines()
    return {row["node"]: row["state"] for row in map(json.loads, lines)}


@pytest.mark.long
def test_nodes_one_by_one(tmp_path: Path) -> None:
    where = str(tmp_path / "c")
    up = raftwerk("up", "-n", "3", "--detach", "-d", where, "--port", "0")
    bootstrap = up.split("bootstrap.servers=")[1].split()[0]
    try:
        assert states(where, 0) == {1: "up", 2: "up", 3: "up"}
        raftwerk("kill", "2", "-d", where)
        raftwerk("kill", "3", "--signal", "stop", "-d", where)
        assert states(where, 1) == {1: "up", 2: "down", 3: "paused"}
        raftwerk("kill", "3", "-s", "CONT", "-d", where)
        assert "raftwerk start 2" in raftwerk("kill", "2", "-d", where, code=1)
        assert "cluster in" in raftwerk("kill", "9", "-d", where, code=2)
        assert "nothing listens there" in raftwerk("doctor", "-b", bootstrap, code=1)
        assert "Node 2 ready in" in raftwerk("start", "2", "-d", where)
        listeners = ", ".join(load_plan(where).node(2).properties["listeners"].split(","))
        ready = f"node 2 (broker,controller) is ready and listens on {listeners}"
        assert ready in (tmp_path / "c" / "n2.log").read_text()
        assert states(where, 0) == {1: "up", 2: "up", 3: "up"}
        load = json.loads(
            raftwerk("perf", "produce", "load", "--records", "5000", "-p", "2", "-b", bootstrap, "--json").splitlines()[
                -1
            ]
        )
        assert load["records"] >= 5000
        assert json.loads(raftwerk("perf", "consume", "load", "-b", bootstrap, "--json"))["records"] == load["records"]
        assert json.loads(raftwerk("perf", "e2e", "one", "--records", "20", "-b", bootstrap, "--json"))["records"] == 20
        assert "reached" in raftwerk("doctor", "-b", bootstrap)
    finally:
        raftwerk("down", "-d", where)
    assert states(where, 1) == {1: "down", 2: "down", 3: "down"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str) -> None:
    assert "_RAFTWERK_COMPLETE" in raftwerk("completion", shell)
