"""A rolling upgrade in the simulator, while nodes die and are cut off, and often a downgrade after it.

The old software knows only the first form of metadata records. The nodes are restarted one by one with the new
software. Until the last of them has it, the controller must refuse the new level; then the level is requested until it
is finalized. For the downgrade the level is lowered first, and each node must have written a snapshot in the old form
before it is started with the old software. A node that ends by itself has read a record that it does not know, which
fails the run (`SimulatedCluster`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from ....cluster.client.client_errors import ClientError
from ....cluster.client.cluster_client import ClusterClient
from ....cluster.client.feature_client import set_features
from ....controller.metadata.features import SUPPORTED_FEATURES, VersionRanges
from ....controller.metadata.metadata_image import RECORD_VERSION_FEATURE
from ....controller.metadata.metadata_records import COMPACT_RECORDS, PLAIN_RECORDS
from ..invariants.invariant_broken import InvariantBroken
from ..simulated_cluster import OLD_FEATURES, SimulatedCluster
from .clients import ClientContext

_TIMEOUT_S = 2.0
_LOOK_S = 0.1
_READY_S = 3.0
_GOES_BACK = 0.7
"""The probability of a downgrade after the upgrade."""


class RollingUpgrade:
    """The administrator of the upgrade. It completes the upgrade even after `stop`. A `Workload`."""

    name = "upgrade"

    def __init__(self, context: ClientContext, cluster: SimulatedCluster) -> None:
        self._rng = context.rng
        self._cluster = cluster
        self._client = ClusterClient(context.bootstrap, client_id=self.name, timeout_s=_TIMEOUT_S, probe_timeout_s=None)
        self._waits_for = "it has not begun"
        self._finished = False
        self._features: VersionRanges = OLD_FEATURES
        self._level = PLAIN_RECORDS

    def stop(self) -> None:
        """Does nothing: the upgrade is completed."""

    async def run(self) -> None:
        """See `Workload`."""
        await self._restart_all(SUPPORTED_FEATURES)
        await self._finalize(COMPACT_RECORDS)
        await asyncio.sleep(self._rng.uniform(0.0, 1.0))
        if self._rng.random() < _GOES_BACK:
            before = self._known_offset()
            await self._finalize(PLAIN_RECORDS)
            await self._until_snapshots(before)
            await self._restart_all(OLD_FEATURES)
        self._finished = True

    def why_not_settled(self) -> str | None:
        """See `Workload`."""
        return None if self._finished else self._waits_for

    def check(self) -> None:
        """Every node runs the last software, and knows the last level that was finalized."""
        for node_id in self._cluster.ids:
            node = self._cluster.nodes.get(node_id)
            level = node.loader.image.record_level if node is not None and node.loader is not None else None
            if self._cluster.running_features.get(node_id) is not self._features or level != self._level:
                raise InvariantBroken("an upgrade ends as it was meant to", f"node {node_id}: level {level}")

    async def _restart_all(self, features: VersionRanges) -> None:
        self._features = features
        order = self._rng.sample(self._cluster.ids, len(self._cluster.ids))
        for node_id in order:
            if features is SUPPORTED_FEATURES:
                await self._check_refused(node_id)
            await self._restart(node_id, features)
            await asyncio.sleep(self._rng.uniform(0.0, 0.5))

    async def _check_refused(self, old: int) -> None:
        """The new level is refused while the node `old` has the old software."""
        try:
            await set_features(self._client, {RECORD_VERSION_FEATURE: COMPACT_RECORDS}, dry_run=True)
        except ClientError:
            return
        raise InvariantBroken("no level is finalized that a node does not know", f"node {old} does not")

    async def _restart(self, node_id: int, features: VersionRanges) -> None:
        """Stop the node cleanly, unless a fault kills it before; start it, and wait a while until it is ready."""
        cluster = self._cluster
        name = cluster.name_of(node_id)
        host = cluster.world.hosts[name]
        cluster.features[node_id] = features
        self._waits_for = f"node {node_id} has not got its new software"
        asked = None
        while cluster.running_features.get(node_id) is not features or not host.running:
            if not host.running:
                cluster.restart(name)
            elif host.process is not asked:
                asked = host.process
                cluster.stop(name)
            await asyncio.sleep(_LOOK_S)
        deadline_s = cluster.world.now_s + _READY_S
        await self._until(lambda: node_id in cluster.ready or cluster.world.now_s >= deadline_s)

    async def _finalize(self, level: int) -> None:
        """Request the level until it is finalized: nodes may not have registered again yet, and answers may be lost."""
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
        """Wait until each node has a snapshot that ends after `offset`."""
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
