"""Observes leaders, in-sync replicas and the active controller as a client, and writes every change.

It also writes when it was itself woken much too late. Then the machine was stalled, and a gap between acks may not be a
fault of the cluster.

`python -m raftwerk.chaos.live.load.cluster_observer TASK`.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Collection
from typing import Any

from ....cluster.client.client_errors import ClientError
from ....cluster.client.cluster_client import ClusterClient, ClusterView
from ....cluster.client.quorum_client import QuorumClient
from ..history import HistoryWriter
from .load_task import Task, asked_to_stop, use_login

_EVERY_S = 0.2
_STALL_NS = 200_000_000
_TIMEOUT_S = 1.0


async def observe(task: Task) -> None:
    """Write every change until standard input ends."""
    use_login(task.client_properties)
    history = HistoryWriter(task.history, task.process)
    history.begin()
    last: dict[str, Any] | None = None
    while not asked_to_stop():
        with contextlib.suppress(ClientError, OSError, TimeoutError):
            async with asyncio.timeout(_TIMEOUT_S * 3):
                seen = await look(task.bootstrap, task.topic)
            if seen != last:
                history.event("info", "cluster", start=time.monotonic_ns(), **seen)
                history.flush()
                last = seen
        before_ns = time.monotonic_ns()
        await asyncio.sleep(_EVERY_S)
        late_ns = time.monotonic_ns() - before_ns - int(_EVERY_S * 1e9)
        if late_ns > _STALL_NS:
            history.event("info", "stall", start=time.monotonic_ns() - late_ns, end=time.monotonic_ns())
    history.close()


async def look(bootstrap: str, topic: str) -> dict[str, Any]:
    """The leaders and in-sync replicas of all partitions, and the active controller."""
    async with ClusterClient(bootstrap, timeout_s=_TIMEOUT_S) as client:
        partitions = (await client.metadata([topic])).topic(topic).partitions
        controller = None
        with contextlib.suppress(ClientError, OSError):
            controller = await QuorumClient(client).leader_id()
    leaders = [one.leader for one in partitions]
    return {"leaders": leaders, "isr": [list(one.isr) for one in partitions], "controller": controller}


async def what_is_not_in_sync(bootstrap: str, topics: Collection[str]) -> str | None:
    """The first replica of these and of the internal topics that is not in sync, or broker that does not answer.

    None if all is well. A broker that has just been paused counts as live and in sync, and does not answer.
    """
    async with ClusterClient(bootstrap, timeout_s=_TIMEOUT_S) as client:
        view = await client.metadata()
        missing = out_of_sync(view, topics)
        if missing is None:
            for node_id, reason in (await client.silences(one.node_id for one in view.brokers)).items():
                return f"node {node_id} {reason}"
        return missing


def out_of_sync(view: ClusterView, topics: Collection[str]) -> str | None:
    """The first partition of these and of the internal topics that lacks a leader or a replica in sync."""
    absent = [topic for topic in topics if topic not in {one.name for one in view.topics}]
    if absent:
        return f"{absent[0]} is not there"
    for topic in view.topics:
        for one in topic.partitions if topic.internal or topic.name in topics else ():
            if one.leader < 0 or one.is_under_replicated:
                return f"{topic.name}-{one.partition} has leader {one.leader} and in-sync replicas {list(one.isr)}"
    return None


if __name__ == "__main__":
    asyncio.run(observe(Task.from_argument(sys.argv[1])))
