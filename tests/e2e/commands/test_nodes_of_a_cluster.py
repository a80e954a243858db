"""The nodes of a local cluster: started, paused, taken down, deleted; and what is said when that fails."""

from __future__ import annotations

import itertools
import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from support.e2e.command import fails, ok, raftwerk
from support.e2e.terminal import CTRL_C, Terminal

from raftwerk.cluster.local.layout import ClusterShape, find_free_base_port, load_plan
from raftwerk.cluster.local.supervisor import last_line, node_pid


@pytest.fixture
def directory(tmp_path: Path) -> str:
    return str(tmp_path / "c")


@pytest.mark.long
def test_nodes_are_stopped_and_killed_several_at_a_time(directory: str) -> None:
    ok("up", "-n", "3", "--port", "0", "-d", directory, "--detach")
    try:
        plan = load_plan(directory)
        ok("topics", "create", "t", "--replicas", "3", "-d", directory)
        assert ok("stop", "2", "-d", directory).startswith("Stopped node 2 (process ")
        assert "PENDING_SHUTDOWN to SHUTTING_DOWN" in Path(plan.node(2).log_file).read_text()
        states = (line.split() for line in raftwerk("status", "-b", plan.bootstrap).stdout.splitlines())
        assert ["2", "down"] in [[words[0], words[-1]] for words in states if words]
        assert "node 2 is not running; raftwerk start 2" in fails(1, "stop", "2", "-d", directory)
        elsewhere = raftwerk("status", "-b", plan.bootstrap)
        assert elsewhere.returncode == 1 and "active controller" in elsewhere.stdout
        assert f"bootstrap.servers={plan.bootstrap}" in elsewhere.stdout
        ok("kill", "1", "-s", "stop", "-d", directory)
        told = ok("kill", "1", "3", "-s", "9", "-d", directory).splitlines()
        assert [line.partition(" (")[0] for line in told] == ["Sent SIGKILL to node 1", "Sent SIGKILL to node 3"]
        assert [node_pid(node) for node in plan.nodes] == [None] * 3
    finally:
        raftwerk("down", "-d", directory)


def test_the_table_is_drawn_again_where_it_was_on_a_narrower_terminal(directory: str) -> None:
    with Terminal("up", "--port", "0", "-d", directory) as terminal:
        terminal.resize(160)
        terminal.read_until("active controller")
        terminal.resize(50)
        terminal.read_until("\x1b[10A\x1b[J")  # five lines of 97 characters are folded
        terminal.press(CTRL_C)
        assert terminal.wait() == 0 and "Stopped cleanly." in terminal.shown


@pytest.mark.long
@pytest.mark.parametrize("options", [(), ("--restart",)])
def test_down_ends_an_up_that_stays(directory: str, options: tuple[str, ...]) -> None:
    with Terminal("up", "-n", "2", "--port", "0", "-d", directory, *options) as terminal:
        terminal.read_until("active controller")
        assert "already running" in fails(1, "up", "-d", directory)
        ok("stop", "2", "-d", directory)
        told = ok("down", "-d", directory)
        assert re.search(r"Stopped [12] nodes?: 1(, 2)?\. raftwerk up \(process \d+\) has ended\.", told)
        assert terminal.wait() == 0
        assert "Stopped cleanly: SIGTERM came, as from raftwerk down." in terminal.shown
    assert [node_pid(node) for node in load_plan(directory).nodes] == [None, None]
    assert ok("down", "-d", directory) == "No node was running.\n"


@pytest.mark.parametrize("options", [(), ("--plain",)])
def test_an_up_whose_terminal_closes_stops_all_nodes(directory: str, options: tuple[str, ...]) -> None:
    with Terminal("up", "-n", "2", "--port", "0", "-d", directory, *options) as terminal:
        terminal.read_until("Ctrl-C stops the cluster.")
        ok("kill", "2", "-s", "9", "-d", directory)
        ok("start", "2", "-d", directory)
        terminal.close()
        assert terminal.process.wait(30) == 0
    assert [node_pid(node) for node in load_plan(directory).nodes] == [None, None]


def test_up_says_that_a_node_was_stopped_cleanly(directory: str) -> None:
    with Terminal("up", "-n", "2", "--port", "0", "--plain", "-d", directory) as terminal:
        terminal.resize(200)
        terminal.read_until("Ctrl-C stops the cluster.")
        ok("stop", "2", "-d", directory)
        terminal.read_until("node 2 was stopped cleanly; raftwerk start 2 -d ")
        terminal.press(CTRL_C)
        assert terminal.wait() == 0


def test_a_kill_is_told_in_one_sentence_and_no_clean_stop_is_claimed(directory: str) -> None:
    with Terminal("up", "-n", "2", "--port", "0", "-d", directory) as terminal:
        terminal.resize(250)
        terminal.read_until("active controller")
        ok("kill", "1", "-d", directory)
        told = f"killed by signal 9; raftwerk start 1 -d {directory} starts it again"
        terminal.read_until(told)
        refused = fails(1, "up", "-d", directory)
        assert (
            f"raftwerk start -d {directory} starts those that are down, raftwerk down -d {directory} stops" in refused
        )
        ok("start", "1", "-d", directory)
        ok("kill", "1", "2", "-d", directory)
        terminal.read_until(f"killed or has failed; raftwerk start 1 -d {directory} starts it again")
        refused = fails(1, "up", "-d", directory)
        assert (
            f"raftwerk start -d {directory} starts nodes that are down, raftwerk down -d {directory} ends it" in refused
        )
        for words in (("status",), ("doctor",), ("topics", "list")):
            done = raftwerk(*words, "-d", directory)
            advice = " ".join((done.stdout + done.stderr).split())
            assert done.returncode == 1 and f"raftwerk start -d {directory} " in advice and "raftwerk up" not in advice
        terminal.press(CTRL_C)
        assert terminal.wait() == 1
        assert "Stopped cleanly" not in terminal.shown
        assert (
            "not all nodes ended cleanly: node 1 (killed or has failed), node 2 (killed by signal 9); their"
            in terminal.shown
        )


def test_who_dies_is_started_again_and_who_was_stopped_is_not(directory: str) -> None:
    with Terminal("up", "-n", "3", "--port", "0", "--plain", "--restart", "-d", directory) as terminal:
        terminal.resize(200)
        terminal.read_until("Ctrl-C stops the cluster.")
        ok("stop", "2", "-d", directory)
        terminal.read_until("node 2 was stopped cleanly; raftwerk start 2 -d ")
        ok("kill", "3", "-d", directory)
        terminal.read_until("node 3 was killed by signal 9; starting it again")
        plan = load_plan(directory)
        deadline = time.monotonic() + 30
        while node_pid(plan.node(3)) is None:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert node_pid(plan.node(2)) is None
        terminal.press(CTRL_C)
        assert terminal.wait() == 0


@pytest.mark.long
def test_who_was_started_by_another_command_and_dies_is_started_again(directory: str) -> None:
    with Terminal("up", "-n", "3", "--port", "0", "--plain", "--restart", "-d", directory) as terminal:
        terminal.resize(200)
        terminal.read_until("Ctrl-C stops the cluster.")
        ok("stop", "3", "-d", directory)
        terminal.read_until("node 3 was stopped cleanly; raftwerk start 3 -d ")
        ok("start", "3", "-d", directory)
        ok("kill", "3", "-d", directory)
        terminal.read_until("node 3 was killed or has failed; starting it again")
        node = load_plan(directory).node(3)
        deadline = time.monotonic() + 30
        while node_pid(node) is None:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        ok("stop", "3", "-d", directory)
        terminal.read_until("node 3 was stopped cleanly; raftwerk start 3 -d ")
        ok("start", "3", "-d", directory)
        ok("stop", "3", "-d", directory)
        terminal.read_until("node 3 was stopped cleanly; raftwerk start 3 -d ")
        assert node_pid(node) is None
        terminal.press(CTRL_C)
        assert terminal.wait() == 0


def make_cluster(directory: str, nodes: int) -> str:
    """A cluster that is down; returns its bootstrap servers."""
    ok("up", "-n", str(nodes), "--port", "0", "-d", directory, "--detach")
    ok("down", "-d", directory)
    return load_plan(directory).bootstrap


@pytest.mark.long
def test_a_node_lives_on_when_its_start_gave_up(directory: str) -> None:
    bootstrap = make_cluster(directory, 3)
    try:
        told = fails(1, "start", "1", "--timeout", "2", "-d", directory)
        assert "node 1 is not ready after 2 s" in told
        assert "without controllers 2, 3 there is no majority: raftwerk start" in told
        assert ok("start", "2", "-d", directory).startswith("Node 2 ready in ")
        deadline = time.monotonic() + 30
        node = load_plan(directory).node(1)
        while "did not wait until it was ready" not in Path(node.log_file).read_text():
            assert time.monotonic() < deadline, last_line(node.log_file)
            time.sleep(0.05)
        ok("topics", "create", "t", "-r", "2", "-b", bootstrap)
        assert node_pid(node) is not None
    finally:
        ok("down", "-d", directory)


def test_ctrl_c_of_start_tells_what_goes_on(directory: str) -> None:
    make_cluster(directory, 3)
    node = load_plan(directory).node(1)
    try:
        with Terminal("start", "1", "-d", directory) as terminal:
            deadline = time.monotonic() + 30
            while node_pid(node) is None:
                assert time.monotonic() < deadline, terminal.shown
                time.sleep(0.01)
            terminal.press(CTRL_C)
            assert terminal.wait() == 130
        told = " ".join(terminal.shown.split())
        assert f"Interrupted: node 1 goes on starting (raftwerk status -d {directory} shows how far, " in told
        assert f"raftwerk kill 1 -d {directory} ends it)." in told
        assert node_pid(node) is not None
    finally:
        ok("down", "-d", directory)


def test_start_ends_as_soon_as_a_node_has_died_and_says_why(directory: str) -> None:
    make_cluster(directory, 3)
    node = load_plan(directory).node(3)
    try:
        with socket.socket() as taken:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taken.bind(("127.0.0.1", node.port or 0))
            taken.listen()
            began = time.monotonic()
            told = fails(1, "start", "-d", directory)
            assert time.monotonic() - began < 20
        assert "node 3 ended with exit code 1: raftwerk: listener PLAINTEXT cannot listen" in told
        assert "node 1" not in told and "majority" not in told
    finally:
        ok("down", "-d", directory)


def test_up_looks_at_all_ports_before_it_writes_anything(directory: str) -> None:
    base = find_free_base_port(ClusterShape(2))
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", base + 1002))
        taken.listen()
        told = fails(1, "up", "-n", "2", "--port", str(base), "-d", directory)
        assert f"port {base + 1002} for the controller of node 2" in told and "--controller-port" in told
        assert not os.path.exists(directory)
        controllers = ("--controller-port", str(base + 2002))
        assert "2 nodes ready" in ok("up", "-n", "2", "--port", str(base), *controllers, "-d", directory, "--detach")
        ok("down", "-d", directory)


def test_settings_of_up_are_checked_before_it_writes_anything(directory: str) -> None:
    told = raftwerk("up", "-o", "min.insync.replica=2", "-d", directory)
    assert told.returncode == 2 and "did you mean min.insync.replicas?" in told.stderr
    told = raftwerk("up", "-o", "num.partitions=many", "-d", directory)
    assert told.returncode == 2 and "num.partitions=many: it is no whole number" in told.stderr
    assert not os.path.exists(directory)


def test_a_setting_that_only_the_node_refuses_is_not_kept(
    directory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = "class Licensed:\n    def configure(self, _): raise RuntimeError('no licence')\n    validate = configure\n"
    (tmp_path / "licensed_policy.py").write_text(policy)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    wrong = "create.topic.policy.class.name=licensed_policy.Licensed"
    up = ("up", "--detach", "-d", directory)
    try:
        for again, words in enumerate((("--port", "0", "-o", "num.partitions=3"), ("-o", "num.partitions=4"))):
            told = fails(2, *up, *words, "-o", wrong)
            assert "node 1 ended with exit code 2: raftwerk: Licensed cannot be made: RuntimeError: no licence" in told
            assert told.endswith("; nothing that was given with -o is kept")
            former = load_plan(directory)
            assert "create.topic.policy.class.name" not in former.nodes[0].properties
            assert former.nodes[0].properties.get("num.partitions") == ("3" if again else None)
            ok(*up, *(() if again else ("-o", "num.partitions=3")))
            assert load_plan(directory).bootstrap == former.bootstrap
            ok("down", "-d", directory)
    finally:
        raftwerk("down", "-d", directory)


def test_a_cluster_grows_with_the_settings_that_it_was_given(directory: str) -> None:
    ok("up", "-n", "1", "--port", "0", "-o", "num.partitions=3", "-d", directory, "--detach")
    ok("down", "-d", directory)
    former = load_plan(directory)
    try:
        assert "2 nodes ready" in ok("up", "-n", "2", "-d", directory, "--detach")
        plan = load_plan(directory)
        assert [node.properties["num.partitions"] for node in plan.nodes] == ["3", "3"]
        assert plan.nodes[0].port == former.nodes[0].port
    finally:
        ok("down", "-d", directory)


def test_a_cluster_is_deleted_with_a_confirmation(directory: str) -> None:
    ok("up", "-n", "1", "--port", "0", "-d", directory, "--detach")
    assert f"running nodes: 1; raftwerk down -d {directory} stops them" in fails(1, "delete", "-d", directory, "--yes")
    ok("down", "-d", directory)
    assert (raftwerk("delete", "-d", directory).returncode, os.path.exists(directory)) == (2, True)
    with Terminal("delete", "-d", directory) as terminal:
        terminal.read_until("[y/N]: ")
        terminal.press(b"n\n")
        assert terminal.wait() == 1 and "Nothing was deleted." in terminal.shown
    assert "Deleted the cluster" in ok("delete", "-d", directory, "--yes")
    assert not os.path.exists(directory)
    assert "there is no cluster" in fails(2, "delete", "-d", directory, "--yes")


def test_other_files_in_the_directory_are_not_mixed_with_a_cluster_s(tmp_path: Path) -> None:
    (tmp_path / "setup.py").touch()
    assert "holds other files (setup.py)" in fails(2, "up", "--port", "0", "-d", str(tmp_path))
    assert os.listdir(tmp_path) == ["setup.py"]


@pytest.mark.long
def test_the_live_table_shows_a_paused_node(directory: str) -> None:
    with Terminal("up", "-n", "2", "--port", "0", "-d", directory) as terminal:
        terminal.resize(80)
        terminal.read_until("active controller")
        assert terminal.shown.count("bootstrap.servers=") == 1
        ok("kill", "2", "--signal", "STOP", "-d", directory)
        terminal.read_until("paused")
        status = raftwerk("status", "-d", directory)
        assert status.returncode == 1 and "paused" in status.stdout
        for which in ((), ("2",)):
            told = fails(1, "start", *which, "-d", directory)
            assert re.search(
                r"node 2 is paused \(process \d+\): raftwerk kill 2 --signal CONT -d \S+ lets it go on$", told
            )
        ok("kill", "1", "--signal", "STOP", "-d", directory)
        for words in (("topics", "list"), ("doctor",)):
            done = raftwerk(*words, "-d", directory)
            told = " ".join((done.stdout + done.stderr).split())
            assert done.returncode == 1 and "no broker answers: nodes 1, 2 are paused (processes " in told
            assert f"raftwerk kill 1 2 --signal CONT -d {directory} lets them go on" in told
        told = fails(1, "shrink", "-n", "1", "--yes", "-d", directory)
        assert "node 1 is paused" in told and f"raftwerk kill 1 --signal CONT -d {directory} lets it go on" in told
        ok("kill", "1", "2", "--signal", "CONT", "-d", directory)
        terminal.press(CTRL_C)
        assert terminal.wait() == 0


@pytest.mark.long
def test_a_broker_that_is_fenced_is_shown_as_fenced(directory: str) -> None:
    make_cluster(directory, 2)
    try:
        ok("start", "1", "2", "-d", directory)
        ok("topics", "create", "t", "-r", "2", "-c", "min.insync.replicas=2", "-d", directory)
        ok("stop", "2", "-d", directory)
        with open(load_plan(directory).node(2).properties_file, "a", encoding="utf-8") as file:
            file.write(f"log.dirs.reserve.bytes={1 << 60}\n")
        assert "the disk is full" in fails(1, "start", "2", "--timeout", "2", "-d", directory)
        shown = raftwerk("status", "-d", directory)
        assert shown.returncode == 1
        assert re.search(r"^ +2 +broker,controller .* fenced$", shown.stdout, re.MULTILINE), shown.stdout
        data = load_plan(directory).node(2).data_dir
        assert (
            f"Node 2 is fenced, so that it leads nothing and is in no ISR; {data}: the disk is full: " in shown.stdout
        )
        elsewhere = raftwerk("status", "-b", load_plan(directory).bootstrap).stdout
        assert "Broker 2 is fenced, so that it leads nothing and is in no ISR: raftwerk doctor -b " in elsewhere
        told = raftwerk("doctor", "-d", directory).stdout.splitlines()
        after = dict(itertools.pairwise(told))
        free = "free space on the disk of broker 2, as is said of it above"
        assert after["warn  broker 2 is fenced: it leads nothing, and is in no ISR"] == f"      -> {free}"
        for start in (
            "warn  1 partition without all replicas in sync",
            "FAIL  t: min.insync.replicas=2, and fewer are",
        ):
            (line,) = [one for one in told if one.startswith(start)]
            assert after[line] == f"      -> {free}, and its replicas catch up by themselves"
        rows = [json.loads(line) for line in ok("brokers", "log-dirs", "-d", directory, "--json").splitlines()]
        assert {row["broker"]: row["full"] for row in rows} == {1: False, 2: True}
        assert ok("brokers", "log-dirs", "-d", directory).count("FULL: it takes no records") == 1
    finally:
        ok("down", "-d", directory)


@pytest.mark.parametrize("words", [("settings",), ("--help",), ("topics", "--help"), ("sim", "--seeds", "1")])
def test_an_output_on_a_full_disk_is_one_sentence_and_a_failure(words: tuple[str, ...]) -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "raftwerk", *words]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "Error: the standard output takes nothing: no space left on device"
    assert "Traceback" not in done.stderr


def test_a_broken_pipe_that_is_not_the_output_s_is_no_silent_success() -> None:
    program = "import click, raftwerk.cli.main as cli; cli.LazyGroup.get_command = lambda *_: boom; cli.main()"
    boom = "import click\n@click.command()\ndef boom() -> None: raise BrokenPipeError\n"
    done = subprocess.run(
        [sys.executable, "-c", f"{boom}{program}", "status"], capture_output=True, text=True, check=False, timeout=40
    )
    assert done.returncode != 0


def read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return str(answer.read().decode())


def test_metrics_are_announced(directory: str) -> None:
    base = find_free_base_port(ClusterShape(1, metrics_port=0))
    try:
        told = ok("up", "--port", str(base), "--metrics-port", str(base + 500), "-d", directory, "--detach")
        assert f"metrics: http://127.0.0.1:{base + 500}/metrics" in told
        root = f"http://127.0.0.1:{base + 500}"
        for path in ["/health", *re.findall(r'href="(.*?)"', read(f"{root}/"))]:
            assert read(f"{root}{path}")
    finally:
        ok("down", "-d", directory)
