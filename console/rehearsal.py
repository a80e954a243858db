"""Faults of a local cluster by a click: nodes are killed, paused, continued, stopped and started.

The processes are found by the cluster's directory, as `raftwerk kill` and `raftwerk start` find them.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping
from typing import Any

from ..cluster.local.layout import ClusterPlan, NodePlan, load_plan
from ..cluster.local.processes import is_paused, memory_bytes
from ..cluster.local.supervisor import LocalNodeError, Supervisor, node_pid, send_signal, stop_nodes
from .errors import RequestRefusedError
from .picture import DOWN, PAUSED, UP, Row

FAULTS: Mapping[str, str] = {
    "kill": "killed",
    "pause": "paused",
    "continue": "continued",
    "stop": "stopped",
    "start": "started",
}
"""What can be done to a node, and what is told when it was done."""
_SIGNALS = {"kill": signal.SIGKILL, "pause": signal.SIGSTOP, "continue": signal.SIGCONT}
_START_LIMIT_S = 30.0
_GONE_LIMIT_S = 10.0


class LocalCluster:
    """The processes of the local cluster in `directory`."""

    def __init__(self, directory: str) -> None:
        self._plan: ClusterPlan = load_plan(directory)
        self._starting: set[int] = set()

    @property
    def metrics_addresses(self) -> dict[int, str]:
        """The `host:port` of the metrics of each node that serves them."""
        found = {node.node_id: node.metrics_address for node in self._plan.nodes}
        return {node_id: address for node_id, address in found.items() if address is not None}

    def nodes(self) -> dict[int, Row]:
        """The state of each node's process."""
        found: dict[int, Row] = {}
        for node in self._plan.nodes:
            pid = node_pid(node)
            state = DOWN if pid is None else PAUSED if is_paused(pid) else UP
            size = None if pid is None else memory_bytes(pid)
            found[node.node_id] = {"state": state, "pid": pid, "memory_bytes": size}
        return found

    async def carry_out(self, fault: str, node_id: int) -> dict[str, Any]:
        """Do one of `FAULTS` to a node; raises `RequestRefusedError` where that cannot be."""
        try:
            node = self._plan.node(node_id)
        except KeyError:
            raise RequestRefusedError(404, f"there is no node {node_id} in this cluster") from None
        if fault not in FAULTS:
            raise RequestRefusedError(404, f"{fault} is none of {', '.join(FAULTS)}")
        pid = node_pid(node)
        if fault == "start":
            if pid is not None:
                raise RequestRefusedError(409, f"node {node_id} is already running")
            await self._start(node_id)
        elif pid is None:
            raise RequestRefusedError(409, f"node {node_id} is not running")
        elif fault == "stop":
            await asyncio.to_thread(stop_nodes, [node])
        else:
            send_signal(pid, _SIGNALS[fault])
            if fault == "kill":
                await _gone(node, pid)
        return {"done": f"{FAULTS[fault]} node {node_id}"}

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
