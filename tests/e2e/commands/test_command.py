"""The `raftwerk` command as people and scripts call it: output, one-sentence errors, exit codes."""

from __future__ import annotations

import json
import os
import pty
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.e2e.command import fails, ok, undo_nohup

from raftwerk.cluster.local.layout import ClusterShape, find_free_base_port, plan_cluster, write_properties
from raftwerk.cluster.local.processes import memory_bytes
from raftwerk.cluster.local.supervisor import Supervisor

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"


def node_file(directory: Path) -> tuple[str, str]:
    """server.properties of a single node that is its quorum's static voter, and its data directory."""
    port = find_free_base_port(ClusterShape(brokers=1))
    voters = {"controller.quorum.voters": f"1@127.0.0.1:{port + 1001}"}
    plan = plan_cluster(str(directory), ClusterShape(brokers=1, port=port, overrides=voters))
    write_properties(plan)
    return plan.nodes[0].properties_file, plan.nodes[0].data_dir


def test_topics_produce_consume(bootstrap: str, topic: str) -> None:
    at = ("-b", bootstrap)
    assert ok("topics", "create", topic, "-p", "2", "--replicas", "3", "-c", "min.insync.replicas=2", *at)
    assert topic in ok("topics", "list", *at).split()
    described = json.loads(ok("topics", "describe", topic, "--json", *at))
    assert [sorted(row["isr"]) for row in described["partitions"]] == [[1, 2, 3], [1, 2, 3]]
    lines = "".join(f"k{number % 5}:value {number}\n" for number in range(100))
    told = json.loads(ok("produce", topic, "-k", ":", "-z", "zstd", "--json", *at, text=lines))
    assert told["acked"] == 100
    read = [json.loads(line) for line in ok("consume", topic, "-e", "--json", *at).splitlines()]
    assert sorted(f"{row['key']}:{row['value']}" for row in read) == sorted(lines.split("\n")[:-1])
    assert len(ok("consume", topic, "-n", "7", *at).splitlines()) == 7
    assert ok("topics", "delete", topic, *at)
    assert topic not in ok("topics", "list", *at).split()


def test_refusals_of_the_cluster_are_sentences(bootstrap: str, topic: str) -> None:
    at = ("-b", bootstrap)
    assert "there is no such topic" in fails(1, "topics", "describe", topic, *at)
    assert "there is no such topic" in fails(1, "consume", topic, *at)
    assert fails(1, "topics", "create", topic, "-r", "9", *at)
    assert "refuses the connection" in fails(1, "topics", "list", "-b", "127.0.0.1:1")
    assert "does not resolve" in fails(1, "topics", "list", "-b", "nowhere.invalid")
    assert "is not host:port" in fails(2, "topics", "list", "-b", "http://127.0.0.1:1")


def test_an_unformatted_directory(tmp_path: Path) -> None:
    file, data_dir = node_file(tmp_path)
    told = fails(1, "node", file)
    assert data_dir in told
    assert "raftwerk format" in told


def test_format_once(tmp_path: Path) -> None:
    file, data_dir = node_file(tmp_path)
    assert "Formatted" in ok("format", "-t", CLUSTER_ID, "-c", file)
    assert "meta.properties" in os.listdir(data_dir)
    assert "formatted already" in fails(1, "format", "-t", CLUSTER_ID, "-c", file)
    assert "formatted already" in ok("format", "-t", CLUSTER_ID, "-c", file, "-g")


def test_nodes_that_are_formatted_one_by_one_get_one_id(tmp_path: Path) -> None:
    file, _ = node_file(tmp_path)
    first, hint, *_ = ok("format", "-c", file).splitlines()
    cluster_id = first.split()[-1].rstrip(".")
    assert hint.endswith(f"raftwerk format -t {cluster_id} -c SERVER.PROPERTIES"), hint
    assert cluster_id not in ok("format", "-c", file, "-g")
    (tmp_path / "other").mkdir()
    other, _ = node_file(tmp_path / "other")
    assert "This id is new" not in ok("format", "-t", cluster_id, "-c", other)


def test_another_nodes_directory(tmp_path: Path) -> None:
    file, data_dir = node_file(tmp_path)
    ok("format", "-t", CLUSTER_ID, "-c", file)
    path = Path(data_dir) / "meta.properties"
    path.write_text(path.read_text().replace("node.id=1", "node.id=7"))
    told = fails(1, "node", file)
    assert "7" in told
    assert data_dir in told


def test_another_clusters_directory(tmp_path: Path) -> None:
    file, _ = node_file(tmp_path)
    ok("format", "-t", CLUSTER_ID, "-c", file)
    other = "AAAAAAAAAAAAAAAAAAAAAA"
    told = fails(1, "node", file, "--format", other)
    assert CLUSTER_ID in told
    assert other in told


def test_a_port_in_use(tmp_path: Path) -> None:
    file, _ = node_file(tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        override = f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port(file)}"
        told = fails(1, "node", file, "--format", CLUSTER_ID, "-o", override)
    assert str(port) in told


def controller_port(file: str) -> str:
    return next(line for line in Path(file).read_text().splitlines() if line.startswith("listeners")).rpartition(":")[2]


def test_a_directory_in_use(cluster: Supervisor) -> None:
    plan = cluster.plan.node(1)
    told = fails(1, "node", plan.properties_file)
    assert plan.data_dir in told


def test_a_wrong_configuration(tmp_path: Path) -> None:
    file, _ = node_file(tmp_path)
    told = fails(2, "node", file, "-o", "broker.heartbeat.interval.ms=9000")
    assert "broker.heartbeat.interval.ms=9000" in told
    assert fails(2, "node", str(tmp_path / "missing"))


def test_up_and_down(tmp_path: Path) -> None:
    directory = str(tmp_path / "d")
    told = ok("up", "-n", "1", "--port", "0", "-d", directory, "--detach")
    try:
        bootstrap = next(line for line in told.splitlines() if line.startswith("bootstrap.servers=")).partition("=")[2]
        ok("topics", "create", "kept", "-b", bootstrap)
        ok("produce", "kept", "-m", "hello", "-b", bootstrap)
    finally:
        assert "Stopped 1 node" in ok("down", "-d", directory)
    assert "No node was running" in ok("down", "-d", directory)
    assert "there is no cluster" in fails(2, "down", "-d", str(tmp_path / "typo"))


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (signal.SIGINT, "Stopped cleanly."),
        (signal.SIGTERM, "Stopped cleanly: SIGTERM came, as from raftwerk down."),
        (signal.SIGHUP, "Stopped cleanly: SIGHUP came, as from a terminal that closes."),
    ],
)
def test_up_stops_cleanly(sent: signal.Signals, told: str) -> None:
    command = [sys.executable, "-m", "raftwerk", "up", "-n", "1", "--port", "0", "--ephemeral"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=undo_nohup) as process:  # noqa: PLW1509
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        directory = next(line for line in lines if line.startswith("data in ")).split()[2]
        assert os.path.isdir(directory)
        process.send_signal(sent)
        rest = process.stdout.read()
        assert process.wait(20) == 0
    assert rest.splitlines()[-1] == told
    assert not os.path.exists(directory)


def test_nodes_stop_when_their_supervisor_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "raftwerk", "up", "-n", "1", "--port", "0", "-d", str(tmp_path / "d")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in iter(process.stdout.readline, ""):
            if line.startswith("data in "):
                break
        pid = int((tmp_path / "d" / "n1.pid").read_text())
        process.kill()
    deadline = time.monotonic() + 20
    while os.path.exists(f"/proc/{pid}") and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not os.path.exists(f"/proc/{pid}")


def test_idle_memory(cluster: Supervisor) -> None:
    """An idle node takes at most 60 MB; this one has just served other tests, so it is given some more."""
    for child in cluster.children.values():
        assert (memory_bytes(child.pid) or 0) < 90e6


def test_help_teaches() -> None:
    for command in ("up", "node", "format", "topics", "produce", "consume", "demo", "down"):
        assert "raftwerk" in ok(command, "--help")


def test_a_reader_that_reads_only_the_first_lines_is_served(tmp_path: Path) -> None:
    partition = tmp_path / "t-0"
    partition.mkdir()
    epochs = "".join(f"{epoch} {epoch * 10}\n" for epoch in range(20_000))
    (partition / "leader-epoch-checkpoint").write_text(f"0\n20000\n{epochs}")
    command = f"{sys.executable} -m raftwerk log dump {partition} | head -n 1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stderr, done.returncode) == ("", 0)


def test_an_error_is_folded_at_words_on_a_terminal() -> None:
    """Elsewhere it stays one line, so that programs can search it."""
    command = [sys.executable, "-m", "raftwerk", "topics", "list", "-b", "127.0.0.1:1"]
    environment = {**os.environ, "COLUMNS": "40"}
    piped = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    ours, theirs = pty.openpty()
    with open(ours, "rb", buffering=0) as terminal, open(theirs, "wb") as error:
        assert subprocess.run(command, stderr=error, timeout=60, check=False, env=environment).returncode == 1
        lines = terminal.read(10_000).decode().splitlines()
    assert piped.stderr.count("\n") == 1
    assert len(lines) > 1
    assert max(map(len, lines)) <= 40
    assert " ".join(lines) == piped.stderr.strip()
