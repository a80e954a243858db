"""A cluster in the event loop of a test: real nodes on real sockets, without processes, for ordinary asyncio tests."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from ..cluster.client.cluster_client import ClusterClient
from ..cluster.local.layout import ClusterPlan, ClusterShape, NodePlan, plan_cluster
from ..cluster.node.formatting import FirstVoters, format_node
from ..cluster.node.node import Node
from ..cluster.settings.node_config import load_config
from ..runtime.loop import real_runtime
from .cluster_operations import ClusterOperations, texts_of, wait_until_known

T = TypeVar("T")
_PREFIX = "raftwerk-in-process-"
_START_TIMEOUT_S = 30.0


class InProcessCluster(ClusterOperations):
    """Nodes 1 to N in this event loop. What blocks the loop blocks them, too."""

    def __init__(self, plan: ClusterPlan) -> None:
        self._plan = plan
        self._nodes: dict[int, Node] = {}

    @property
    def bootstrap(self) -> str:
        """`bootstrap.servers` for any client, also of other processes."""
        return self._plan.bootstrap

    @property
    def node_ids(self) -> list[int]:
        """The ids of all nodes, running or not."""
        return [plan.node_id for plan in self._plan.nodes]

    async def kill(self, node_id: int) -> None:
        """End a node without a clean stop: it hands nothing over. Raises `ValueError` where it does not run."""
        self._plan_of(node_id)
        node = self._nodes.pop(node_id, None)
        if node is None:
            raise ValueError(f"node {node_id} does not run")
        await node.stop(graceful=False)

    async def restart(self, *node_ids: int) -> None:
        """Start nodes again, after a clean stop of those that run; returns when they serve.

        Where a majority is down, start as many at once, since a node serves when there is a controller. Raises
        `TimeoutError` when they do not serve within 30 seconds, and `ValueError` for a node that does not exist.
        """
        plans = [self._plan_of(node_id) for node_id in node_ids]
        running = [self._nodes.pop(plan.node_id) for plan in plans if plan.node_id in self._nodes]
        await asyncio.gather(*(node.stop() for node in running))
        await self._start(plans)

    async def start(self) -> None:
        """Start all nodes; returns when they serve. `cluster` does it."""
        await self._start(self._plan.nodes)

    async def stop(self) -> None:
        """Stop all nodes. `cluster` does it."""
        nodes, self._nodes = list(self._nodes.values()), {}
        await asyncio.gather(*(node.stop(graceful=False) for node in nodes))

    async def _start(self, plans: Sequence[NodePlan]) -> None:
        for plan in plans:
            config = load_config(None, overrides=[f"{name}={value}" for name, value in plan.properties.items()])
            runtime = real_runtime()
            first = FirstVoters(initial=self._plan.first_voters)
            format_node(config, runtime, self._plan.cluster_id, ignore_formatted=True, first_voters=first)
            node = self._nodes[plan.node_id] = Node(config, runtime)
            await node.start()
        nodes = [self._nodes[plan.node_id] for plan in plans]
        try:
            async with asyncio.timeout(_START_TIMEOUT_S):
                await asyncio.gather(*(_served(node) for node in nodes))
        except TimeoutError:
            raise TimeoutError(self._why_late(plans)) from None

    def _why_late(self, plans: Sequence[NodePlan]) -> str:
        names = ", ".join(str(plan.node_id) for plan in plans)
        late = f"nodes that do not serve within {_START_TIMEOUT_S:g} s: {names}"
        down = [str(node_id) for node_id in self.node_ids if node_id not in self._nodes]
        if len(down) * 2 < len(self.node_ids):
            return late
        return f"{late}; they need a controller, and so a majority: restart {', '.join(down)} with them in one call"

    def _plan_of(self, node_id: int) -> NodePlan:
        for plan in self._plan.nodes:
            if plan.node_id == node_id:
                return plan
        raise ValueError(f"there is no node {node_id}, only {', '.join(map(str, self.node_ids))}")

    async def create_topic(
        self, name: str, *, partitions: int = 1, replicas: int = -1, config: Mapping[str, object] | None = None
    ) -> None:
        """Create a topic, and wait until all running brokers show it with its leaders.

        Raises `RefusedError` for what the cluster refuses.
        """
        await super().create_topic(name, partitions=partitions, replicas=replicas, config=config)
        await wait_until_known(name, [self._plan_of(node_id).addresses[0] for node_id in self._nodes])

    def _wall_ms(self) -> int:
        return round(time.time() * 1000)

    async def _ask(self, ask: Callable[[ClusterClient], Coroutine[Any, Any, T]]) -> T:
        async with ClusterClient(self.bootstrap, timeout_s=10.0) as client:
            return await ask(client)


async def _served(node: Node) -> None:
    """Wait until the node serves; raises its error when it fails before."""
    ready, failed = asyncio.ensure_future(node.ready()), asyncio.ensure_future(node.wait_failed())
    try:
        done, _ = await asyncio.wait((ready, failed), return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        ready.cancel()
        failed.cancel()


@asynccontextmanager
async def cluster(nodes: int = 1, *, settings: Mapping[str, object] | None = None) -> AsyncIterator[InProcessCluster]:
    """A cluster for `async with`, on free ports of this machine, with data in a temporary directory.

    `settings` are server.properties of every node. Raises `ConfigError` for settings that do not exist or cannot have
    their value, and `ValueError` for an impossible number of nodes.
    """
    if not isinstance(nodes, int):
        raise ValueError(f"nodes={nodes!r}: it is a number of nodes")
    directory = tempfile.mkdtemp(prefix=_PREFIX)
    try:
        plan = plan_cluster(directory, ClusterShape(nodes, port=0, overrides=texts_of(settings or {})))
        started = InProcessCluster(plan)
        try:
            await started.start()
            yield started
        finally:
            await started.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
