"""What nodes are asked for when one of them is to be cut off, slowed or filled."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from threading import Event

import pytest

from raftwerk.cluster.local.layout import ClusterPlan, NodePlan
from raftwerk.console.rehearsal import injected_faults
from raftwerk.console.rehearsal.injected_faults import Faults, InjectedFaults, faults_by_node
from raftwerk.runtime.faults.fault_socket import FaultSocketError, NodeFaults


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


class Nodes:
    """Three nodes that take faults, in place of their processes; node 1 refuses the first time, once it may."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.may_refuse = Event()
        self.has_refused = False
        self.held: dict[int, NodeFaults] = {}
        monkeypatch.setattr(injected_faults, "node_pid", lambda node: node.node_id)
        monkeypatch.setattr(injected_faults, "is_paused", lambda pid: False)
        monkeypatch.setattr(injected_faults, "FaultConnection", lambda pid: Connection(pid, self))


class Connection:
    """A connection to one of them."""

    def __init__(self, pid: int, nodes: Nodes) -> None:
        self.pid = pid
        self._nodes = nodes

    def inject(self, faults: NodeFaults) -> None:
        if self.pid == 1 and not self._nodes.has_refused:
            assert self._nodes.may_refuse.wait(30)
            self._nodes.has_refused = True
            raise FaultSocketError("takes no faults")
        self._nodes.held[self.pid] = faults

    def close(self) -> None:
        self._nodes.held.pop(self.pid, None)


def slow(now: Faults) -> Faults:
    return replace(now, delay_ms=50)


def fill(now: Faults) -> Faults:
    return replace(now, is_disk_full=True)


def test_a_fault_that_a_node_does_not_take_leaves_those_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = Nodes(monkeypatch)

    async def main() -> None:
        faults = InjectedFaults(plan(), lambda _: None)
        both = [asyncio.create_task(faults.inject(node_id, fill, None)) for node_id in (1, 2)]
        asyncio.get_running_loop().call_soon(nodes.may_refuse.set)  # both have begun by then
        refused, taken = await asyncio.gather(*both, return_exceptions=True)
        assert isinstance(refused, FaultSocketError)
        assert taken == (Faults(), Faults(is_disk_full=True))
        assert (faults.of(1), faults.of(2)) == (Faults(), Faults(is_disk_full=True))
        assert nodes.held == {2: NodeFaults(is_disk_full=True)}
        faults.close()

    asyncio.run(main())


def test_two_faults_of_a_node_at_once_hold_together(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = Nodes(monkeypatch)

    async def main() -> None:
        faults = InjectedFaults(plan(), lambda _: None)
        await asyncio.gather(faults.inject(2, fill, None), faults.inject(2, slow, None))
        assert faults.of(2) == Faults(delay_ms=50, is_disk_full=True)
        assert nodes.held[2].is_disk_full and set(nodes.held[2].delays_ms.values()) == {50}
        faults.close()

    nodes.has_refused = True
    asyncio.run(main())
