"""Faults of a local cluster by a click: nodes are killed, paused, stopped, cut off, slowed, and their disks filled.

The processes are found by the cluster's directory, as `raftwerk kill` and `raftwerk start` find them. Faults that can
be healed without a start of the node may have a duration, and are healed at the latest when the console ends.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import replace

from ...cluster.client.access.bootstrap import parse_bootstrap
from ...cluster.client.client_errors import Address
from ...cluster.command_line.cluster_address import options_of
from ...cluster.local.layout import ClusterPlan, NodePlan, load_plan
from ...cluster.local.processes import is_paused, memory_bytes
from ...cluster.local.supervisor import LocalNodeError, Supervisor, node_pid, send_signal, stop_nodes
from ...runtime.faults.fault_socket import FaultSocketError
from ..errors import RequestRefusedError
from ..fields import Fields, number
from ..picture import DOWN, PAUSED, UP, Row
from .injected_faults import NONE, Faults, InjectedFaults

PROCESS_FAULTS: Mapping[str, str] = {
    "kill": "killed",
    "pause": "paused",
    "continue": "continued",
    "stop": "stopped",
    "start": "started",
}
"""What can be done to a node's process, and what is told when it was done."""
INJECTED_FAULTS = ("cut", "slow", "fill", "heal")
"""What a node does to itself, where it allows that."""
_SIGNALS = {"kill": signal.SIGKILL, "pause": signal.SIGSTOP, "continue": signal.SIGCONT}
_SETTING = "fault.injection.enable"
_START_LIMIT_S = 30.0
_GONE_LIMIT_S = 10.0
_DURATION_MAX_S = 3600
_DELAY_MAX_MS = 10_000


class LocalCluster:
    """The processes of the local cluster in `directory`. `tell` gets a sentence when a fault ends by itself."""

    def __init__(self, directory: str, tell: Callable[[str], None]) -> None:
        self.directory = directory
        self._plan: ClusterPlan = load_plan(directory)
        self._tell = tell
        self._starting: set[int] = set()
        self._paused: dict[int, tuple[int, asyncio.TimerHandle | None]] = {}
        """The process ids of nodes that were paused here, and what continues those whose pause has a duration."""
        self._injected = InjectedFaults(self._plan, tell)

    def stop(self) -> None:
        """Heal what can be healed without starting a node: injected faults, and pauses."""
        self._injected.close()
        for node_id in list(self._paused):
            self._end_pause(node_id)

    def why_not_injected(self) -> str | None:
        """Why nodes cannot be cut off, slowed or filled, with the command that lets them; None where they can."""
        if all(node.properties.get(_SETTING) == "true" for node in self._plan.nodes):
            return None
        where = options_of(self.directory)
        return (
            "To cut nodes off, slow them or fill their disks, start the cluster with that allowed: "
            f"raftwerk down{where}, then raftwerk up{where} --console -o {_SETTING}=true"
        )

    @property
    def metrics_addresses(self) -> dict[int, str]:
        """The `host:port` of the metrics of each node that serves them."""
        found = {node.node_id: node.metrics_address for node in self._plan.nodes}
        return {node_id: address for node_id, address in found.items() if address is not None}

    def nodes(self) -> dict[int, Row]:
        """The state of each node's process; nodes that `raftwerk shrink` has taken out are none any more."""
        found: dict[int, Row] = {}
        for node in self._nodes_left():
            pid = node_pid(node)
            state = DOWN if pid is None else PAUSED if is_paused(pid) else UP
            size = None if pid is None else memory_bytes(pid)
            faults = self._injected.of(node.node_id).told
            found[node.node_id] = {"state": state, "pid": pid, "memory_bytes": size, "faults": faults}
        return found

    def paused(self) -> list[Address]:
        """Where the brokers listen whose processes are paused."""
        found = [(node, node_pid(node)) for node in self._nodes_left()]
        paused = [node for node, pid in found if pid is not None and is_paused(pid)]
        return [at for node in paused for one in node.addresses for at in parse_bootstrap(one)]

    def _nodes_left(self) -> list[NodePlan]:
        return [node for node in self._plan.nodes if os.path.exists(node.properties_file)]

    async def carry_out(self, fault: str, node_id: int, fields: Fields) -> str:
        """Do something to a node, and tell what was done; raises `RequestRefusedError` where that cannot be.

        `duration_s` of the fields is how long it lasts, -1 or nothing until it is healed.
        """
        node = next((node for node in self._nodes_left() if node.node_id == node_id), None)
        if node is None:
            raise RequestRefusedError(404, f"there is no node {node_id} in this cluster")
        duration_s = number(fields, "duration_s", -1, at_most=_DURATION_MAX_S)
        lasts_s = duration_s if duration_s > 0 else None
        if fault in PROCESS_FAULTS:
            return await self._signal(fault, node, lasts_s)
        if fault in INJECTED_FAULTS:
            return await self._inject(fault, node_id, fields, lasts_s)
        raise RequestRefusedError(404, f"{fault} is none of {', '.join((*PROCESS_FAULTS, *INJECTED_FAULTS))}")

    async def _signal(self, fault: str, node: NodePlan, lasts_s: int | None) -> str:
        pid, node_id = node_pid(node), node.node_id
        if fault == "start":
            if pid is not None:
                raise RequestRefusedError(409, f"node {node_id} is already running")
            await self._start(node_id)
        elif pid is None:
            raise RequestRefusedError(409, f"node {node_id} is not running")
        elif fault == "stop":
            await asyncio.to_thread(stop_nodes, [node])
        else:
            self._end_pause(node_id, is_to_continue=False)
            send_signal(pid, _SIGNALS[fault])
            if fault == "kill":
                await _gone(node, pid)
        lasting = ""
        if fault == "pause" and pid is not None:
            timer = None
            if lasts_s is not None:
                timer = asyncio.get_running_loop().call_later(lasts_s, self._end_pause_in_time, node_id)
                lasting = f" for {lasts_s} s"
            self._paused[node_id] = (pid, timer)
        return f"{PROCESS_FAULTS[fault]} node {node_id}{lasting}"

    def _end_pause_in_time(self, node_id: int) -> None:
        self._end_pause(node_id)
        self._tell(f"node {node_id} continues, after the time that was set")

    def _end_pause(self, node_id: int, *, is_to_continue: bool = True) -> None:
        """Forget the pause of a node, if it has one; continue the process that was paused if it is still the node's."""
        pid, timer = self._paused.pop(node_id, (None, None))
        if timer is not None:
            timer.cancel()
        if is_to_continue and pid is not None and node_pid(self._plan.node(node_id)) == pid:
            send_signal(pid, signal.SIGCONT)

    async def _inject(self, fault: str, node_id: int, fields: Fields, lasts_s: int | None) -> str:
        """Add a fault to those of the node, or heal all of them. `delay_ms` of the fields is for `slow`."""
        why_not = self.why_not_injected()
        if why_not is not None:
            raise RequestRefusedError(409, why_not)
        delay_ms = number(fields, "delay_ms", 200, at_most=_DELAY_MAX_MS)
        if delay_ms < 1:
            raise RequestRefusedError(400, f"delay_ms is 1 to {_DELAY_MAX_MS}")

        def changed(now: Faults) -> Faults:
            if fault == "cut":
                return replace(now, is_cut=True)
            if fault == "fill":
                return replace(now, is_disk_full=True)
            if fault == "slow":
                return replace(now, delay_ms=delay_ms)
            if now == NONE:
                raise RequestRefusedError(409, f"node {node_id} has nothing to heal")
            return NONE

        try:
            before, after = await self._injected.inject(node_id, changed, lasts_s)
        except FaultSocketError as error:
            raise RequestRefusedError(409, str(error)) from None
        lasting = "" if lasts_s is None else f" for {lasts_s} s"
        if after == NONE:
            return f"healed node {node_id}: {', '.join(before.told)}"
        return f"node {node_id} is now: {', '.join(after.told)}{lasting}"

    async def _start(self, node_id: int) -> None:
        if node_id in self._starting:
            raise RequestRefusedError(409, f"node {node_id} is being started")
        self._starting.add(node_id)
        try:
            await asyncio.to_thread(self._start_and_wait, node_id)
        except LocalNodeError as error:
            raise RequestRefusedError(500, str(error)) from None
        finally:
            self._starting.discard(node_id)

    def _start_and_wait(self, node_id: int) -> None:
        supervisor = Supervisor(self._plan, detach=True)
        try:
            supervisor.start_node(node_id)
            supervisor.wait_ready([node_id], _START_LIMIT_S)
        finally:
            supervisor.leave_running()


async def _gone(node: NodePlan, pid: int) -> None:
    """Return when a process that was killed is there no more; a disk that hangs may keep it."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _GONE_LIMIT_S
    while node_pid(node) == pid:
        if loop.time() > deadline:
            raise RequestRefusedError(500, f"node {node.node_id} is still running; see {node.log_file}")
        await asyncio.sleep(0.01)
