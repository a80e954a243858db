"""The parts of a console, and what belongs to no part alone."""

from __future__ import annotations

import asyncio
from typing import Any

from ..cluster.client.cluster_client import ClusterClient
from ..registry.data.schema_client import SchemaClient
from ..runtime.http.client import fetch
from ..runtime.ports import Runtime
from .actions.access import AccessActions
from .actions.groups import GroupActions
from .actions.storage import StorageActions
from .actions.topics import TopicActions
from .actions.transactions import TransactionActions
from .cluster_watch import ClusterWatch
from .errors import RequestRefusedError
from .metrics.metrics_watch import MetricsWatch
from .picture import end_offsets
from .probe import Probe
from .records.record_decoding import RecordDecoder
from .records.records_page import RecordsWanted, read_records
from .rehearsal import LocalCluster

_READERS_MAX = 4
"""Searches through records at a time."""


class ConsoleService:
    """One console of one cluster. `local` is the cluster's directory on this machine, if it is here.
    `schemas` has the schemas of a registry, if there is one.

    `watching` is a client of its own for the live view, since that asks again and again.
    """

    def __init__(
        self,
        client: ClusterClient,
        watching: ClusterClient,
        runtime: Runtime,
        *,
        bootstrap: str,
        local: LocalCluster | None,
        is_read_only: bool,
        schemas: SchemaClient | None = None,
    ) -> None:
        self._bootstrap = bootstrap
        self._client = client
        self._local = local
        self._decoder = RecordDecoder(schemas)
        self._readers = asyncio.Semaphore(_READERS_MAX)
        self.is_read_only = is_read_only
        self.watch = ClusterWatch(watching, runtime.clock, None if local is None else local.nodes)
        self.topics = TopicActions(client)
        self.groups = GroupActions(client, runtime.clock, lambda: end_offsets(self.watch.picture))
        self.transactions = TransactionActions(client, runtime.clock)
        self.access = AccessActions(client, runtime.secret_bytes)
        self.storage = StorageActions(client)
        self.metrics = MetricsWatch(None if local is None else local.metrics_addresses, fetch, runtime.clock)
        self.probe = Probe(client, runtime.clock, lambda: self.watch.is_watched)
        self.stopped = asyncio.Event()

    def stop(self) -> None:
        """End all streams, the watch and the probe."""
        self.stopped.set()
        self.watch.stop()
        self.probe.stop()

    def about(self) -> dict[str, Any]:
        """What the page has to know of this console."""
        return {
            "bootstrap": self._bootstrap,
            "is_local": self._local is not None,
            "is_read_only": self.is_read_only,
        }

    async def records(self, wanted: RecordsWanted) -> dict[str, Any]:
        """Records of a topic; a few searches run at a time, each on connections of its own."""
        async with self._readers, self._client.apart() as client:
            return await read_records(client, wanted, self._decoder)

    async def fault(self, fault: str, node_id: int) -> dict[str, Any]:
        """Do something to a node of the local cluster."""
        if self._local is None:
            raise RequestRefusedError(409, "faults need a cluster that raftwerk up started on this machine")
        done = await self._local.carry_out(fault, node_id)
        self.watch.tell(f"{done['done']}, by this console")
        return done

    async def probing(self, *, start: bool) -> dict[str, Any]:
        """Begin or end the probe."""
        if start:
            await self.probe.start()
        else:
            self.probe.stop()
        return {"done": "the probe writes" if start else "the probe has ended"}
