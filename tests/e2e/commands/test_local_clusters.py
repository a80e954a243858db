"""Clusters with names: put down, taken up as they were, looked at, hurt."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from raftwerk.cluster.local.layout import (
    META_FILE,
    ClusterShape,
    load_plan,
    new_cluster_id,
    plan_cluster,
    write_properties,
)

RAFTWERK = [sys.executable, "-m", "raftwerk"]


def ok(*arguments: str, stdin: str | None = None) -> str:
    done = subprocess.run([*RAFTWERK, *arguments], input=stdin, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def fails(*arguments: str) -> str:
    done = subprocess.run([*RAFTWERK, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode in (1, 2), done.stdout
    return done.stderr


@pytest.fixture
def name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    yield "orders"
    subprocess.run([*RAFTWERK, "down", "--name", "orders"], capture_output=True, timeout=60, check=False)


@pytest.mark.long
def test_a_named_cluster_is_taken_up_as_it_was(name: str, tmp_path: Path) -> None:
    told = ok("up", "-n", "2", "--port", "0", "--name", name, "--detach", "-o", "num.partitions=3")
    assert "2 nodes ready" in told and f"stop with: raftwerk down --name {name}\n" in told
    plan = load_plan(str(tmp_path / "raftwerk" / name))
    assert f"{name:20}  2 of 2 nodes up  {plan.bootstrap}" in ok("clusters")
    assert "nodes 1, 2 of" in fails("up", "--name", name)
    ok("topics", "create", "kept", "-r", "2", "-b", plan.bootstrap)
    ok("produce", "kept", "-m", "hello", "-b", plan.bootstrap)
    ok("down", "--name", name)
    assert "0 of 2 nodes up" in ok("clusters")
    assert "2 nodes ready" in ok("up", "--name", name, "--detach")
    assert ok("consume", "kept", "-n", "1", "-b", plan.bootstrap) == "hello\n"
    described = ok("topics", "describe", "kept", "-b", plan.bootstrap)
    assert described.count("leader") >= 3

    ok("kill", "2", "--name", name)
    assert "1 of 2 nodes up" in ok("clusters")
    ok("start", "2", "--name", name)
    lines = ok("logs", "--name", name, "-n", "3").splitlines()
    assert {line[:4] for line in lines} == {"n1 |", "n2 |"} and len(lines) == 6
    assert all(line.startswith("n2 |") for line in ok("logs", "2", "--name", name).splitlines())


def test_whoever_reads_only_the_first_line_is_served(name: str) -> None:
    command = f"{' '.join(RAFTWERK)} up -n 1 --port 0 --name {name} --detach | head -n 1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stderr, done.returncode) == ("", 0)
    assert "1 node ready" in done.stdout
    assert "1 of 1 node up" in ok("clusters")


def test_following_logs_ends_with_the_reader_though_nothing_is_logged(tmp_path: Path) -> None:
    plan = plan_cluster(str(tmp_path), ClusterShape(1, port=0))
    write_properties(plan)
    os.makedirs(plan.nodes[0].data_dir)
    (Path(plan.nodes[0].data_dir) / "meta.properties").write_text(f"cluster.id={plan.cluster_id}\n")
    Path(plan.nodes[0].log_file).write_text("one\ntwo\nthree\n")
    command = [*RAFTWERK, "logs", "-f", "-d", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as following:
        try:
            assert following.stdout is not None
            assert following.stdout.readline() == "n1 | one\n"
            following.stdout.close()
            assert following.wait(20) == 0
        finally:
            following.kill()


def test_logs_are_streamed_with_the_node_s_number(tmp_path: Path) -> None:
    command = [*RAFTWERK, "up", "-n", "2", "--port", "0", "-d", str(tmp_path / "d"), "--logs"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        seen = set()
        for line in iter(process.stdout.readline, ""):
            if "Transitioning from RECOVERY to RUNNING" in line:
                seen.add(line[:4])
            if len(seen) == 2:
                break
        process.terminate()
        process.stdout.read()
        assert process.wait(20) == 0
    assert seen == {"n1 |", "n2 |"}


def test_a_name_is_no_path(tmp_path: Path) -> None:
    assert "a name has letters" in fails("status", "--name", "../x")
    assert "give one" in fails("status", "--name", "x", "--dir", str(tmp_path))
    assert "raftwerk up" in fails("status", "--dir", os.path.join(tmp_path, "none"))


STOPPED_ASKS = {
    "topics list": True,
    "topics delete orders": True,
    "consume orders": True,
    "produce orders -m x": True,
    "quorum": True,
    "status": False,
    "doctor": False,
}
"""Commands on a cluster that is down, and whether they say what they found in an error."""


def test_commands_on_a_stopped_cluster_leave_another_one_with_its_ports_alone(name: str, tmp_path: Path) -> None:
    """Two projects with the same ports, one of them stopped: its commands must not delete what the other one has."""
    ok("up", "-n", "1", "--port", "0", "--name", name, "--detach")
    other = load_plan(str(tmp_path / "raftwerk" / name))
    ok("topics", "create", "orders", "--name", name)
    stopped = tmp_path / "stopped"
    shutil.copytree(other.directory, stopped, ignore=shutil.ignore_patterns("*.pid"))
    meta = f"version=1\ncluster.id={new_cluster_id()}\nnode.id=1\n"
    (stopped / "node-1" / META_FILE).write_text(meta, encoding="utf-8")

    for line, is_error in STOPPED_ASKS.items():
        done = subprocess.run(
            [*RAFTWERK, *line.split(), "-d", str(stopped)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ, "COLUMNS": "1000"},
        )
        assert (line, done.returncode) == (line, 1)
        said = done.stderr if is_error else done.stdout
        belongs = f"{other.bootstrap} belongs to another cluster ({other.cluster_id}), not to the one in {stopped}"
        assert belongs in said.replace(f"{other.bootstrap}:", other.bootstrap), (line, said)
        assert "stop the other cluster, which has its controllers' ports, too, then raftwerk up -d" in said
    status = [*RAFTWERK, "status", "--json", "-d", str(stopped)]
    told = subprocess.run(status, capture_output=True, text=True, timeout=60, check=False).stdout
    rows = [json.loads(line) for line in told.splitlines()]
    assert [(row["state"], row["leads"], row["controller"]) for row in rows] == [("down", None, False)]

    assert ok("topics", "list", "--name", name) == "orders\n"
    assert ok("topics", "list", "-b", other.bootstrap) == "orders\n"
    told = fails("up", "--detach", "--port", "0", "-d", str(stopped))
    assert "no option changes: end the process" in told and "--port" not in told
