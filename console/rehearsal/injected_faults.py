"""Faults that nodes inject into themselves when they are asked: cut off, slow, disk full.

A node holds them as long as the connection by which it was asked, so they end with this process, however it ends. One
that was started anew is asked again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ...cluster.local.layout import ClusterPlan
from ...cluster.local.processes import is_paused
from ...cluster.local.supervisor import node_pid
from ...runtime.faults.fault_socket import FaultConnection, FaultSocketError, NodeFaults

LOOK_EVERY_S = 0.25
"""How often nodes are looked at while there are faults."""
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Faults:
    """What is wrong with one node. Its requests and those to it are `delay_ms` late."""

    is_cut: bool = False
    delay_ms: int = 0
    is_disk_full: bool = False

    @property
    def told(self) -> list[str]:
        """The faults in words."""
        return (
            ["cut off from the others"] * self.is_cut
            + [f"{self.delay_ms} ms late"] * bool(self.delay_ms)
            + ["disk full"] * self.is_disk_full
        )


NONE = Faults()


def faults_by_node(plan: ClusterPlan, wanted: Mapping[int, Faults]) -> dict[int, NodeFaults]:
    """What each node has to be asked for. Both ends of a connection take part, since each opens its own."""
    found = {}
    for node in plan.nodes:
        own = wanted.get(node.node_id, NONE)
        cut: list[str] = []
        delays: dict[str, int] = {}
        for peer in plan.nodes:
            others = wanted.get(peer.node_id, NONE)
            if peer.node_id == node.node_id:
                continue
            if own.is_cut or others.is_cut:
                cut += peer.addresses
            if delay_ms := max(own.delay_ms, others.delay_ms):
                delays |= dict.fromkeys(peer.addresses, delay_ms)
        found[node.node_id] = NodeFaults(tuple(cut), delays, own.is_disk_full)
    return found


class InjectedFaults:
    """The faults of the nodes of one cluster. `tell` gets a sentence when one ends by itself."""

    def __init__(self, plan: ClusterPlan, tell: Callable[[str], None]) -> None:
        self._plan = plan
        self._tell = tell
        self._wanted: dict[int, Faults] = {}
        self._until_s: dict[int, float] = {}
        self._connections: dict[int, FaultConnection] = {}
        self._asked: dict[int, NodeFaults] = {}
        """What each connected node was asked for."""
        self._changing = asyncio.Lock()
        """Held from a change of what is wanted until the nodes have answered, so that one may be taken back alone."""
        self._task: asyncio.Task[None] | None = None

    def of(self, node_id: int) -> Faults:
        """The faults of a node."""
        return self._wanted.get(node_id, NONE)

    async def inject(
        self, node_id: int, change: Callable[[Faults], Faults], duration_s: float | None
    ) -> tuple[Faults, Faults]:
        """Let what `change` makes of a node's faults hold, for so long or until they are healed.

        Returns the faults before and after. Raises `FaultSocketError` where a node refuses what it has to hold for it;
        then all is as before. Nobody refuses to be healed: a node that does not do what it is asked for holds nothing.
        """
        async with self._changing:
            before = self.of(node_id)
            faults = change(before)
            former = faults_by_node(self._plan, self._wanted)
            self._set(node_id, faults)
            wanted = faults_by_node(self._plan, self._wanted)
            refusals = await self._ask()
            refusal = next((text for one, text in refusals.items() if wanted[one] != former[one]), None)
            if refusal is not None and faults != NONE:
                self._set(node_id, before)
                if self._wanted:
                    await self._ask()  # those that took it
                else:
                    self._disconnect()
                raise FaultSocketError(refusal)
            self._until_s.pop(node_id, None)
            if faults != NONE and duration_s is not None:
                self._until_s[node_id] = asyncio.get_running_loop().time() + duration_s
            if self._wanted and self._task is None:
                self._task = asyncio.create_task(self._keep())
        return before, faults

    def close(self) -> None:
        """Heal all nodes."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._wanted.clear()
        self._disconnect()

    def _set(self, node_id: int, faults: Faults) -> None:
        self._wanted.pop(node_id, None)
        if faults != NONE:
            self._wanted[node_id] = faults

    async def _ask(self) -> dict[int, str]:
        """Ask every node that runs, and is not paused, for what it does not hold yet; a sentence for each that refuses.

        All are asked at once, so that none waits for another that does not answer.
        """
        wanted = faults_by_node(self._plan, self._wanted)
        refusals = await asyncio.gather(*(self._refusal(one, faults) for one, faults in wanted.items()))
        return {one: text for one, text in zip(wanted, refusals, strict=True) if text is not None}

    async def _refusal(self, node_id: int, faults: NodeFaults) -> str | None:
        """Ask one node for these faults, unless it holds them; a sentence if it refuses, and holds none then."""
        pid = node_pid(self._plan.node(node_id))
        connection = self._connections.get(node_id)
        if connection is not None and connection.pid != pid:
            self._forget(node_id)
            connection = None
        if pid is None or is_paused(pid) or faults == self._asked.get(node_id, NodeFaults()):
            return None
        try:
            if connection is None:
                connection = self._connections[node_id] = FaultConnection(pid)
            await asyncio.to_thread(connection.inject, faults)
            self._asked[node_id] = faults
        except FaultSocketError as error:
            self._forget(node_id)
            return f"node {node_id} {error}"
        return None

    async def _keep(self) -> None:
        """End the faults whose time is over, and ask nodes that were started anew, as long as there are faults."""
        told: dict[int, str] = {}
        while self._wanted:
            await asyncio.sleep(LOOK_EVERY_S)
            async with self._changing:
                self._heal_in_time()
                refusals = await self._ask()
            for node_id, text in refusals.items():  # as of a node that is just starting
                if told.get(node_id) != text:
                    _logger.warning("%s", text)
            told = refusals
        self._task = None
        self._disconnect()

    def _heal_in_time(self) -> None:
        now = asyncio.get_running_loop().time()
        for node_id in [one for one, until_s in self._until_s.items() if until_s <= now]:
            del self._until_s[node_id]
            told = ", ".join(self.of(node_id).told)
            self._set(node_id, NONE)
            self._tell(f"node {node_id} is healed, after the time that was set: {told}")

    def _forget(self, node_id: int) -> None:
        self._asked.pop(node_id, None)
        connection = self._connections.pop(node_id, None)
        if connection is not None:
            connection.close()

    def _disconnect(self) -> None:
        for node_id in list(self._connections):
            self._forget(node_id)
