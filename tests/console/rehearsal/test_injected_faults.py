"""What nodes are asked for when one of them is to be cut off, slowed or filled."""

from __future__ import annotations

from raftwerk.cluster.local.layout import ClusterPlan, NodePlan
from raftwerk.console.rehearsal.injected_faults import Faults, faults_by_node
from raftwerk.runtime.faults.fault_socket import NodeFaults


def plan() -> ClusterPlan:
    nodes = [
        NodePlan(one, one, None, "/c", {"listeners": f"PLAINTEXT://h:{one},CONTROLLER://h:10{one}"})
        for one in (1, 2, 3)
    ]
    return ClusterPlan("id", "/c", tuple(nodes))


def test_both_ends_of_a_connection_are_cut() -> None:
    found = faults_by_node(plan(), {2: Faults(is_cut=True)})
    assert found[2].cut == ("h:1", "h:101", "h:3", "h:103")
    assert found[1].cut == found[3].cut == ("h:2", "h:102")


def test_a_connection_of_two_slow_nodes_has_the_longer_delay() -> None:
    found = faults_by_node(plan(), {1: Faults(delay_ms=50), 2: Faults(delay_ms=200)})
    assert found[1].delays_ms == {"h:2": 200, "h:102": 200, "h:3": 50, "h:103": 50}
    assert found[3].delays_ms == {"h:1": 50, "h:101": 50, "h:2": 200, "h:102": 200}


def test_a_disk_is_full_on_its_node_alone() -> None:
    found = faults_by_node(plan(), {3: Faults(is_disk_full=True)})
    assert found == {1: NodeFaults(), 2: NodeFaults(), 3: NodeFaults(is_disk_full=True)}
    assert faults_by_node(plan(), {})[3] == NodeFaults()


def test_faults_are_told_in_words() -> None:
    every = Faults(is_cut=True, delay_ms=5, is_disk_full=True)
    assert every.told == ["cut off from the others", "5 ms late", "disk full"]
    assert Faults().told == []
