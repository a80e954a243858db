"""A node on sockets within this process, so that a test can put bugs into it while it runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from raftwerk.cluster.local.layout import ClusterShape, plan_cluster
from raftwerk.cluster.node.formatting import FirstVoters, format_node
from raftwerk.cluster.node.node import Node
from raftwerk.cluster.settings.node_config import NodeConfig
from raftwerk.runtime.loop import real_runtime


@asynccontextmanager
async def node_in_process(directory: Path, settings: Mapping[str, str]) -> AsyncIterator[int]:
    """The port of a broker that is its own controller, and ready."""
    plan = plan_cluster(str(directory), ClusterShape(brokers=1, port=0, overrides=dict(settings)))
    (planned,) = plan.nodes
    config = NodeConfig.from_properties(planned.properties)
    runtime = real_runtime()
    first = FirstVoters(initial=plan.first_voters)
    format_node(config, runtime, plan.cluster_id, ignore_formatted=False, first_voters=first)
    node = Node(config, runtime)
    try:
        await node.start()
        await node.ready()
        yield int(plan.bootstrap.rpartition(":")[2])
    finally:
        await node.stop()
