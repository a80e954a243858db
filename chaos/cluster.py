"""Whole nodes in the simulator: `cluster.node.Node`, unmodified, on simulated hosts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..cluster.config import NodeConfig
from ..cluster.formatting import format_node
from ..cluster.node import Node
from ..raft.driver import metadata_log_dir
from ..runtime.ports import Runtime
from .partition_checks import PartitionChecker
from .quorum_checks import QuorumChecker
from .sim_loop import ProcessLoop
from .world import World

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
LOG_DIR = "/data"
BROKER_PORT = 9092
CONTROLLER_PORT = 9093


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """`properties` go to every node on top of the simulator's own."""

    nodes: int = 3
    properties: Mapping[str, str] = field(default_factory=dict)


class SimCluster:
    """Nodes n1 to nN, combined broker and controller, watched by the checkers. A `scenario.Target`."""

    def __init__(self, world: World, config: ClusterConfig) -> None:
        self.world = world
        self.config = config
        self.ids = list(range(1, config.nodes + 1))
        self.names = [f"n{node_id}" for node_id in self.ids]
        self.nodes: dict[int, Node] = {}
        self.ready: dict[int, None] = {}
        self.quorum = QuorumChecker(self.ids, world.trace.note)
        self.partitions = PartitionChecker(world.trace.note)
        self._watched: dict[int, None] = {}
        self._node_of = {name: node_id for node_id, name in zip(self.ids, self.names, strict=True)}
        world.scheduler.after_event = self._after_event
        for name in self.names:
            world.add_host(name)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{name}:{BROKER_PORT}" for name in self.names)

    def start_all(self) -> None:
        for name in self.names:
            self.restart(name)

    def properties(self, node_id: int) -> dict[str, str]:
        """server.properties of one node."""
        name = f"n{node_id}"
        return {
            "node.id": str(node_id),
            "process.roles": "broker,controller",
            "listeners": f"PLAINTEXT://{name}:{BROKER_PORT},CONTROLLER://{name}:{CONTROLLER_PORT}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": ",".join(f"{each}@n{each}:{CONTROLLER_PORT}" for each in self.ids),
            "log.dirs": LOG_DIR,
            "default.replication.factor": str(len(self.ids)),
            "min.insync.replicas": str(len(self.ids) // 2 + 1),
            **self.config.properties,
        }

    # -- Target

    def resolve(self, target: str) -> str | None:
        """`controller`, `leader` (of the first topic's first partition), or a name."""
        if target == "controller":
            return None if self.quorum.leader is None else f"n{self.quorum.leader}"
        if target == "leader":
            leader = self._first_leader()
            return None if leader is None else f"n{leader}"
        return target

    def crash(self, name: str, *, power_loss: bool) -> None:
        node_id = self._node_of[name]
        self.quorum.forget(node_id)
        self.partitions.forget(node_id, power_loss=power_loss)
        for known in (self.nodes, self.ready, self._watched):
            known.pop(node_id, None)
        self.world.hosts[name].crash(power_loss=power_loss)

    def restart(self, name: str) -> None:
        self.world.hosts[name].start(self._program(self._node_of[name]))

    def stop(self, name: str) -> None:
        """SIGTERM: the node hands over and ends by itself."""
        node_id = self._node_of[name]
        node, process = self.nodes.get(node_id), self.world.hosts[name].process
        if node is None or process is None:
            return
        self.world.trace.note(name, "STOPPING")

        async def stop() -> None:
            await node.stop()
            self.world.trace.note(name, "STOPPED")
            process.call_soon(lambda: self.crash(name, power_loss=False))

        process.call_soon(lambda: process.create_task(stop()))

    # -- the state of things

    def whole(self) -> bool:
        """All nodes are ready, every partition has a leader, all ISRs are full, all replicas have caught up."""
        return self.why_not_whole() is None

    def why_not_whole(self) -> str | None:
        """What `whole` waits for."""
        for node_id in self.ids:
            if node_id not in self.ready:
                return f"n{node_id} is not ready"
        leader = self.quorum.leader
        if leader is None:
            return "no controller"
        loader = self.nodes[leader].loader
        return "no metadata" if loader is None else self.partitions.describe_lag(loader.image)

    def _first_leader(self) -> int | None:
        controller = self.nodes.get(self.quorum.leader or 0)
        if controller is None or controller.loader is None:
            return None
        for topic in controller.loader.image.topics_by_id.values():
            for registration in topic.partitions.values():
                return registration.leader if registration.leader >= 0 else None
        return None

    # -- processes

    def _program(self, node_id: int) -> Callable[[Runtime], Coroutine[Any, Any, None]]:
        async def main(runtime: Runtime) -> None:
            config = NodeConfig.from_properties(self.properties(node_id))
            format_node(config, runtime, CLUSTER_ID, ignore_formatted=True)
            node = self.nodes[node_id] = Node(config, runtime)
            await node.start()
            ready = asyncio.get_running_loop().create_task(node.ready(), name=f"n{node_id} ready")
            ready.add_done_callback(lambda done: self._on_ready(node_id, done))
            await node.wait_failed()

        return main

    def _on_ready(self, node_id: int, done: asyncio.Task[None]) -> None:
        if not done.cancelled() and done.exception() is None:
            self.world.trace.note(f"n{node_id}", "ready")
            self.ready[node_id] = None

    def _after_event(self, process: ProcessLoop) -> None:
        node_id = self._node_of.get(process.name)
        if node_id is None:
            return
        if node_id not in self._watched:
            self._watch(node_id)
        self.quorum.after_event(node_id)
        self.partitions.after_event(node_id)

    def _watch(self, node_id: int) -> None:
        node = self.nodes.get(node_id)
        if node is None or node.raft is None or node.loader is None or node.replica_manager is None:
            return
        disk = self.world.hosts[f"n{node_id}"].disk
        path = f"{metadata_log_dir(LOG_DIR)}/quorum-state"
        self.quorum.watch(node_id, node.raft, lambda: disk.read_bytes(path))
        self.partitions.watch(node_id, node.replica_manager, node.loader)
        self._watched[node_id] = None
