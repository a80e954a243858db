"""What nodes are asked for when one of them is to be cut off, slowed or filled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
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
    """Three nodes that take faults, in place of their processes. Those in `refusing` take none, once they may."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *refusing: int) -> None:
        self.may_refuse = Event()
        self.refusing = set(refusing)
        self.pids = {one: one for one in (1, 2, 3)}
        self.held: dict[int, NodeFaults] = {}
        """By the number of the process."""
        monkeypatch.setattr(injected_faults, "node_pid", lambda node: self.pids[node.node_id])
        monkeypatch.setattr(injected_faults, "is_paused", lambda pid: False)
        monkeypatch.setattr(injected_faults, "FaultConnection", lambda pid: Connection(pid, self))
        monkeypatch.setattr(injected_faults, "LOOK_EVERY_S", 0.0)

    def start_anew_without_faults(self, node_id: int) -> None:
        """The node runs as another process, which takes no faults."""
        self.held.pop(self.pids[node_id], None)
        self.pids[node_id] += 10
        self.refusing.add(self.pids[node_id])
        self.may_refuse.set()


class Connection:
    """A connection to one of them."""

    def __init__(self, pid: int, nodes: Nodes) -> None:
        self.pid = pid
        self._nodes = nodes

    def inject(self, faults: NodeFaults) -> None:
        if self.pid in self._nodes.refusing:
            assert self._nodes.may_refuse.wait(30)
            raise FaultSocketError("takes no faults")
        self._nodes.held[self.pid] = faults

    def close(self) -> None:
        self._nodes.held.pop(self.pid, None)


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0)


def cut(now: Faults) -> Faults:
    return replace(now, is_cut=True)


def heal(now: Faults) -> Faults:
    return Faults()


def slow(now: Faults) -> Faults:
    return replace(now, delay_ms=50)


def fill(now: Faults) -> Faults:
    return replace(now, is_disk_full=True)


def test_a_fault_that_a_node_does_not_take_leaves_those_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = Nodes(monkeypatch, 1)

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

    asyncio.run(main())


FULL = NodeFaults(is_disk_full=True)


@pytest.mark.parametrize("duration_s", [None, 0.0])
def test_a_node_is_healed_while_another_takes_no_faults(
    duration_s: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one has faults, too, and was started anew, so that it is asked for them again and again."""
    nodes = Nodes(monkeypatch)
    told: list[str] = []

    async def main() -> None:
        faults = InjectedFaults(plan(), told.append)
        await faults.inject(1, fill, None)
        nodes.start_anew_without_faults(1)
        await faults.inject(3, fill, duration_s)
        if duration_s is None:
            assert nodes.held == {3: FULL}
            assert await faults.inject(3, heal, None) == (Faults(is_disk_full=True), Faults())
            assert nodes.held.get(3, NodeFaults()) == NodeFaults()
        await until(lambda: nodes.held.get(3, NodeFaults()) == NodeFaults())
        assert (faults.of(1), faults.of(3)) == (Faults(is_disk_full=True), Faults())
        faults.close()

    asyncio.run(main())
    assert told == ([] if duration_s is None else ["node 3 is healed, after the time that was set: disk full"])


def test_a_node_that_takes_no_faults_is_healed(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = Nodes(monkeypatch)

    async def main() -> None:
        faults = InjectedFaults(plan(), lambda _: None)
        await faults.inject(1, cut, None)
        await faults.inject(3, fill, None)
        nodes.refusing.add(2)
        nodes.may_refuse.set()
        await faults.inject(1, heal, None)
        assert (nodes.held, faults.of(1)) == ({1: NodeFaults(), 3: FULL}, Faults())
        faults.close()

    asyncio.run(main())


def test_what_one_of_two_ends_refuses_the_other_holds_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = Nodes(monkeypatch, 2)
    nodes.may_refuse.set()

    async def main() -> None:
        faults = InjectedFaults(plan(), lambda _: None)
        await faults.inject(3, fill, None)
        with pytest.raises(FaultSocketError, match="node 2 takes no faults"):
            await faults.inject(1, cut, None)
        assert (nodes.held, faults.of(1)) == ({1: NodeFaults(), 3: FULL}, Faults())
        faults.close()

    asyncio.run(main())


def test_a_node_that_takes_no_faults_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    nodes = Nodes(monkeypatch)

    async def main() -> None:
        faults = InjectedFaults(plan(), lambda _: None)
        await faults.inject(1, fill, None)
        nodes.start_anew_without_faults(1)
        await until(lambda: caplog.messages)
        nodes.refusing.clear()
        await until(lambda: nodes.held.get(11) == FULL)
        faults.close()

    asyncio.run(main())
    assert caplog.messages == ["node 1 takes no faults"]
