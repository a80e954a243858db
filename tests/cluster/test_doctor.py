"""The findings of `raftwerk doctor` and their remedies."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest
from click.testing import CliRunner
from support.e2e.command import raftwerk
from support.ports import free_port
from support.security.certificates import Authority

from raftwerk.cli.main import cli
from raftwerk.cluster.client.cluster_client import BrokerView, ClusterClient, ClusterView, PartitionView, TopicView
from raftwerk.cluster.client.peer_protocol import REFUSES, WAYS_OUT
from raftwerk.cluster.client.transactions.transaction_client import OpenTransaction, TransactionView
from raftwerk.cluster.doctor import cluster_checks, node_checks, transaction_checks
from raftwerk.cluster.doctor.cluster_checks import LeaderlessPartition, examine_cluster
from raftwerk.cluster.doctor.findings import FAILURE, OK, WARNING, Finding
from raftwerk.cluster.doctor.node_checks import examine_config, examine_local_logs
from raftwerk.cluster.doctor.silent_nodes import BrokerTroubles
from raftwerk.cluster.local.layout import ClusterShape, load_plan, plan_cluster, write_properties
from raftwerk.cluster.local.supervisor import LocalNodeError
from raftwerk.cluster.node.formatting import cluster_id_of
from raftwerk.cluster.settings.listener_checks import certificate_end, certificate_problem
from raftwerk.cluster.settings.node_config import load_config
from raftwerk.cluster.settings.settings_per_package import log_manager_config
from raftwerk.log.errors import LogDirError
from raftwerk.log.manager.log_manager import LogManager
from raftwerk.log.manager.meta_properties import MetaProperties
from raftwerk.runtime.loop import real_runtime
from raftwerk.testkit.process_cluster import TestCluster
from raftwerk.wire.types import TopicPartition


def view(*partitions: PartitionView) -> ClusterView:
    brokers = tuple(BrokerView(node_id, "localhost", 9090 + node_id, None) for node_id in (1, 2, 3))
    return ClusterView("c", 1, brokers, (TopicView("t", None, False, partitions),))


def partition(isr: tuple[int, ...], *, leader: int = 1, number: int = 0) -> PartitionView:
    return PartitionView(number, leader, 0, (1, 2, 3), isr)


def test_a_stranger_at_the_port_of_a_broker_is_told_as_that() -> None:
    stranger = cluster_checks.Reached("speaks HTTP instead of Kafka's protocol", way_out=WAYS_OUT["HTTP"])
    (found,) = cluster_checks._advertised({(1, ("localhost", 9092)): stranger}, "")
    assert found.what == "broker 1 advertises itself as localhost:9092: speaks HTTP instead of Kafka's protocol"
    assert found.way_out.startswith("another program has the port: stop it, or give the broker another port")


def test_partitions_in_order_are_one_good_finding() -> None:
    (found,) = cluster_checks._partitions(view(partition((1, 2, 3))))
    assert (found.level, found.what) == (OK, "all replicas of 1 partition are in sync")


def test_missing_replicas_and_leaders_are_named() -> None:
    found = list(cluster_checks._partitions(view(partition((1, 2)), partition((3,), leader=-1, number=1))))
    assert [(one.level, one.what) for one in found] == [
        (WARNING, "1 partition without all replicas in sync: t-0 (without 3)"),
    ]
    many = [partition((1,), number=number) for number in range(8)]
    (found_many,) = cluster_checks._partitions(view(*many))
    assert found_many.what.endswith("; and 3 more")


def test_full_disks_and_silent_brokers_that_keep_replicas_from_being_in_sync_are_what_is_to_be_remedied() -> None:
    behind = view(partition((1,)))
    silent = BrokerTroubles({3: "refuses the connection"}, "start broker 3", frozenset({2}))
    full = "free space on the disk of broker 2, as is said of it above, and its replicas catch up by themselves"
    told = [*cluster_checks._partitions(behind, silent), *cluster_checks._min_isr(behind, {"t": 2}, silent)]
    assert [one.way_out for one in told] == [f"start broker 3; {full}"] * 2
    both = BrokerTroubles(full=frozenset({2, 3}))
    (found,) = cluster_checks._min_isr(behind, {"t": 2}, both)
    assert found.way_out.startswith("free space on the disks of brokers 2, 3, as is said of them above, and their")
    (found,) = cluster_checks._min_isr(behind, {"t": 2}, BrokerTroubles(full=frozenset({2})))
    assert found.way_out == "bring brokers back: raftwerk status", "nothing is known of broker 3"


def test_replicas_that_a_reassignment_adds_are_not_missing() -> None:
    moving = replace(partition((1, 3)), replicas=(1, 2, 3, 4), adding=(2, 4))
    (found,) = cluster_checks._partitions(view(moving))
    assert found.level == OK
    assert (
        found.what == "all replicas of 1 partition are in sync, but those that reassignments are adding to 1 partition"
    )
    (found,) = cluster_checks._partitions(view(replace(moving, isr=(1,))))
    assert found.level == WARNING and found.what.endswith("t-0 (without 3)")


def test_who_may_lead_a_partition_without_a_leader_is_said() -> None:
    def told(*partitions: LeaderlessPartition) -> list[tuple[str, str]]:
        found = list(cluster_checks._leaderless(partitions, {1, 2, 3}))
        assert all(one.level == FAILURE for one in found)
        return [(one.what, one.way_out) for one in found]

    ((what, way_out),) = told(LeaderlessPartition("t-0", (4, 5, 1), (4, 5), (), (4, 5)))
    assert what == "1 partition without a leader: t-0 (eligible to lead: 4, 5)"
    assert way_out.startswith("start broker 4 or 5: an eligible replica has all acked records; if the eligible")
    assert "as the last resort, raftwerk partitions elect --unclean t-0 makes" in way_out
    ((_, way_out),) = told(LeaderlessPartition("t-0", (2,), (2,), (), (2,)))
    assert way_out.startswith("broker 2 runs without the log directory of its replica: start it with that directory;")
    assert "no other broker has a replica of t-0: if its broker is gone for good, so are the records" in way_out
    assert "--unclean" not in way_out
    ((what, way_out),) = told(LeaderlessPartition("t-0", (2,), (), (), ()))
    assert "without a replica that may lead: t-0 (replicas: 2; led last by: none)" in what
    assert "start the broker with it first; then as the last resort" in way_out
    assert told() == []


@pytest.mark.process
def test_whether_transactions_hang_is_seen_without_a_fenced_broker() -> None:
    """A broker that leads nothing has nothing to tell, as for `raftwerk transactions find-hanging`."""
    with TestCluster.start(3) as cluster:
        topic = cluster.create_topic(replicas=3)
        dead = next(one for one in (1, 2, 3) if one != cluster.controller())
        cluster.kill(dead)
        while any(one.leader in (dead, -1) for one in cluster.describe().topic(topic).partitions):
            time.sleep(0.05)  # the test's limit of time ends it
        told = [one.what for one in asyncio.run(examine_cluster(cluster.bootstrap_servers))]
        assert any(what.startswith(f"broker {dead} advertises itself as") for what in told)
        assert "no transaction hangs" in told
        assert "No transaction hangs." in raftwerk("transactions", "find-hanging", "-d", cluster.plan.directory).stderr


@pytest.mark.process
def test_a_broker_that_has_just_died_is_to_be_started() -> None:
    """Metadata still names it for some seconds."""
    with TestCluster.start(3) as cluster:
        cluster.create_topic("t", partitions=3, replicas=1)
        cluster.kill(2)
        deadline = time.monotonic() + 30
        while all(one.leader >= 0 for one in cluster.describe().topic("t").partitions):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        found = asyncio.run(examine_cluster(cluster.bootstrap_servers))
    (one,) = [one for one in found if "without a leader" in one.what and one.level == FAILURE]
    assert one.way_out.startswith("start broker 2: an eligible replica has all acked records")


@pytest.mark.process
def test_the_eligible_leaders_are_asked_of_the_cluster() -> None:
    async def examine(bootstrap: str) -> list[Finding]:
        async with ClusterClient(bootstrap) as client:
            view = await client.metadata()
            live = {one.node_id for one in view.brokers}
            return list(cluster_checks._leaderless(await cluster_checks._leaderless_partitions(client, view), live))

    with TestCluster.start(2, separate=True) as cluster:
        cluster.create_topic("t", partitions=2, replicas=1)
        assert asyncio.run(examine(cluster.bootstrap_servers)) == []
        cluster.stop_node(2)
        deadline = time.monotonic() + 30
        while all(one.leader >= 0 for one in cluster.describe().topic("t").partitions):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        (found,) = asyncio.run(examine(cluster.bootstrap_servers))
    assert found.what.endswith("(eligible to lead: 2)") and "start broker 2:" in found.way_out


def open_for(state: str, seconds: int) -> Finding:
    partition = TopicPartition("t", 0)
    view = TransactionView("transfers-1", state, 2, 17, 3, 900_000, 1_000_000, (partition,))
    part = OpenTransaction(partition, 17, 3, 0, 41, 1_000_500)
    return transaction_checks.long_transaction(view, [part], 1_000_000 + seconds * 1000)


def test_a_long_transaction_is_told_with_its_end() -> None:
    found = open_for("Ongoing", 185)
    assert found.level == WARNING
    assert found.what == (
        "the last stable offset stands still since 1970-01-01 00:16:40 UTC, for 3 min 5 s, in t-0 from offset 41 on: "
        "transactional id transfers-1 (producer 17) has a transaction open, and read_committed consumers wait there"
    )
    assert found.way_out == (
        "let its application commit or abort; raftwerk transactions terminate transfers-1 aborts it now and fences its "
        "producer; the coordinator aborts it in 11 min 55 s or soon after: its time-out is 15 min"
    )
    assert "aborts it in a moment" in open_for("Ongoing", 901).way_out
    decided = open_for("PrepareCommit", 61)
    assert "is decided (PrepareCommit), and its markers are not written" in decided.what
    assert "for 1 min 1 s" in decided.what


def test_min_isr_above_the_replication_factor() -> None:
    healthy = view(partition((1, 2, 3)))
    assert [one.level for one in cluster_checks._min_isr(healthy, {"t": 2})] == []
    (tight,) = cluster_checks._min_isr(healthy, {"t": 3})
    assert (tight.level, tight.way_out) == (WARNING, "set it to 2")
    (impossible,) = cluster_checks._min_isr(healthy, {"t": 4})
    assert impossible.what == "t: min.insync.replicas=4 is more than its 3 replicas"
    (refused,) = cluster_checks._min_isr(view(partition((1,))), {"t": 2})
    assert refused.level == FAILURE and "acks=all is refused" in refused.what


def test_slow_validation_is_found() -> None:
    assert node_checks._record_scan(True).level == OK
    slow = node_checks._record_scan(False)
    assert slow.level == WARNING and "in Python" in slow.what and "C compiler" in str(slow.way_out)


def test_a_wrong_clock_is_found() -> None:
    asked, answered = 1_000_000, 1_000_200
    assert cluster_checks._clock(1, 1_000_100, asked, answered).level == OK
    assert cluster_checks._clock(1, 1_004_000, asked, answered).level == OK
    ahead = cluster_checks._clock(1, 1_300_200, asked, answered)
    assert (ahead.level, ahead.what) == (WARNING, "the clock of node 1 is 300 s ahead of this machine's")
    behind = cluster_checks._clock(2, 910_000, asked, answered)
    assert "90 s behind" in behind.what and "NTP" in behind.way_out


@pytest.mark.parametrize(
    ("host", "is_exposed"), [("127.0.0.1", False), ("[::1]", False), ("localhost", False), ("", True), ("h.de", True)]
)
def test_a_controller_listener_that_is_open_to_other_machines(tmp_path: Path, host: str, is_exposed: bool) -> None:
    (node,) = plan_cluster(str(tmp_path), ClusterShape(1, port=0)).nodes
    properties = {**node.properties, "listeners": f"PLAINTEXT://127.0.0.1:{node.port},CONTROLLER://{host}:9"}
    file = tmp_path / "server.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    found = [one for one in examine_config(str(file)) if "not secured" in one.what]
    assert [one.level for one in found] == [WARNING] * is_exposed


@pytest.mark.process
def test_a_controller_that_answers_on_another_address_than_loopback() -> None:
    with TestCluster.start(1) as cluster:
        node = cluster.plan.nodes[0]
        found = asyncio.run(examine_cluster(f"127.0.0.1:{node.port}"))
    assert not [one for one in found if "not secured" in one.what]
    host = own_address()
    at = f"{host}:{node.controller_port}"
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:{node.port},CONTROLLER://{at}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{node.port},CONTROLLER://{at}",
        "controller.quorum.voters": f"1@{at}",
    }
    with TestCluster.start(1, settings=settings):
        found = asyncio.run(examine_cluster(f"127.0.0.1:{node.port}"))
    (open_one,) = [one for one in found if "not secured" in one.what]
    assert open_one.level == WARNING and f"the listener {at} of controller 1 answers here" in open_one.what


def own_address() -> str:
    """An address of this machine that is not a loopback address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no network")
        return str(probe.getsockname()[0])


def test_mixed_versions_are_found() -> None:
    new, old = frozenset({(0, 0, 13), (1, 0, 18)}), frozenset({(0, 0, 12), (1, 0, 18)})
    (same,) = cluster_checks._versions({1: new, 2: new})
    assert same.level == OK
    (mixed,) = cluster_checks._versions({1: new, 2: old, 3: new})
    assert mixed.level == WARNING and mixed.what.startswith("brokers 2 serve other versions")


@pytest.mark.process
def test_an_advertised_address_that_clients_cannot_reach() -> None:
    port = free_port()
    with TestCluster.start(1, settings={"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}) as cluster:
        listens = f"127.0.0.1:{cluster.plan.nodes[0].port}"
        asked = examine_cluster(f"{listens},127.0.0.1:{port}", silence_way_out="a majority must run")
        found = {one.what: one for one in asyncio.run(asked)}
        elsewhere = examine_cluster(f"{listens},localhost:{port}", silence_way_out="a majority must run")
        told = [one.way_out for one in asyncio.run(elsewhere)]
    assert "a majority must run" not in told, "a broker answers, so the quorum has a leader"
    assert found[f"bootstrap address {listens}: reached"].level == OK
    bad = found[f"broker 1 advertises itself as 127.0.0.1:{port}: nothing listens there, as seen from this machine"]
    assert bad.level == FAILURE and "advertised.listeners" in bad.way_out
    assert found["node 1 is the active controller"].level == OK
    assert found["the clock of node 1 agrees with this machine's"].level == OK


def test_addresses_of_which_the_same_is_found_have_one_line() -> None:
    with socket.socket() as one, socket.socket() as other:
        for taken in (one, other):
            taken.bind(("127.0.0.1", 0))
        closed = [f"127.0.0.1:{taken.getsockname()[1]}" for taken in (one, other)]
        found = [finding.what for finding in asyncio.run(examine_cluster(",".join(closed)))]
    assert found[0].startswith(f"each of the bootstrap addresses {', '.join(closed)}: nothing listens there")
    assert sum("nothing listens there" in what for what in found) == 1


def test_few_descriptors(tmp_path: Path) -> None:
    command = f"ulimit -n 512; exec {sys.executable} -m raftwerk doctor -c {tmp_path}/none"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert "warn  a process may open 512 files" in done.stdout and "ulimit -n" in done.stdout


def test_a_full_disk_and_a_newer_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_cluster(str(tmp_path), ClusterShape(1, port=0))
    write_properties(plan)
    with open(plan.nodes[0].properties_file, "a", encoding="utf-8") as file:
        file.write("log.dirs.reserve.bytes=100000000\n")
    full = "the disk is full: 90.0 MiB free, and log.dirs.reserve.bytes keeps 95.4 MiB; no records are taken"
    for free, told in ((90 << 20, full), (150 << 20, "only 150.0 MiB free; if"), (10**9, "only 953.7 MiB free")):
        usage = shutil._ntuple_diskusage(10**10, 10**10 - free, free)
        monkeypatch.setattr(shutil, "disk_usage", lambda _, usage=usage: usage)
        assert any(told in one.what and one.way_out for one in examine_config(plan.nodes[0].properties_file))
    monkeypatch.undo()
    (tmp_path / "node-1").mkdir()
    (tmp_path / "node-1" / "meta.properties").write_text("cluster.id=4L6g3nShT-eMCtK--X86sw\nnode.id=1\nversion=9\n")
    found = [one for one in examine_config(plan.nodes[0].properties_file) if one.level == FAILURE]
    assert [one.what.partition(" (")[0].rpartition("was")[2] for one in found] == [" formatted by another version"]


def test_a_new_directory_beside_a_formatted_one_gets_the_advice_that_the_node_gives(tmp_path: Path) -> None:
    plan = plan_cluster(str(tmp_path), ClusterShape(1, port=0))
    write_properties(plan)
    file = Path(plan.nodes[0].properties_file)
    file.write_text(file.read_text().replace(plan.nodes[0].data_dir, f"{tmp_path}/a,{tmp_path}/b"))
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "meta.properties").write_bytes(meta(1).encode())
    (told,) = [one.way_out for one in examine_config(str(file)) if one.what == f"{tmp_path}/b is not formatted"]
    command = f"raftwerk format -t 4L6g3nShT-eMCtK--X86sw -c {file} --ignore-formatted"
    assert told == f"run `{command}` first"
    done = CliRunner().invoke(cli, command.split()[1:])
    assert done.output.startswith(f"Formatted {tmp_path}/b for node 1 of cluster 4L6g3nShT-eMCtK--X86sw."), done.output


def meta(node_id: int, cluster_id: str = "4L6g3nShT-eMCtK--X86sw", directory: int = 1) -> MetaProperties:
    return MetaProperties(cluster_id, node_id, UUID(int=directory << 64))


@pytest.mark.parametrize(
    ("second", "what", "way_out"),
    [
        (
            meta(1, "MkU3OEVBNTcwNTJENDM2Qg", directory=2),
            "Log directory {one} belongs to cluster 4L6g3nShT-eMCtK--X86sw, log directory {two} to cluster "
            "MkU3OEVBNTcwNTJENDM2Qg",
            "take the one that is not this node's out of log.dirs, or empty it, which deletes its data, and format it "
            "again",
        ),
        (meta(1), "Log directories {one} and {two} have the same directory.id AAAAAAAAAAEAAAAAAAAAAA", "is a copy"),
        (meta(7, directory=2), "Log directory {two} belongs to node 7, this is node 1", "correct node.id"),
        (None, "{two}/meta.properties does not parse (version is missing)", "restore it"),
    ],
    ids=["of two clusters", "copies", "of two nodes", "without a version"],
)
def test_directories_that_the_node_would_refuse_are_told(
    tmp_path: Path, second: MetaProperties | None, what: str, way_out: str
) -> None:
    plan = plan_cluster(str(tmp_path), ClusterShape(1, port=0))
    write_properties(plan)
    file = Path(plan.nodes[0].properties_file)
    file.write_text(file.read_text().replace(plan.nodes[0].data_dir, f"{tmp_path}/a,{tmp_path}/b"))
    for name, content in (("a", meta(1)), ("b", second)):
        (tmp_path / name).mkdir()
        written = b"node.id=1\n" if content is None else content.encode()
        (tmp_path / name / "meta.properties").write_bytes(written)
    (found,) = [one for one in examine_config(str(file)) if one.level == FAILURE]
    assert found.what == what.format(one=tmp_path / "a", two=tmp_path / "b")
    assert way_out in found.way_out
    config = load_config(file.read_text())
    with pytest.raises(LogDirError) as refused:  # the node says the same at its start
        runtime = real_runtime()
        cluster_id = cluster_id_of(config, runtime)
        LogManager(runtime, log_manager_config(config, cluster_id, lambda *_: None)).acquire()
    assert str(refused.value) == f"{found.what}: {found.way_out}."


def test_a_configuration_for_data_of_an_unknown_owner(tmp_path: Path) -> None:
    plan = plan_cluster(str(tmp_path), ClusterShape(1, port=0))
    write_properties(plan)
    (tmp_path / "node-1" / "t-0").mkdir(parents=True)
    (tmp_path / "node-1" / "t-0" / "00000000000000000000.log").touch()
    (found,) = [one for one in examine_config(plan.nodes[0].properties_file) if "meta.properties" in one.what]
    assert found.level == FAILURE and "holds data (t-0) and no meta.properties" in found.what
    assert "restore that file" in found.way_out and "empty the directory" in found.way_out
    assert "raftwerk format" not in found.way_out


def test_damaged_logs_are_named(tmp_path: Path) -> None:
    plan = plan_cluster(str(tmp_path), ClusterShape(1, port=0))
    write_properties(plan)
    (tmp_path / "node-1").mkdir()
    file = tmp_path / "node-1" / "damaged-offset-checkpoint"
    for content, damaged in (("0\n0\n", []), ("rot", []), ("0\n1\nt 3 17\n", ["t-3 from offset 17 on"])):
        file.write_text(content)
        found = [one for one in examine_config(plan.nodes[0].properties_file) if "damaged on the disk" in one.what]
        assert [(one.level, one.what.rpartition(": ")[2]) for one in found] == [(FAILURE, text) for text in damaged]


def test_damaged_logs_of_a_local_cluster_are_named(tmp_path: Path) -> None:
    plan = plan_cluster(str(tmp_path), ClusterShape(2, port=0))
    write_properties(plan)
    for number in (1, 2):
        (tmp_path / f"node-{number}").mkdir()
        meta = f"cluster.id=4L6g3nShT-eMCtK--X86sw\nnode.id={number}\nversion=1\n"
        (tmp_path / f"node-{number}" / "meta.properties").write_text(meta)
    assert examine_local_logs(str(tmp_path)) == []
    for number, content in ((1, "t 3 17\n"), (2, "__cluster_metadata 0 40\n")):
        (tmp_path / f"node-{number}" / "damaged-offset-checkpoint").write_text(f"0\n1\n{content}")
    logs, metadata = examine_local_logs(str(tmp_path), " --name x")
    assert logs.what.endswith("1 log damaged on the disk: t-3 from offset 17 on (no other replica is sound)")
    assert logs.what.startswith(f"node 1, {tmp_path}/node-1: ")
    repair = f"raftwerk log repair {tmp_path}/node-1 --execute"
    assert f"raftwerk stop 1 --name x; {repair}; raftwerk start 1 --name x" in logs.way_out
    (tmp_path / "node-2" / "t-3").mkdir()
    logs, _ = examine_local_logs(str(tmp_path))
    assert logs.what.endswith("t-3 from offset 17 on (sound on node 2)")
    assert f"raftwerk stop 1; rm -r {tmp_path}/node-1/t-3; raftwerk start 1" in logs.way_out
    assert "log repair" not in logs.way_out
    (tmp_path / "node-2" / "damaged-offset-checkpoint").write_text("0\n1\nt 3 5\n")
    assert all("no other replica is sound" in one.what for one in examine_local_logs(str(tmp_path)))
    (tmp_path / "node-2" / "damaged-offset-checkpoint").write_text("0\n1\n__cluster_metadata 0 40\n")
    assert metadata.what.endswith("node-2: the metadata log is damaged from offset 40 on")
    assert "format it again" in metadata.way_out


def test_brokers_of_which_the_same_is_found_are_named_in_order() -> None:
    refuses = cluster_checks.Reached("nothing listens there", why=REFUSES)
    reached = {(broker, ("h", 9000 + broker)): refuses for broker in (3, 1, 2)}
    (found,) = cluster_checks._advertised(reached, None)
    assert found.what == "brokers 1, 2, 3 advertise themselves as h:9001, h:9002, h:9003: nothing listens there"


def test_a_port_where_nothing_listens() -> None:
    port = free_port()
    found = asyncio.run(examine_cluster(f"127.0.0.1:{port}"))
    assert [one.level for one in found] == [FAILURE, FAILURE]
    assert "nothing listens there" in found[0].what and found[0].way_out


def test_a_process_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_checks, "_TIMEOUT_S", 0.2)
    with socket.socket() as paused:  # its kernel accepts connections, as that of a process after SIGSTOP does
        paused.bind(("127.0.0.1", 0))
        paused.listen()
        found = asyncio.run(examine_cluster(f"127.0.0.1:{paused.getsockname()[1]}"))
    assert found[0].level == FAILURE
    assert "does not answer within 0.2 s" in found[0].what and "paused" in found[0].way_out


def test_a_name_that_does_not_resolve() -> None:
    found = asyncio.run(examine_cluster("no-such-host.invalid:9092"))
    assert found[0].level == FAILURE


@pytest.mark.process
def test_a_controller_whose_metadata_log_was_cut_is_told_before_its_start() -> None:
    """What `doctor -c` says is what the node says."""
    with TestCluster.start(1) as cluster:
        (node,) = cluster.plan.nodes
        cluster.create_topic("flights", partitions=20)
        assert FAILURE not in [one.level for one in examine_config(node.properties_file)], "while it runs"
        cluster.stop_node(1)
        assert FAILURE not in [one.level for one in examine_config(node.properties_file)]
        directory = Path(node.data_dir) / "__cluster_metadata-0"
        quorum_state = (directory / "quorum-state").read_bytes()
        (directory / "quorum-state").write_bytes(b"?")
        (found,) = [one for one in examine_config(node.properties_file) if one.level == FAILURE]
        assert "quorum-state: not a quorum-state file" in found.what
        (directory / "quorum-state").write_bytes(quorum_state)
        log = directory / f"{0:020}.log"
        log.write_bytes(log.read_bytes()[:2000])
        before = sorted(directory.iterdir())
        (found,) = [one for one in examine_config(node.properties_file) if one.level == FAILURE]
        assert f"{directory} has lost what this voter must know: the log ends at offset " in found.what
        assert "format it again" in found.way_out
        assert (sorted(directory.iterdir()), log.stat().st_size) == (before, 2000)
        with pytest.raises(LocalNodeError) as refused:
            cluster.start_node(1)
        assert found.what in str(refused.value)


def test_a_configuration_is_tried_on_this_machine(tmp_path: Path) -> None:
    plan = plan_cluster(str(tmp_path), ClusterShape(1, port=0))
    write_properties(plan)
    path = plan.nodes[0].properties_file
    found = examine_config(path)
    assert FAILURE not in [one.level for one in found]
    assert any(
        "is not formatted" in one.what and f"raftwerk format -t CLUSTER_ID -c {path}" in one.way_out for one in found
    )
    (tmp_path / "node-1").mkdir()
    (tmp_path / "node-1" / "meta.properties").write_bytes(meta(7).encode())
    assert any("belongs to node 7" in one.what for one in examine_config(path) if one.level == FAILURE)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", plan.nodes[0].port or 0))
        taken.listen()
        assert any("cannot be listened on" in one.what for one in examine_config(path))
    assert examine_config(str(tmp_path / "none"))[0].level == FAILURE
    settings = Path(path).read_text().replace("PLAINTEXT://127.0.0.1", "PLAINTEXT://203.0.113.1")
    Path(path).write_bytes(b"# f\xfcr Tests, in Latin-1\n" + settings.encode())
    wrong = [one for one in examine_config(path) if "203.0.113.1" in one.what and one.level == FAILURE]
    assert [one.way_out for one in wrong] == ["name an address of this machine"]
    Path(path).write_bytes(b"\x7fELF\0")
    assert "it is not a text file" in examine_config(path)[0].what


SECURED = """
node.id=1
process.roles=broker,controller
listeners=EXTERNAL://localhost:0,CONTROLLER://localhost:0
controller.listener.names=CONTROLLER
listener.security.protocol.map=EXTERNAL:SASL_SSL,CONTROLLER:PLAINTEXT
inter.broker.listener.name=EXTERNAL
controller.quorum.voters=1@localhost:19093
sasl.enabled.mechanisms=PLAIN
sasl.mechanism.inter.broker.protocol=PLAIN
listener.name.external.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\
  username="admin" password="a" user_admin="a";
ssl.keystore.type=PEM
ssl.truststore.type=PEM
"""


def test_key_stores_certificates_and_the_port_for_metrics_are_tried(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "tls")
    store = authority.issue("broker", "localhost")
    file = tmp_path / "server.properties"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        text = f"{SECURED}log.dirs={tmp_path}\nmetrics.port={port}\nmetrics.host=127.0.0.1\n"
        text += f"ssl.truststore.location={authority.file}\n"
        file.write_text(f"{text}ssl.keystore.location={store}\n")
        found = examine_config(str(file))
        assert any(one.what.startswith("the port for metrics cannot be listened on") for one in found)
        assert not [one for one in found if one.level == FAILURE]
        file.write_text(f"{text}ssl.keystore.location={tmp_path}/none.pem\n")
        (failed,) = [one for one in examine_config(str(file)) if one.level == FAILURE]
    assert failed.what.endswith(f"cannot read {tmp_path}/none.pem: no such file or directory")
    assert failed.what.count("none.pem") == 1


def test_a_certificate_that_ends_is_told() -> None:
    now = datetime.fromtimestamp(0, UTC)
    assert certificate_problem("EXTERNAL", now - timedelta(days=2), now).reason == (
        "the certificate of listener EXTERNAL expired on 1969-12-30, and peers refuse it"
    )
    assert certificate_problem("EXTERNAL", now + timedelta(days=3), now).reason.endswith("EXTERNAL expires in 3 days")


def test_the_end_of_a_chain_is_that_of_its_first_certificate_to_end(tmp_path: Path) -> None:
    from cryptography import x509

    authority = Authority(tmp_path)
    chain = authority.issue("broker", "localhost").read_bytes() + authority.file.read_bytes()
    ends = [one.not_valid_after_utc for one in x509.load_pem_x509_certificates(chain)]
    assert certificate_end(chain) == min(ends)


def test_a_cluster_is_found_again_from_its_files(tmp_path: Path) -> None:
    plan = plan_cluster(str(tmp_path), ClusterShape(2, port=21992, separate=True))
    write_properties(plan)
    (tmp_path / "node-1").mkdir()
    (tmp_path / "node-1" / "meta.properties").write_text(f"cluster.id={plan.cluster_id}\nnode.id=1\nversion=1\n")
    found = load_plan(str(tmp_path))
    assert (found.cluster_id, found.bootstrap) == (plan.cluster_id, plan.bootstrap)
    assert [(one.node_id, one.port, one.controller_port) for one in found.nodes] == [
        (one.node_id, one.port, one.controller_port) for one in plan.nodes
    ]


@pytest.mark.parametrize(
    ("directory", "told"),
    [
        ("file", "cannot be a log directory: {tmp}/file is a file"),
        ("file/below", "cannot be a log directory: {tmp}/file is a file"),
        ("/proc/nope", "cannot be a log directory: the file system at /proc keeps no files"),
    ],
)
def test_what_cannot_be_a_log_directory_is_told_so(tmp_path: Path, directory: str, told: str) -> None:
    (tmp_path / "file").touch()
    plan = plan_cluster(str(tmp_path), ClusterShape(1, port=0))
    write_properties(plan)
    path = str(tmp_path / directory)
    file = Path(plan.nodes[0].properties_file)
    file.write_text(file.read_text().replace(plan.nodes[0].data_dir, path))
    (found,) = [one for one in examine_config(str(file)) if path in one.what]
    assert (found.level, found.what) == (FAILURE, f"{path} {told.format(tmp=tmp_path)}")
    assert "another directory" in found.way_out
