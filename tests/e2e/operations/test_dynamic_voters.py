"""Dynamic voters with real processes: Kafka's tools, auto-join after a lost disk, static voters that become dynamic."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.e2e import helpers
from support.e2e.dynamic_nodes import RAFTWERK, Nodes, run, wait_for
from support.e2e.java_tools import JavaTools

from raftwerk.cluster.local.layout import ClusterShape, find_free_base_port, plan_cluster
from raftwerk.cluster.local.supervisor import Supervisor
from raftwerk.cluster.local.voters_on_disk import has_dynamic_voters
from raftwerk.log.state.checkpoints import encode_uuid

TOOL = "MetadataQuorumCommand"


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    nodes = Nodes(tmp_path)
    yield nodes
    nodes.kill_all()


@pytest.mark.java
def test_kafkas_quorum_tool(nodes: Nodes, java_tools: JavaTools) -> None:
    """describe, add-controller and remove-controller, through a broker and straight at a controller."""
    nodes.format(1, "--standalone", "--release-version", "4.1", "--feature", "raftwerk.record.version=0")
    nodes.wait_ready(1, nodes.start(1))
    nodes.format(2, "--no-initial-controllers")
    nodes.wait_ready(2, nodes.start(2))
    broker, controller = ("--bootstrap-server", nodes.broker(1)), ("--bootstrap-controller", nodes.controller(2))
    view = wait_for(nodes.broker(1), lambda view: len(view.replicas) == 2)
    directory = {one.node_id: encode_uuid(one.directory_id) for one in view.replicas}
    status = java_tools.run(TOOL, *controller, "describe", "--status")
    assert f'"id": 1, "directoryId": "{directory[1]}", "endpoints": ["CONTROLLER://{nodes.controller(1)}"]' in status
    added = java_tools.run(TOOL, *controller, "--command-config", str(nodes.properties(2)), "add-controller")
    assert f"Added controller 2 with directory id {directory[2]}" in added
    told = java_tools.run(TOOL, *broker, "describe", "--replication")
    assert [line.split()[0::6] for line in told.splitlines()[1:]] == [["1", "Leader"], ["2", "Follower"]]
    named = ("--controller-id", "1", "--controller-directory-id", directory[1])
    assert "Removed" in java_tools.run(TOOL, *broker, "remove-controller", *named)
    view = wait_for(nodes.broker(2), lambda view: view.leader_id == 2)
    assert [one.node_id for one in view.voters] == [2]
    java_tools.run(TOOL, *broker, "remove-controller", *named, fails=True)
    features = java_tools.run("FeatureCommand", "--bootstrap-controller", nodes.controller(2), "describe")
    assert any("kraft.version" in line and "FinalizedVersionLevel: 1" in line for line in features.splitlines())
    assert re.search(r"metadata.version\s.*FinalizedVersionLevel: 4.1-IV1\s", features), features
    assert re.search(r"raftwerk.record.version\s.*FinalizedVersionLevel: 0\s", features), features
    moves = "reassign.ReassignPartitionsCommand"
    assert "No partition reassignments found" in java_tools.run(moves, *controller, "--list")
    configs = ("--describe", "--entity-type", "brokers", "--entity-name", "2", "--all")
    assert "node.id=2" in java_tools.run("kafka.admin.ConfigCommand", *controller, *configs)


@pytest.mark.long
def test_a_controller_without_its_disk_joins_again(nodes: Nodes) -> None:
    """With auto-join a controller becomes a voter by itself, also when it comes back with an empty disk."""
    nodes.format(1, "--standalone")
    nodes.wait_ready(1, nodes.start(1))
    for node_id in (2, 3):
        nodes.format(node_id, "--no-initial-controllers", controller_quorum_auto_join_enable="true")
        nodes.wait_ready(node_id, nodes.start(node_id))
    view = wait_for(nodes.broker(1), lambda view: len(view.voters) == 3)
    former = {one.node_id: one.directory_id for one in view.voters}
    nodes.processes[3].send_signal(signal.SIGKILL)
    nodes.processes.pop(3).wait()
    shutil.rmtree(nodes.directory / "node-3")
    nodes.format(3, "--no-initial-controllers", controller_quorum_auto_join_enable="true")
    nodes.wait_ready(3, nodes.start(3))
    keys = wait_for(
        nodes.broker(1),
        lambda view: len(view.voters) == 3 and all(one.directory_id != former[3] for one in view.voters),
    )
    assert {one.node_id: one.directory_id for one in keys.voters if one.node_id != 3} == {
        node_id: directory for node_id, directory in former.items() if node_id != 3
    }


@pytest.mark.long
def test_an_operator_adds_a_controller_again_that_lost_its_disk(nodes: Nodes) -> None:
    """Without auto-join the former voter stays in the way; every command says so, and asks whom the file names."""
    nodes.form_quorum((1, 2, 3))
    broker = nodes.broker(1)
    lost = next(one for one in (2, 3) if one != wait_for(broker, lambda view: view.leader_id > 0).leader_id)
    nodes.processes[lost].send_signal(signal.SIGKILL)
    nodes.processes.pop(lost).wait()
    shutil.rmtree(nodes.directory / f"node-{lost}")
    nodes.format(lost, "--no-initial-controllers")
    nodes.wait_ready(lost, nodes.start(lost))
    wait_for(broker, lambda view: [one.node_id for one in view.replaced] == [lost])
    shown = " ".join(run("quorum", "-b", broker).split())
    assert " replaced " in shown and f"raftwerk quorum remove-controller {lost} takes the voter with" in shown
    add = ("quorum", "add-controller", "-c", str(nodes.properties(lost)))
    refused = subprocess.run([*RAFTWERK, *add], capture_output=True, text=True, check=False, cwd=nodes.directory)
    assert refused.returncode == 1 and "quorum remove-controller with its node id" in refused.stderr, refused
    run("quorum", "remove-controller", str(lost), "-b", broker)
    assert run(*add) == f"Controller {lost} is now a voter.\n"
    wait_for(broker, lambda view: len(view.voters) == 3 and view.replaced == [])


def test_a_controller_that_moves_is_found_again(nodes: Nodes) -> None:
    """It comes back at another port: the voters' record follows (UpdateRaftVoter), and it can lead from there."""
    nodes.form_quorum((1, 2, 3))
    view = wait_for(nodes.broker(1), lambda view: len(view.voters) == 3)
    moved = next(node_id for node_id in (1, 2, 3) if node_id != view.leader_id)
    before, after = nodes.controller(moved), nodes.controller(6)
    assert view.endpoints[moved] == ("127.0.0.1", int(before.rpartition(":")[2]))
    nodes.stop(moved)
    settings = nodes.properties(moved).read_text()
    nodes.properties(moved).write_text(settings.replace(f"CONTROLLER://{before}", f"CONTROLLER://{after}"))
    nodes.wait_ready(moved, nodes.start(moved))
    there = ("127.0.0.1", int(after.rpartition(":")[2]))
    view = wait_for(nodes.broker(moved), lambda view: view.endpoints[moved] == there)
    assert sorted(one.node_id for one in view.voters) == [1, 2, 3]
    other = next(node_id for node_id in (1, 2, 3) if node_id not in (moved, view.leader_id))
    nodes.processes[other].send_signal(signal.SIGKILL)
    nodes.processes.pop(other).wait()
    helpers.create_topic(nodes.broker(moved), "needs-both", replicas=1)


@pytest.mark.long
def test_a_local_cluster_grows_and_gets_over_a_lost_disk(new_cluster: Callable[..., Supervisor]) -> None:
    """What `raftwerk up` makes: voters with directory ids; nodes that are added, or come back empty, join."""
    supervisor = new_cluster(1)
    plan = supervisor.plan
    voter = wait_for(plan.bootstrap, lambda view: view.leader_id == 1).voters[0]
    formatted = Path(plan.nodes[0].data_dir, "meta.properties").read_text().splitlines()
    assert f"directory.id={encode_uuid(voter.directory_id)}" in formatted
    assert plan.first_voters is None and not Path(plan.initial_controllers_file).exists()
    supervisor.stop()
    with Supervisor(plan_cluster(plan.directory, ClusterShape(brokers=3, port=0))) as grown:
        grown.start()
        bootstrap = grown.plan.bootstrap
        view = wait_for(bootstrap, lambda view: len(view.voters) == 3)
        former = {one.node_id: one.directory_id for one in view.voters}
        assert former[1] == voter.directory_id
        lost = next(node for node in grown.plan.nodes if node.node_id != view.leader_id)
        command = [*RAFTWERK, "quorum", "remove-controller", str(lost.node_id), "-b", bootstrap]
        refused = subprocess.run(command, capture_output=True, text=True, check=False)
        assert refused.returncode == 1 and "would join again: stop it first" in refused.stderr
        grown.kill(lost.node_id)
        shutil.rmtree(lost.data_dir)
        grown.restart_node(lost.node_id)
        changed = former[lost.node_id]
        wait_for(
            bootstrap,
            lambda view: len(view.voters) == 3 and all(one.directory_id != changed for one in view.voters),
        )


def test_static_voters_become_dynamic(new_cluster: Callable[..., Supervisor]) -> None:
    port = find_free_base_port(ClusterShape(brokers=3))
    voters = ",".join(f"{node_id}@127.0.0.1:{port + 1000 + node_id}" for node_id in (1, 2, 3))
    supervisor = new_cluster(port=port, overrides={"controller.quorum.voters": voters})
    bootstrap = supervisor.plan.bootstrap
    refused = subprocess.run(
        [*RAFTWERK, "quorum", "remove-controller", "3", "-b", bootstrap], capture_output=True, text=True, check=False
    )
    assert refused.returncode == 1
    assert "raftwerk features set kraft.version=1" in refused.stderr
    told = run("features", "upgrade", "-b", bootstrap)
    assert told.startswith(
        "All other features are at their highest levels.\nkraft.version is left out and stays at 0: "
    )
    wait_for(bootstrap, lambda view: all(one.last_fetch_ms > 0 and one.directory_id.int for one in view.voters))
    run("features", "set", "kraft.version=1", "--dry-run", "-b", bootstrap)
    assert not has_dynamic_voters(supervisor.plan)
    run("features", "set", "kraft.version=1", "-b", bootstrap)
    assert has_dynamic_voters(supervisor.plan)
    listed = run("features", "list", "--json", "-b", bootstrap).splitlines()
    assert '{"feature":"kraft.version","lowest":0,"highest":1,"level":1,"release":null}' in listed
    helpers.create_topic(bootstrap, "t")
    leader = helpers.active_controller(bootstrap)
    assert "no longer a voter" in run("quorum", "remove-controller", str(leader), "-b", bootstrap)
    view = wait_for(bootstrap, lambda view: view.leader_id not in (leader, -1))
    assert leader not in [one.node_id for one in view.voters]
