"""Faults, nodes, namespaces and file systems without a cluster; and one short run with a cluster."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from raftwerk.chaos.live.history import HistoryWriter
from raftwerk.chaos.live.load.cluster_observer import out_of_sync
from raftwerk.chaos.live.load.load_task import Task
from raftwerk.chaos.live.load.transactions.transactional_topics import TransactionalTopics
from raftwerk.chaos.live.nemesis import faults, machine_capabilities
from raftwerk.chaos.live.nemesis.faults import FAULTS, ClusterUnderTest, Fault, PlannedFault
from raftwerk.chaos.live.nemesis.network_namespaces import NetworkNamespaces
from raftwerk.chaos.live.nemesis.node_filesystems import NodeFilesystems
from raftwerk.chaos.live.nemesis.node_processes import AdoptedNodes
from raftwerk.chaos.live.nemesis.watched_nodes import WatchedNodes
from raftwerk.chaos.live.run import ChaosRun, RunOptions
from raftwerk.cli.main import cli
from raftwerk.cluster.client.client_errors import ClientError, UnreachableError
from raftwerk.cluster.client.cluster_client import ClusterView, PartitionView, TopicView
from raftwerk.cluster.local.layout import ClusterShape, plan_cluster

VIEW = {"leaders": [2, 2], "isr": [[1, 2, 3], [1, 2, 3]], "controller": 3}


class RecordingNodes:
    """Nodes that only record what is done to them."""

    ids: list[int] = [1, 2, 3]  # noqa: RUF012

    def __init__(self) -> None:
        self.done: list[str] = []
        self.dead: list[int] = []

    def pid(self, node_id: int) -> int:
        return 0

    def alive(self, node_id: int) -> bool:
        return node_id not in self.dead

    def exit_code(self, node_id: int) -> int | None:
        return None

    def signal(self, node_id: int, sent: signal.Signals) -> None:
        self.done.append(f"{sent.name} {node_id}")
        if sent in (signal.SIGKILL, signal.SIGTERM):
            self.dead.append(node_id)

    def last_log_line(self, node_id: int) -> str:
        return ""

    def start(self, node_id: int) -> None:
        if node_id in self.dead:
            self.done.append(f"start {node_id}")
            self.dead.remove(node_id)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> ClusterUnderTest:
    async def look(_bootstrap: str, _topic: str) -> dict[str, Any]:
        return VIEW

    monkeypatch.setattr(faults, "look", look)
    monkeypatch.setattr(faults, "_CHASE_PAUSE_S", 0.0)
    return ClusterUnderTest(RecordingNodes(), random.Random(1), "", "t", hold_s=0.001)


def done(cluster: ClusterUnderTest) -> list[str]:
    assert isinstance(cluster.nodes, RecordingNodes)
    return cluster.nodes.done


@pytest.mark.parametrize(
    ("name", "target", "expected"),
    [
        ("kill-leader", "node 2, leader of t-0", ["SIGKILL 2", "start 2"]),
        ("kill-follower", "node 1, a follower of t-0", ["SIGKILL 1", "start 1"]),
        ("kill-controller", "node 3, the active controller", ["SIGKILL 3", "start 3"]),
        ("pause-leader", "node 2, leader of t-0", ["SIGSTOP 2", "SIGCONT 2"]),
    ],
)
def test_a_fault_strikes_who_has_the_role_and_is_taken_back(
    cluster: ClusterUnderTest, name: str, target: str, expected: list[str]
) -> None:
    planned = FAULTS[name].plan(cluster)
    assert planned.target == target and done(cluster) == []
    planned.begin()
    planned.heal()
    assert done(cluster) == expected


def inflict_and_heal(cluster: ClusterUnderTest, name: str) -> None:
    planned = FAULTS[name].plan(cluster)
    planned.begin()
    planned.heal()


class InterruptedNodes(RecordingNodes):
    """Ctrl-C comes with the signals of these numbers, counted from 0: as they are sent, or right before."""

    def __init__(self, *after: int, before: int | None = None) -> None:
        super().__init__()
        self._after, self._before, self._sent = after, before, 0

    def signal(self, node_id: int, sent: signal.Signals) -> None:
        number, self._sent = self._sent, self._sent + 1
        if number == self._before:
            raise KeyboardInterrupt
        super().signal(node_id, sent)
        if number in self._after:
            raise KeyboardInterrupt


@pytest.fixture
def chaos_run(tmp_path: Path, cluster: ClusterUnderTest, monkeypatch: pytest.MonkeyPatch) -> ChaosRun:
    async def what_is_not_in_sync(_bootstrap: str, _topics: Collection[str]) -> str | None:
        assert isinstance(cluster.nodes, RecordingNodes)
        paused = [one.split() for one in cluster.nodes.done if one.startswith(("SIGSTOP", "SIGCONT"))]
        last = {int(node_id): sent for sent, node_id in paused}
        silent = [node_id for node_id, sent in last.items() if sent == "SIGSTOP"]
        return f"node {silent[0]} does not answer in time" if silent else None

    monkeypatch.setattr("raftwerk.chaos.live.run.what_is_not_in_sync", what_is_not_in_sync)
    return ChaosRun(RunOptions(str(tmp_path)), lambda _: None)


@pytest.mark.parametrize(
    "nodes",
    [InterruptedNodes(0), InterruptedNodes(0, 1), InterruptedNodes(0, before=1)],
    ids=["as it begins", "as it begins and as it is healed", "as it begins and before it is healed"],
)
def test_a_fault_that_ctrl_c_interrupts_is_healed(
    chaos_run: ChaosRun, cluster: ClusterUnderTest, tmp_path: Path, nodes: InterruptedNodes
) -> None:
    cluster.nodes = nodes
    nemesis = HistoryWriter(str(tmp_path / "nemesis.jsonl"), "nemesis")
    with pytest.raises(KeyboardInterrupt):
        chaos_run._inject(cluster, FAULTS["pause-leader"], nemesis)
    chaos_run._heal(cluster, nemesis)
    assert done(cluster)[0] == "SIGSTOP 2" and set(done(cluster)[1:]) == {"SIGCONT 2"}
    assert chaos_run.inflicted == {"pause-leader": 1}, "it was announced, and may have done harm"
    assert '"fault":"pause-leader"' in (tmp_path / "nemesis.jsonl").read_text()


def test_a_fault_is_told_as_it_begins_and_as_it_ends(cluster: ClusterUnderTest, tmp_path: Path) -> None:
    run = ChaosRun(RunOptions(str(tmp_path)), done(cluster).append)
    run._inject(cluster, FAULTS["pause-leader"], HistoryWriter(str(tmp_path / "nemesis.jsonl"), "nemesis"))
    assert done(cluster) == [
        "pause-leader: node 2, leader of t-0",
        "SIGSTOP 2",
        "SIGCONT 2",
        "pause-leader: ended after 0.0 s",
    ]


@pytest.mark.parametrize("may_end_later", [False, True], ids=["disk-full", "eio"])
def test_a_node_may_end_by_a_fault_until_all_is_in_sync_again_or_later(
    chaos_run: ChaosRun, cluster: ClusterUnderTest, tmp_path: Path, may_end_later: bool
) -> None:
    told: list[str] = []
    chaos_run._watch = WatchedNodes(cluster.nodes, lambda _, text: told.append(text))
    planned = PlannedFault("node 1", lambda: None, lambda: None, may_end=1, may_end_later=may_end_later)
    nemesis = HistoryWriter(str(tmp_path / "nemesis.jsonl"), "nemesis")
    chaos_run._inject(cluster, Fault("full", "no space", lambda _: planned), nemesis)
    assert isinstance(cluster.nodes, RecordingNodes)
    cluster.nodes.dead.append(1)
    chaos_run._watch.look()
    assert told == ([] if may_end_later else ["node 1 ended, and no fault of this run ended it"])


@pytest.mark.parametrize(
    ("options", "where"),
    [
        ({"cluster_directory": "/c d"}, " -d '/c d'"),
        (
            {"pid_files": "/n%d.pid", "client_properties": "admin.properties"},
            " -b a:1 --command-config admin.properties",
        ),
    ],
)
@pytest.mark.parametrize("end", [KeyboardInterrupt, ClientError, SystemExit])
def test_what_stays_in_a_cluster_is_told_with_the_commands_that_remove_it(
    tmp_path: Path, options: dict[str, str], where: str, end: type[BaseException]
) -> None:
    said: list[str] = []
    run = ChaosRun(RunOptions(str(tmp_path), bootstrap="a:1", **options), said.append)  # type: ignore[arg-type]
    with pytest.raises(end), run._remains_told():
        raise end
    assert said == [], "there are no topics yet"
    run._has_topics = True
    with pytest.raises(end), run._remains_told():
        raise end
    (told,) = said
    topics, group = TransactionalTopics.of(run.topic), TransactionalTopics.of(run.topic).group
    assert told.endswith(
        f"stay; to remove: raftwerk topics delete {' '.join([run.topic, *topics.all])} --if-exists{where}; "
        f"raftwerk groups delete {group}{where}"
    )


def test_a_run_against_a_cluster_that_does_not_answer_leaves_nothing_behind(tmp_path: Path) -> None:
    """No topics are said to stay there, and the directory can be named again when the address is corrected."""
    said: list[str] = []
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # nothing listens
        bootstrap = f"127.0.0.1:{nobody.getsockname()[1]}"
        run = ChaosRun(RunOptions(str(tmp_path), bootstrap=bootstrap, faults=()), said.append)
        with pytest.raises(UnreachableError):
            run._run()
    assert said == [] and not (tmp_path / "history").exists()


def test_a_paused_node_is_not_in_sync_before_the_cluster_notices(
    chaos_run: ChaosRun, cluster: ClusterUnderTest
) -> None:
    assert chaos_run._not_in_sync(cluster) is None
    cluster.nodes.signal(3, signal.SIGSTOP)
    assert chaos_run._not_in_sync(cluster) == "node 3 does not answer in time"


def test_all_topics_of_a_run_and_the_internal_ones_are_to_be_in_sync() -> None:
    def topic(name: str, leader: int, isr: tuple[int, ...], *, internal: bool = False) -> TopicView:
        return TopicView(name, None, internal, (PartitionView(0, leader, 0, (1, 2, 3), isr),))

    def missing(*topics: TopicView) -> str | None:
        return out_of_sync(ClusterView("c", 1, (), topics), ["t", "t-out"])

    whole = topic("t", 1, (1, 2, 3)), topic("t-out", 1, (1, 2, 3))
    assert missing(*whole, topic("of others", 1, (1,))) is None
    assert missing(whole[0], topic("t-out", 2, (2, 1))) == "t-out-0 has leader 2 and in-sync replicas [2, 1]"
    assert missing(*whole, topic("__transaction_state", -1, (1, 2, 3), internal=True)) == (
        "__transaction_state-0 has leader -1 and in-sync replicas [1, 2, 3]"
    )
    assert missing(whole[0]) == "t-out is not there"


def test_a_tracer_that_does_not_get_hold_of_a_node_is_no_fault(
    cluster: ClusterUnderTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where another one traces it, or the user may not."""
    refusing = tmp_path / "strace"
    refusing.write_text("#!/bin/sh\necho 'attach: Operation not permitted' >&2\nexit 1\n")
    refusing.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(RecordingNodes, "pid", lambda _self, _node_id: os.getpid())
    planned = FAULTS["eio"].plan(cluster)
    with pytest.raises(machine_capabilities.CommandFailed, match="attach: Operation not permitted"):
        planned.begin()
    planned.heal()


def test_a_cluster_that_goes_on_is_left_healed(tmp_path: Path, cluster: ClusterUnderTest) -> None:
    run = ChaosRun(RunOptions(str(tmp_path), bootstrap="a:1", cluster_directory="c"), lambda _: None)
    cluster.nodes = InterruptedNodes(0, before=1)
    nemesis = HistoryWriter(str(tmp_path / "nemesis.jsonl"), "nemesis")
    with pytest.raises(KeyboardInterrupt), run._left_healed():
        run._inject(cluster, FAULTS["pause-leader"], nemesis)
    assert done(cluster) == ["SIGSTOP 2", "SIGCONT 2"]


def test_all_are_killed_before_any_is_started(cluster: ClusterUnderTest) -> None:
    inflict_and_heal(cluster, "kill-all")
    assert done(cluster)[:3] == ["SIGKILL 1", "SIGKILL 2", "SIGKILL 3"]
    assert sorted(done(cluster)[3:]) == ["start 1", "start 2", "start 3"]


def test_rolling_stops_one_at_a_time(cluster: ClusterUnderTest) -> None:
    inflict_and_heal(cluster, "rolling")
    assert done(cluster) == [step for node in (1, 2, 3) for step in (f"SIGTERM {node}", f"start {node}")]


def test_the_chase_leaves_every_node_alive(cluster: ClusterUnderTest) -> None:
    inflict_and_heal(cluster, "chase")
    assert done(cluster)[:2] == ["SIGKILL 2", "start 2"]
    assert done(cluster).count("SIGKILL 2") == done(cluster).count("start 2")


def test_every_fault_says_what_it_does_and_every_need_has_a_probe() -> None:
    for name, fault in FAULTS.items():
        assert fault.name == name and fault.what
        assert machine_capabilities.unmet_needs(fault.needs) is not None
        assert set(machine_capabilities.missing_tools(fault.needs)) <= {*machine_capabilities.unmet_needs(fault.needs)}
    assert machine_capabilities.unmet_needs(()) == []


def test_tools_that_are_not_installed_are_in_the_help_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "iptables" else name)
    page = CliRunner().invoke(cli, ["chaos", "run", "--help"], terminal_width=200).output
    lines = {line.split()[0]: line for line in page.partition("Faults:")[2].splitlines() if line.strip()}
    assert lines["cut"].endswith("[not here: there is no iptables]")
    assert "not here" not in lines["kill"] + lines["eio"]


def test_what_a_machine_cannot_do_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(machine_capabilities._PROBES, "tmpfs", lambda: "needs root")
    output = CliRunner().invoke(cli, ["chaos", "faults", "--json"]).output
    rows = {row["fault"]: row["left_out"] for row in map(json.loads, output.splitlines())}
    assert list(rows) == list(FAULTS)
    assert rows["disk-full"] == ["needs root"]
    assert rows["kill"] == []


def test_faults_between_a_node_and_its_peers_are_left_out_where_there_is_one_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would set no packet filter, and count as injected."""
    monkeypatch.setattr(faults, "unmet_needs", lambda _needs: [])
    without_peers = ("cut", "cut-in", "cut-out", "loss", "reset")
    for nodes, left_out in ((1, dict.fromkeys(without_peers, "the only node has no peers")), (2, {})):
        run = ChaosRun(RunOptions(str(tmp_path), nodes=nodes, faults=tuple(FAULTS)), lambda _: None)
        assert [one.name for one in run._choose()] == [name for name in FAULTS if name not in left_out]
        assert run.left_out == left_out
    with pytest.raises(ClientError, match=r"none of the faults .* cut \(the only node has no peers\)"):
        ChaosRun(RunOptions(str(tmp_path), nodes=1, faults=("cut",)), lambda _: None)._choose()


def test_a_tool_that_refuses_is_quoted() -> None:
    with pytest.raises(machine_capabilities.CommandFailed, match="no-such-tool"):
        machine_capabilities.run_tool(["no-such-tool"])
    with pytest.raises(machine_capabilities.CommandFailed, match="exit code 1"):
        machine_capabilities.run_tool(["false"])


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"faults": ("kil",)}, "no fault 'kil'. Did you mean kill"),
        ({"bootstrap": "a:1", "faults": ("cut", "eio"), "pid_files": "x%d"}, "^cut: such .*starts itself; .*, eio$"),
        ({"bootstrap": "a:1", "faults": ("kill",)}, "--dir for a local one, or --pid-files"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        RunOptions("d", **options)


def test_adopted_nodes_are_killed_paused_and_started_as_they_were(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import os, time; open(os.environ['SAYS'], 'a').write('up '); time.sleep(60)"]
    says = tmp_path / "says"
    process = subprocess.Popen(command, env={**os.environ, "SAYS": str(says)}, cwd=tmp_path)
    (tmp_path / "n1.pid").write_text(f"{process.pid}\n")
    wait_until(says.exists)
    nodes = AdoptedNodes(str(tmp_path / "n%d.pid"), [1])
    nodes.signal(1, signal.SIGSTOP)
    wait_until(lambda: state_of(process.pid) == "T")
    nodes.signal(1, signal.SIGCONT)
    wait_until(lambda: state_of(process.pid) != "T")
    nodes.signal(1, signal.SIGKILL)
    assert not nodes.alive(1)
    process.wait()
    nodes.start(1)
    try:
        wait_until(lambda: says.read_text() == "up up ")
        assert nodes.alive(1) and int((tmp_path / "n1.pid").read_text()) == nodes.pid(1) != process.pid
    finally:
        nodes.signal(1, signal.SIGTERM)
    assert not nodes.alive(1)


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def wait_until(condition: Callable[[], bool], limit_s: float = 10.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_plan_moves_to_the_addresses_of_the_network(tmp_path: Path) -> None:
    plan = plan_cluster(str(tmp_path), ClusterShape(brokers=2, port=21000))
    setup = NetworkNamespaces([1, 2])
    moved = setup.placed(plan)
    one, two = setup.address(1), setup.address(2)
    assert moved.bootstrap == f"{one}:21000,{two}:21001"
    assert [voter.rpartition(":")[0] for voter in str(moved.first_voters).split(",")] == [
        f"1@{one}:22001",
        f"2@{two}:22002",
    ]
    for node, own in zip(moved.nodes, (one, two)):
        assert node.properties["controller.quorum.bootstrap.servers"] == f"{one}:22001,{two}:22002"
        assert own in node.properties["listeners"] and "127.0.0.1" not in str(dict(node.properties))


def test_a_full_disk_has_no_room_and_then_has_again(tmp_path: Path) -> None:
    reasons = machine_capabilities.unmet_needs(["tmpfs"])
    if reasons:
        pytest.skip(f"no small file systems here ({reasons[0]}): NOT tested")
    plan = plan_cluster(str(tmp_path), ClusterShape(brokers=1, port=21000))
    setup = NodeFilesystems(plan, ext4=False, size_mb=2)
    try:
        setup.open()
        file = Path(plan.nodes[0].data_dir) / "x"
        setup.fill(1)
        with pytest.raises(OSError, match="No space"):
            file.write_bytes(b"x" * 10000)
        setup.make_room(1)
        file.write_bytes(b"x" * 10000)
    finally:
        setup.close()
    assert not os.path.ismount(plan.nodes[0].data_dir)


def test_what_was_not_synced_is_gone_after_a_power_cut(tmp_path: Path) -> None:
    reasons = machine_capabilities.unmet_needs(["loop-device"])
    if reasons:
        pytest.skip(f"no loop devices here ({reasons[0]}): NOT tested")
    plan = plan_cluster(str(tmp_path), ClusterShape(brokers=1, port=21000))
    setup = NodeFilesystems(plan, ext4=True, size_mb=8)
    try:
        setup.open()
        synced, unsynced = (Path(plan.nodes[0].data_dir) / name for name in ("synced", "unsynced"))
        synced.write_bytes(b"kept")
        with synced.open("rb+") as file:
            os.fsync(file.fileno())
        unsynced.write_bytes(b"forgotten")
        setup.cut_power(1)
        with pytest.raises(OSError):
            unsynced.write_bytes(b"more")
        setup.unmount(1)
        setup.mount(1)
        assert synced.read_bytes() == b"kept"
        assert not unsynced.exists() or unsynced.read_bytes() != b"forgotten"
    finally:
        setup.close()


@pytest.mark.process
def test_a_short_run_kills_heals_and_is_valid(tmp_path: Path) -> None:
    where = tmp_path / "run"
    options = ["--minutes", "0.1", "--hold", "1", "--interval", "1", "--rate", "100", "--consumers", "1"]
    options.append("--no-transactions")
    result = CliRunner().invoke(cli, ["chaos", "run", "--nemesis", "kill", "-o", str(where), *options])
    assert result.exit_code == 0, result.output
    verdict = json.loads((where / "verdict.json").read_text())
    assert verdict["verdict"] == "VALID" and verdict["inflicted"]["kill"] >= 1 and verdict["errors"] == []
    assert verdict["totals"]["acked"] == verdict["totals"]["sends"] > 300
    assert "VALID" in (where / "report.html").read_text()
    again = CliRunner().invoke(cli, ["chaos", "check", str(where)])
    assert again.exit_code == 0 and again.output.endswith("VALID\n")
    assert CliRunner().invoke(cli, ["chaos", "report", str(where)]).exit_code == 0


@pytest.mark.long
@pytest.mark.process
def test_a_run_on_a_local_cluster_leaves_it_running(tmp_path: Path) -> None:
    where, cluster = tmp_path / "run", str(tmp_path / "cluster")
    options = ["--minutes", "0.1", "--hold", "1", "--interval", "1", "--rate", "100", "--consumers", "1"]
    options.append("--no-transactions")
    run = CliRunner().invoke
    assert run(cli, ["up", "-n", "3", "--port", "0", "--detach", "-d", cluster]).exit_code == 0
    try:
        result = run(cli, ["chaos", "run", "--nemesis", "kill", "-d", cluster, "-o", str(where), *options])
        assert result.exit_code == 0, result.output
        verdict = json.loads((where / "verdict.json").read_text())
        assert verdict["verdict"] == "VALID" and verdict["inflicted"]["kill"] >= 1
        assert not (where / "nodes").exists()
        assert run(cli, ["topics", "list", "--exclude-internal", "-d", cluster]).stdout == ""
        rows = [json.loads(line) for line in run(cli, ["status", "-d", cluster, "--json"]).output.splitlines()]
        assert [row["state"] for row in rows] == ["up"] * 3
    finally:
        assert "Stopped 3 nodes" in run(cli, ["down", "-d", cluster]).output


@pytest.mark.long
@pytest.mark.process
def test_a_run_with_transactions_leaves_neither_topics_nor_groups(tmp_path: Path) -> None:
    where, cluster = tmp_path / "run", str(tmp_path / "cluster")
    options = ["--minutes", "0.05", "--nemesis", "none", "--rate", "10", "-p", "1"]
    run = CliRunner().invoke
    assert run(cli, ["up", "-n", "1", "--port", "0", "--detach", "-d", cluster]).exit_code == 0
    try:
        result = run(cli, ["chaos", "run", "-d", cluster, "-o", str(where), *options])
        assert result.exit_code == 0, result.output
        group = TransactionalTopics.of(json.loads((where / "verdict.json").read_text())["run"]["topic"]).group
        assert f'"group":"{group}"' in (where / "history" / "end-state-0.jsonl").read_text()
        assert run(cli, ["topics", "list", "--exclude-internal", "-d", cluster]).stdout == ""
        assert run(cli, ["groups", "list", "-d", cluster, "--json"]).stdout == ""
    finally:
        run(cli, ["down", "-d", cluster])


def test_a_cut_node_is_cut_and_heals(tmp_path: Path) -> None:
    reasons = machine_capabilities.unmet_needs(["network", "iptables"])
    if reasons:
        pytest.skip(f"no network namespaces here ({reasons[0]}): NOT tested")
    setup = NetworkNamespaces([1, 2])
    try:
        setup.open()
        with served(setup, 2) as port:
            assert reaches(setup, 1, setup.address(2), port)
            assert reaches(None, 1, setup.address(2), port)
            setup.inside(2, "iptables", "-A", "INPUT", "-s", setup.address(1), "-j", "DROP")
            assert not reaches(setup, 1, setup.address(2), port)
            assert reaches(None, 1, setup.address(2), port)
            setup.heal(2)
            assert reaches(setup, 1, setup.address(2), port)
    finally:
        setup.close()


LISTEN = """
import socket, sys
with socket.create_server((sys.argv[1], 0)) as server:
    print(server.getsockname()[1], flush=True)
    while True:
        server.accept()[0].close()
"""


@contextmanager
def served(setup: NetworkNamespaces, node_id: int) -> Iterator[str]:
    command = [*setup.prefixes()[node_id], sys.executable, "-c", LISTEN, setup.address(node_id)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield server.stdout.readline().strip()
        finally:
            server.kill()


def reaches(setup: NetworkNamespaces | None, node_id: int, address: str, port: str) -> bool:
    script = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=0.7)"
    prefix = setup.prefixes()[node_id] if setup is not None else []
    done = subprocess.run(
        [*prefix, sys.executable, "-c", script, address, port], stderr=subprocess.DEVNULL, check=False
    )
    return done.returncode == 0


def test_a_load_process_that_dies_at_once_is_reported_with_its_last_log_line(tmp_path: Path) -> None:
    run = ChaosRun(RunOptions(str(tmp_path)), lambda _: None)
    (tmp_path / "producer-0.log").write_text("Traceback ...\nImportError: no such thing\n")
    with subprocess.Popen(["false"]) as process:
        process.wait()
        with pytest.raises(ClientError, match="exit code 1: ImportError: no such thing"):
            run._check_load([("producer-0", process)])


@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit])
def test_a_final_read_that_a_signal_ends_leaves_no_half_history(
    chaos_run: ChaosRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: type[BaseException]
) -> None:
    """The handlers of SIGTERM and SIGHUP raise SystemExit."""
    half = tmp_path / "final-0.jsonl"

    class Reading:
        def wait(self, _limit_s: float) -> int:
            half.write_text("{}\n")
            raise end

    @contextmanager
    def started(_module: str, task: Task) -> Iterator[tuple[str, Reading]]:
        yield task.process, Reading()

    monkeypatch.setattr(chaos_run, "_process", started)
    with pytest.raises(end):
        chaos_run._finish("consumer", Task("final", 0, "", "t", 1, str(half)))
    assert not half.exists()


def test_a_node_that_is_down_is_not_in_sync_and_its_last_log_line_is_reported(
    tmp_path: Path, cluster: ClusterUnderTest
) -> None:
    assert isinstance(cluster.nodes, RecordingNodes)
    cluster.nodes.dead.append(2)
    run = ChaosRun(RunOptions(str(tmp_path)), lambda _: None)
    assert run._not_in_sync(cluster) == "node 2 is down: "
