"""A rolling upgrade in the simulator, while nodes die and are cut off: from software that knows the first form of
metadata records only to that of today, and often back again.

The nodes are restarted one by one. Before the last of them is, the new form must not be had; when all know it, it is
asked for until it is in force. On the way back the level is lowered first, and each node has to have written a snapshot
in the older form before it is started with the older software. A node that ends by itself on the way has read what it
does not know: that fails the run (`SimulatedCluster`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from ....cluster.client.client_errors import ClientError
from ....cluster.client.cluster_client import ClusterClient
from ....cluster.client.feature_client import set_features
from ....controller.metadata.features import SUPPORTED_FEATURES, Ranges
from ....controller.metadata.metadata_image import RECORD_VERSION_FEATURE
from ....controller.metadata.metadata_records import COMPACT_RECORDS, PLAIN_RECORDS
from ..invariants.invariant_broken import InvariantBroken
from ..simulated_cluster import OLD_SOFTWARE, SimulatedCluster
from .clients import ClientContext

_TIMEOUT_S = 2.0
_LOOK_S = 0.1
_READY_S = 3.0
_GOES_BACK = 0.7
"""How often the cluster goes back to where it was."""


class RollingUpgrade:
    """An `Workload` that goes through with what it began, however long `stop` was asked for."""

    name = "upgrade"

    def __init__(self, context: ClientContext, cluster: SimulatedCluster) -> None:
        self._rng = context.rng
        self._cluster = cluster
        self._client = ClusterClient(context.bootstrap, client_id=self.name, timeout_s=_TIMEOUT_S)
        self._waits_for = "it has not begun"
        self._finished = False
        self._software: Ranges = OLD_SOFTWARE
        self._level = PLAIN_RECORDS

    def stop(self) -> None:
        """Half an upgrade is none."""

    async def run(self) -> None:
        await self._restart_all(SUPPORTED_FEATURES)
        await self._finalize(COMPACT_RECORDS)
        await asyncio.sleep(self._rng.uniform(0.0, 1.0))
        if self._rng.random() < _GOES_BACK:
            before = self._known_offset()
            await self._finalize(PLAIN_RECORDS)
            await self._until_snapshots(before)
            await self._restart_all(OLD_SOFTWARE)
        self._finished = True

    def why_not_settled(self) -> str | None:
        return None if self._finished else self._waits_for

    def check(self) -> None:
        """Every node runs what it shall, and knows the level that was asked for."""
        for node_id in self._cluster.ids:
            node = self._cluster.nodes.get(node_id)
            level = node.loader.image.record_level if node is not None and node.loader is not None else None
            if self._cluster.runs_software.get(node_id) is not self._software or level != self._level:
                raise InvariantBroken("an upgrade ends as it was meant to", f"node {node_id}: level {level}")

    async def _restart_all(self, software: Ranges) -> None:
        self._software = software
        order = self._rng.sample(self._cluster.ids, len(self._cluster.ids))
        for node_id in order:
            if software is SUPPORTED_FEATURES:
                await self._ask_too_early(node_id)
            await self._restart(node_id, software)
            await asyncio.sleep(self._rng.uniform(0.0, 0.5))

    async def _ask_too_early(self, old: int) -> None:
        try:
            await set_features(self._client, {RECORD_VERSION_FEATURE: COMPACT_RECORDS}, dry_run=True)
        except ClientError:
            return
        raise InvariantBroken("no level is finalized that a node does not know", f"node {old} does not")

    async def _restart(self, node_id: int, software: Ranges) -> None:
        """Stopped as an operator does, if nobody kills it before; then wait a while until it serves."""
        cluster = self._cluster
        name = cluster.name_of(node_id)
        host = cluster.world.hosts[name]
        cluster.software[node_id] = software
        self._waits_for = f"node {node_id} has not got its new software"
        asked = None
        while cluster.runs_software.get(node_id) is not software or not host.running:
            if not host.running:
                cluster.restart(name)
            elif host.process is not asked:
                asked = host.process
                cluster.stop(name)
            await asyncio.sleep(_LOOK_S)
        deadline_s = cluster.world.now_s + _READY_S
        await self._until(lambda: node_id in cluster.ready or cluster.world.now_s >= deadline_s)

    async def _finalize(self, level: int) -> None:
        """Asked for again and again: some have not registered yet with what they know now, some answers are lost."""
        self._waits_for = f"level {level} is not in force"
        while True:
            try:
                is_down = level < self._level
                await set_features(self._client, {RECORD_VERSION_FEATURE: level}, downgrade=is_down, dry_run=False)
            except ClientError:
                await asyncio.sleep(_LOOK_S)
            else:
                self._level = level
                return

    def _known_offset(self) -> int:
        loaders = [node.loader for node in self._cluster.nodes.values()]
        return max((loader.image.offset for loader in loaders if loader is not None), default=-1)

    async def _until_snapshots(self, offset: int) -> None:
        """Each node has one of what came after `offset`."""
        for node_id in self._cluster.ids:
            self._waits_for = f"node {node_id} has no snapshot in the older form"
            await self._until(partial(self._has_snapshot, node_id, offset))

    def _has_snapshot(self, node_id: int, offset: int) -> bool:
        end = self._cluster.snapshot_end(node_id)
        return end is not None and end > offset + 1

    async def _until(self, holds: Callable[[], bool]) -> None:
        while True:
            if holds():
                return
            await asyncio.sleep(_LOOK_S)
