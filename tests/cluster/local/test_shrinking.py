"""Nodes are taken out of a running local cluster."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.e2e.command import fails_usage, ok
from support.e2e.terminal import CTRL_C, Terminal

from raftwerk.cluster.client.cluster_client import ClusterView, PartitionView, TopicView
from raftwerk.cluster.local import shrinking
from raftwerk.cluster.local.layout import (
    ClusterShape,
    NodePlan,
    load_plan,
    nodes_left_behind,
    plan_cluster,
    write_properties,
)
from raftwerk.cluster.local.shrinking import CannotShrinkError, lost_tolerance, moves_to, plan_shrink, shrink


@given(st.lists(st.permutations(range(1, 6)), max_size=12), st.integers(1, 5), st.integers(1, 5))
def test_only_the_brokers_that_stay_have_replicas(orders: list[list[int]], replicas: int, brokers: int) -> None:
    staying = set(range(1, brokers + 1))
    partitions = tuple(
        PartitionView(number, order[0], 0, tuple(order[:replicas]), tuple(order[:replicas]))
        for number, order in enumerate(orders)
    )
    view = ClusterView("c", 1, (), (TopicView("t", None, False, partitions),))
    moves, fewer = moves_to(view, staying)
    moved = {move.partition: move.replicas or () for move in moves}
    for one in partitions:
        after = moved.get(one.partition, one.replicas)
        assert set(after) <= staying and len(set(after)) == len(after) == min(replicas, brokers)
        kept = tuple(broker for broker in one.replicas if broker in staying)
        assert after[: len(kept)] == kept
        assert (one.partition in moved) == (len(kept) < len(one.replicas))
        assert (f"t-{one.partition}" in fewer) == (len(after) < len(one.replicas))


def test_a_broker_is_not_left_out_by_a_smaller_plan(tmp_path: Path) -> None:
    plan = plan_cluster(str(tmp_path), ClusterShape(brokers=5, port=21000, separate=True))
    for node in plan.nodes:
        Path(node.data_dir).mkdir()
        Path(node.data_dir, "meta.properties").write_text(f"version=1\ncluster.id={plan.cluster_id}\n")
        Path(node.properties_file).write_text("".join(f"{key}={value}\n" for key, value in node.properties.items()))
    smaller = ClusterShape(brokers=4, port=21000, separate=True)
    with pytest.raises(ValueError, match=r"without 5 it might lack replicas: .*; then raftwerk shrink -n 4 moves"):
        plan_cluster(str(tmp_path), smaller)
    assert [node.node_id for node in plan_cluster(str(tmp_path), smaller, may_shrink=True).nodes] == [
        *range(1, 5),
        *range(101, 104),
    ]


def test_the_command_that_starts_a_node_which_is_to_stay_names_the_cluster(tmp_path: Path) -> None:
    plan = plan_cluster(str(tmp_path), ClusterShape(brokers=2, port=21000))
    for node in plan.nodes:
        Path(node.data_dir).mkdir()
        Path(node.data_dir, "meta.properties").write_text(f"version=1\ncluster.id={plan.cluster_id}\n")
    write_properties(plan)
    with pytest.raises(CannotShrinkError, match=f"node 1 is down, and is to stay: raftwerk start 1 -d {tmp_path}$"):
        asyncio.run(plan_shrink(load_plan(str(tmp_path)), 1))


def test_a_quorum_that_survives_less_is_told(tmp_path: Path) -> None:
    def told(before: int, after: int, *, separate: bool = False) -> str:
        shapes = [ClusterShape(one, port=21000, separate=separate) for one in (before, after)]
        return lost_tolerance(*(plan_cluster(str(tmp_path), shape) for shape in shapes))

    assert told(3, 2) == "The quorum will have 2 voters instead of 3, and survive the loss of none instead of 1."
    assert told(5, 3) == "The quorum will have 3 voters instead of 5, and survive the loss of 1 instead of 2."
    assert told(4, 3) == told(2, 1) == told(5, 4, separate=True) == ""
    assert told(3, 2, separate=True) == told(3, 2)


@pytest.mark.process
def test_a_shrink_that_was_interrupted_late_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = str(tmp_path / "c")
    ok("up", "-n", "2", "--port", "0", "-d", directory, "--detach")
    try:
        plan = load_plan(directory)
        planned = asyncio.run(plan_shrink(plan, 1))

        def interrupted(node: NodePlan) -> None:
            raise KeyboardInterrupt(node.node_id)

        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(shrinking, "remove_remains", interrupted)
            asyncio.run(shrink(planned, lambda _: None))
        assert [node.node_id for node in load_plan(directory).nodes] == [1]
        assert Path(directory, "node-2").exists()
        told = ok("shrink", "-n", "1", "--yes", "-d", directory)
        assert "go: node 2." in told and "The cluster has 1 node now" in told
        assert not Path(directory, "node-2").exists() and not nodes_left_behind(directory)
        assert [line.split()[0] for line in ok("brokers", "list", "-d", directory).splitlines()] == ["1"]
        assert "has 1 broker already" in ok("shrink", "-n", "1", "--yes", "-d", directory)
    finally:
        ok("down", "-d", directory)


@pytest.mark.process
def test_records_of_topics_that_are_made_during_a_shrink_are_kept(tmp_path: Path) -> None:
    """Each topic has a partition on the node that leaves, made before the moves, and after them while it is stopped."""
    directory = str(tmp_path / "c")
    ok("up", "-n", "2", "--port", "0", "-d", directory, "--detach")
    told: list[str] = []

    def make(topic: str) -> None:
        ok("topics", "create", topic, "-p", "2", "-r", "1", "-d", directory)
        for partition in "01":
            ok("produce", topic, "-p", partition, "-m", f"{topic}-{partition}", "-d", directory)

    def tell(text: str) -> None:
        if text == "stopping node 2" and text not in told:
            make("later")
        told.append(text)

    try:
        planned = asyncio.run(plan_shrink(load_plan(directory), 1))
        make("late")
        asyncio.run(shrink(planned, tell))
        assert any(text.startswith("starting node 2 again, since it has got replicas of later-") for text in told)
        assert told[-1] == "node 2 is out of the cluster"
        for topic in ("late", "later"):
            read = ok("consume", topic, "-e", "-b", planned.smaller.bootstrap)
            assert sorted(read.split()) == [f"{topic}-0", f"{topic}-1"]
    finally:
        ok("down", "-d", directory)


def test_a_node_that_comes_back_has_nothing_of_what_was_taken_out(tmp_path: Path) -> None:
    plan = plan_cluster(str(tmp_path), ClusterShape(brokers=2, port=21000))
    write_properties(plan)
    gone = plan.node(2)
    Path(gone.data_dir).mkdir()
    Path(gone.properties_file).rename(gone.leaving_file)
    assert [node.node_id for node in nodes_left_behind(str(tmp_path))] == [2]
    write_properties(plan)
    assert not Path(gone.data_dir).exists() and not nodes_left_behind(str(tmp_path))


@pytest.mark.long
@pytest.mark.process
def test_a_cluster_shrinks_to_one_node_while_up_stays_with_it(tmp_path: Path) -> None:
    directory = str(tmp_path / "c")
    with Terminal("up", "-n", "3", "--port", "0", "-d", directory, "--restart", "--plain") as terminal:
        terminal.read_until("Ctrl-C stops", 60)
        ok("topics", "create", "t", "-p", "4", "--replicas", "2", "-d", directory)
        ok("produce", "t", "-d", directory, "-m", "one")
        assert "--yes takes nodes out" in fails_usage("shrink", "-n", "1", "-d", directory)
        assert "-n is less" in fails_usage("shrink", "-n", "4", "--yes", "-d", directory)
        told = ok("shrink", "-n", "1", "--yes", "-d", directory)
        assert "The quorum will have 1 voter instead of 3, and survive the loss of none instead of 1." in told
        assert "go: nodes 2, 3. 4 partitions will move." in told and "replicas, since fewer brokers stay, will" in told
        assert "take default.replication.factor=1, offsets.topic.replication.factor=1, " in told
        assert told.splitlines()[-1].startswith("The cluster has 1 node now: bootstrap.servers=")
        assert "0 under-replicated, 0 without a leader" in ok("status", "-d", directory)
        assert [line.split()[:2] for line in ok("quorum", "-d", directory).splitlines()[2:3]] == [["1", "voter"]]
        assert ok("consume", "t", "-n", "1", "-d", directory) == "one\n"
        terminal.press(CTRL_C)
        assert terminal.wait() == 0
    assert sorted(path.name for path in Path(directory).iterdir() if path.name[0] in "ns") == [
        "n1.log",
        "n1.pid",
        "node-1",
        "s1.properties",
    ]
    assert "1 node ready" in ok("up", "-d", directory, "--detach")
    ok("down", "-d", directory)
    assert [node.node_id for node in load_plan(directory).nodes] == [1]
