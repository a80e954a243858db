"""A quorum that has lost its majority since log directories were lost: told by the files of a local cluster."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from uuid import UUID

import pytest
from support.e2e.command import fails, ok, raftwerk

from raftwerk.cluster.local.layout import (
    ClusterPlan,
    ClusterShape,
    load_plan,
    may_be_first_voter,
    plan_cluster,
    write_properties,
)
from raftwerk.cluster.local.supervisor import Supervisor
from raftwerk.cluster.local.voters_on_disk import initial_controllers, lost_majority
from raftwerk.cluster.node.formatting import parse_controllers
from raftwerk.log.manager.meta_properties import MetaProperties, read_meta_properties
from raftwerk.log.state.checkpoints import encode_uuid
from raftwerk.raft.snapshots.snapshot_store import encode_snapshot, snapshot_name
from raftwerk.raft.types import LOG_BEGIN, ReplicaKey
from raftwerk.raft.voters.voter_set import KRaftVersion, Voter, VoterListener, VoterSet
from raftwerk.runtime.files.real_disk import RealDisk


def directory_id(number: int) -> UUID:
    return UUID(int=number << 64)


def cluster(tmp_path: Path, count: int) -> tuple[ClusterPlan, VoterSet]:
    """A cluster of which every controller has its directory, and the first voters."""
    plan = plan_cluster(str(tmp_path), ClusterShape(count, port=0))
    write_properties(plan)
    voters = VoterSet.of(
        Voter(ReplicaKey(one, directory_id(one)), (VoterListener("CONTROLLER", "127.0.0.1", 9092 + one),))
        for one in range(1, count + 1)
    )
    for node in plan.nodes:
        log = Path(node.data_dir, "__cluster_metadata-0")
        log.mkdir(parents=True)
        first = encode_snapshot(LOG_BEGIN, 0, iter(()), [KRaftVersion(1), voters])
        (log / snapshot_name(LOG_BEGIN)).write_bytes(b"".join(first))
        write_meta(plan, node.node_id, node.node_id)
    return plan, voters


def write_meta(plan: ClusterPlan, node_id: int, directory: int) -> None:
    meta = MetaProperties(plan.cluster_id, node_id, directory_id(directory))
    Path(plan.node(node_id).data_dir, "meta.properties").write_bytes(meta.encode())


def lose(plan: ClusterPlan, node_id: int) -> None:
    shutil.rmtree(plan.node(node_id).data_dir)


def test_a_quorum_that_keeps_its_majority_has_lost_none(tmp_path: Path) -> None:
    plan, _ = cluster(tmp_path, 3)
    assert lost_majority(plan) is None
    lose(plan, 3)
    assert lost_majority(plan) is None
    assert lost_majority(plan_cluster(str(tmp_path / "new"), ClusterShape(3, port=0))) is None


def test_lost_directories_are_named_with_the_ids_that_vote(tmp_path: Path) -> None:
    plan, voters = cluster(tmp_path, 3)
    lose(plan, 2)
    lose(plan, 3)
    Path(plan.node(2).data_dir).mkdir()
    write_meta(plan, 2, 7)
    found = lost_majority(plan)
    assert found is not None
    assert found.what == (
        "the quorum has lost its majority: of its voters 1,2,3 only 1 is left, since controllers 2, 3 are back with "
        f"other log directories, and are therefore no voters: {tmp_path}/node-2 has the directory id "
        f"{encode_uuid(directory_id(7))}, and the voter {encode_uuid(directory_id(2))}; {tmp_path}/node-3 is not "
        f"formatted, and the voter {encode_uuid(directory_id(3))}"
    )
    assert found.way_out.startswith("put the former log directory of node 2 or 3 back, from the old disk or a copy (")
    assert found.way_out.endswith(f" --initial-controllers is {initial_controllers(voters)}")
    assert initial_controllers(voters).startswith(f"1@127.0.0.1:9093:{encode_uuid(directory_id(1))},2@127.0.0.1:9094:")


def test_the_only_voter_and_many_voters(tmp_path: Path) -> None:
    plan, voters = cluster(tmp_path / "five", 3)
    for node_id in (1, 2):
        write_meta(plan, node_id, 70 + node_id)
    write_meta(plan, 3, 73)
    found = lost_majority(plan)
    assert found is not None and "none of its voters 1,2,3 is left" in found.what
    assert "of 2 of the nodes 1, 2, 3 back" in found.way_out and "--initial-controllers" not in found.way_out
    plan, voters = cluster(tmp_path / "one", 1)
    write_meta(plan, 1, 7)
    found = lost_majority(plan)
    assert found is not None and "controller 1 is back with another log directory, and is therefore" in found.what
    assert "of node 1 back" in found.way_out and len(voters.voters) == 1


def directory_ids(plan: ClusterPlan) -> dict[int, UUID | None]:
    """The ids of the metadata directories; None where one is not formatted."""
    found = {node.node_id: read_meta_properties(RealDisk(), node.data_dir) for node in plan.nodes}
    return {node_id: None if one is None else one.directory_id for node_id, one in found.items()}


def first_voters(plan: ClusterPlan) -> dict[int, UUID | None]:
    return {one.key.id: one.key.directory_id for one in parse_controllers(str(plan.first_voters), ["CONTROLLER"])}


def note_election(plan: ClusterPlan, node_id: int, content: str) -> None:
    """The controller of the node has this quorum-state."""
    home = Path(plan.node(node_id).data_dir, "__cluster_metadata-0")
    home.mkdir(parents=True)
    (home / "quorum-state").write_text(content)


@pytest.mark.parametrize(("state", "may"), [('{"leaderEpoch":0}', True), ('{"leaderEpoch":1}', False), ("{", False)])
def test_nobody_is_formatted_as_a_first_voter_after_the_quorum_has_begun(tmp_path: Path, state: str, may: bool) -> None:
    plan = plan_cluster(str(tmp_path), ClusterShape(3, port=0))
    assert all(may_be_first_voter(plan, node) for node in plan.nodes)
    note_election(plan, 1, state)
    assert may_be_first_voter(plan, plan.node(2)) is may


def test_a_node_that_was_added_is_no_first_voter(tmp_path: Path) -> None:
    former = plan_cluster(str(tmp_path), ClusterShape(1, port=0))
    write_properties(former)
    Path(former.node(1).data_dir).mkdir()
    Path(former.node(1).data_dir, "meta.properties").write_text(f"cluster.id={former.cluster_id}\n")
    plan = plan_cluster(str(tmp_path), ClusterShape(2, port=0))
    assert [may_be_first_voter(plan, node) for node in plan.nodes] == [True, False]


@pytest.mark.process
def test_after_an_interrupted_start_a_lost_disk_does_not_come_back_as_the_voter_that_it_was(tmp_path: Path) -> None:
    """With an empty metadata log it would vote for whoever lacks what it has acknowledged."""
    plan = plan_cluster(str(tmp_path), ClusterShape(3, port=0))
    write_properties(plan)
    with Supervisor(plan) as interrupted:
        interrupted.start_node(1)
        interrupted.start_node(2)
        interrupted.wait_ready([1, 2])
    with Supervisor(load_plan(str(tmp_path))) as again:
        for node in plan.nodes:
            again.start_node(node.node_id)
        again.wait_ready()
        assert directory_ids(plan)[3] != first_voters(plan)[3], "the quorum had begun without it"
        wait_until_votes(plan, 3)
        again.kill(2)
        lose(plan, 2)
        again.restart_node(2)
        assert directory_ids(plan)[2] not in (None, first_voters(plan)[2])
        wait_until_votes(plan, 2)


def wait_until_votes(plan: ClusterPlan, node_id: int) -> None:
    """Wait until the controller of the node is a voter with the directory that it has now."""
    meta = Path(plan.node(node_id).data_dir, "meta.properties")
    own = meta.read_text().partition("directory.id=")[2].split()[0]
    deadline = time.monotonic() + 30
    while True:
        rows = json.loads(ok("quorum", "--json", "-d", plan.directory))["replicas"]
        if (node_id, own, "voter") in [(row["node"], row["directory_id"], row["role"]) for row in rows]:
            return
        assert time.monotonic() < deadline, rows


@pytest.mark.long
@pytest.mark.process
def test_nodes_that_are_back_without_their_directories_run_and_are_not_to_be_started(tmp_path: Path) -> None:
    directory = str(tmp_path / "c")
    ok("up", "-n", "3", "--port", "0", "--detach", "-d", directory)
    try:
        ok("topics", "create", "t", "-p", "6", "--replicas", "3", "-d", directory)
        plan = load_plan(directory)
        leader = json.loads(ok("quorum", "--json", "-d", directory))["leader"]
        left = next(one for one in (1, 2, 3) if one != leader)  # it leads no quorum any more
        lost = [one for one in (1, 2, 3) if one != left]
        ok("kill", *map(str, lost), "-d", directory)
        for node_id in lost:
            lose(plan, node_id)
        assert raftwerk("start", "--timeout", "1", "-d", directory).returncode == 1
        rows = [json.loads(line) for line in raftwerk("status", "--json", "-d", directory).stdout.splitlines()]
        assert {row["node"]: row["state"] for row in rows} == dict.fromkeys(lost, "not serving") | {left: "up"}
        assert all(row["leads"] == row["in_sync"] == 0 for row in rows if row["node"] in lost)
        (unled,) = {6 - row["leads"] for row in rows if row["node"] == left}
        status = raftwerk("status", "-d", directory).stdout
        assert f"6 partitions, 6 under-replicated, {unled} without a leader" in status
        assert "The quorum has lost its majority" in status
        told = [json.loads(line) for line in raftwerk("doctor", "--json", "-d", directory).stdout.splitlines()]
        (broken,) = [one for one in told if one["what"].startswith(f"brokers {lost[0]}, {lost[1]} advertise")]
        pids = ", ".join(str(row["pid"]) for row in rows if row["node"] in lost)
        assert broken["what"].endswith(f"but their processes {pids} run")
        assert "under 'A majority has lost its directories'" in broken["way_out"]
        assert not [one for one in told if "start broker" in one["way_out"]]
    finally:
        raftwerk("down", "-d", directory)


@pytest.mark.long
@pytest.mark.process
def test_two_of_three_directories_are_lost_and_the_last_voter_goes_on(tmp_path: Path) -> None:
    directory = str(tmp_path / "c")
    ok("up", "-n", "3", "--port", "0", "--detach", "-d", directory)
    try:
        ok("topics", "create", "t", "--replicas", "3", "-c", "min.insync.replicas=2", "-d", directory)
        ok("produce", "t", "-m", "x", "-d", directory)
        ok("down", "-d", directory)
        plan = load_plan(directory)
        lose(plan, 2)
        lose(plan, 3)
        given_up = raftwerk("start", "--timeout", "2", "-d", directory)
        told = given_up.stderr.strip()
        assert given_up.returncode == 1
        assert "\nThe quorum has lost its majority: of its voters 1,2,3 only 1 is left" in told
        assert "\nPut the former log directory of node 2 or 3 back" in told
        assert all(plan.node(node_id).log_file in told.partition("\nThe quorum")[0] for node_id in (2, 3))
        status = " ".join(raftwerk("status", "-d", directory).stdout.split())
        assert "The quorum has lost its majority: of its voters 1,2,3 only 1 is left" in status
        assert "raftwerk up" not in status and "starts the cluster" not in status
        doctor = " ".join(raftwerk("doctor", "-d", directory).stdout.split())
        assert "FAIL the quorum has lost its majority: of its voters 1,2,3 only 1 is left" in doctor
        assert "raftwerk up" not in doctor and "start the node;" not in doctor
        at = ",".join(str(one.controller_address) for one in plan.nodes)
        quorum = fails(1, "quorum", "--bootstrap-controller", at)
        assert f"of its voters 1 ({plan.node(1).controller_address}) answers; 2 (" in quorum
        assert quorum.count("is back with another log directory, which does not vote") == 2
        assert "so many voters have lost their log directories that no majority is left" in quorum
        log = Path(plan.node(1).log_file).read_text()
        for node_id, address in ((2, plan.node(2).controller_address), (3, plan.node(3).controller_address)):
            assert log.count(f"does not vote any more: the controller at {address} is back with another") == 1
            assert f"voter {node_id} with the directory id " in log
        ok("down", "-d", directory)
        lose(plan, 2)
        node = plan.node(2)
        alone = ["-o", "process.roles=controller", "-o", f"listeners=CONTROLLER://{node.controller_address}"]
        alone += ["-o", "advertised.listeners="]
        voters = ["--initial-controllers", told.rpartition("--initial-controllers is ")[2]]
        ok("format", "-t", plan.cluster_id, "-c", node.properties_file, *alone, *voters)
        command = [sys.executable, "-m", "raftwerk", "node", node.properties_file, *alone]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as controller:
            try:
                ok("start", "1", "-d", directory)
                raftwerk("partitions", "elect", "--unclean", "t-0", "-d", directory)
                ok("start", "3", "-d", directory)
                wait_until_votes(plan, 3)
            finally:
                controller.terminate()
        lose(plan, 2)
        ok("start", "2", "-d", directory)
        wait_until_votes(plan, 2)
        assert lost_majority(plan) is None
        assert ok("consume", "t", "-e", "-d", directory) == "x\n"
    finally:
        raftwerk("down", "-d", directory)
