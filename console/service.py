"""The parts of a console, and what belongs to no part alone."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import Any

from ..cluster.client.cluster_client import ClusterClient
from ..runtime.ports import Runtime
from ..security.authorizer.acl_binding import AclOperation
from .actions.access import AccessActions
from .actions.groups import GroupActions
from .actions.storage import StorageActions
from .actions.topics import TopicActions
from .actions.transactions import TransactionActions
from .cluster_watch import ClusterWatch
from .errors import RequestRefusedError
from .fields import Fields
from .logins.rights import check_right_on_cluster
from .metrics.metrics_watch import MetricsWatch
from .picture import end_offsets
from .records.record_decoding import RecordDecoder
from .records.records_page import RecordsWanted, read_records
from .rehearsal.chaos_run import REPORT
from .rehearsal.probe import Probe
from .rehearsal.rehearsal import Rehearsal

_READERS_MAX = 4
"""Searches through records at a time."""


@dataclass(frozen=True, slots=True)
class SharedParts:
    """What all users of a console share. `rehearsal` is None where the cluster is not on this machine."""

    bootstrap: str
    runtime: Runtime
    decoder: RecordDecoder
    metrics: MetricsWatch
    rehearsal: Rehearsal | None
    is_read_only: bool


class ConsoleService:
    """One console of one cluster, for one user who has logged in, or for all without a `user`.

    `watching` is a client of its own for the live view, since that asks again and again.
    """

    def __init__(
        self, client: ClusterClient, watching: ClusterClient, shared: SharedParts, user: str | None = None
    ) -> None:
        self._shared = shared
        self._client = client
        self._readers = asyncio.Semaphore(_READERS_MAX)
        self.user = user
        self.is_read_only = shared.is_read_only
        rehearsal, runtime = shared.rehearsal, shared.runtime
        self.watch = ClusterWatch(watching, runtime.clock, None if rehearsal is None else rehearsal.cluster.nodes)
        self.topics = TopicActions(client)
        self.groups = GroupActions(client, runtime.clock, lambda: end_offsets(self.watch.picture))
        self.transactions = TransactionActions(client, runtime.clock)
        self.access = AccessActions(client, runtime.secret_bytes)
        self.storage = StorageActions(client)
        self.probe = Probe(client, runtime.clock, lambda: self.watch.is_watched)
        self.stopped = asyncio.Event()
        if rehearsal is not None:
            rehearsal.hearers.append(self.watch.tell)

    def stop(self) -> None:
        """End all streams, the watch and the probe."""
        self.stopped.set()
        self.watch.stop()
        self.probe.stop()
        rehearsal = self._shared.rehearsal
        if rehearsal is not None and self.watch.tell in rehearsal.hearers:
            rehearsal.hearers.remove(self.watch.tell)

    def new_client(self) -> ClusterClient:
        """A client with this user's login that has no connection yet."""
        return self._client.apart()

    def about(self) -> dict[str, Any]:
        """What the page has to know of this console."""
        rehearsal = self._shared.rehearsal
        return {
            "bootstrap": self._shared.bootstrap,
            "is_local": rehearsal is not None,
            "is_read_only": self.is_read_only,
            "user": self.user,
            "why_not_injected": None if rehearsal is None else rehearsal.cluster.why_not_injected(),
        }

    async def records(self, wanted: RecordsWanted) -> dict[str, Any]:
        """Records of a topic; a few searches run at a time, each on connections of its own."""
        async with self._readers, self._client.apart() as client:
            return await read_records(client, wanted, self._shared.decoder)

    async def requests(self, since_ms: int) -> dict[str, Any]:
        """What requests the nodes serve."""
        await self._check_right(AclOperation.DESCRIBE)
        return await self._shared.metrics.requests(since_ms)

    async def replicas(self, topic: str) -> dict[str, Any]:
        """Where the logs of a topic's replicas end, for those who may see the topic."""
        if self.user is not None:
            (await self._client.metadata([topic])).topic(topic)
        return await self._shared.metrics.replicas(topic)

    async def fault(self, fault: str, node_id: int, fields: Fields) -> dict[str, Any]:
        """Do something to a node of the local cluster."""
        rehearsal = self._local()
        await self._check_right(AclOperation.ALTER)
        done = await rehearsal.fault(fault, node_id, fields, self._who)
        self._client.ask_last(rehearsal.cluster.paused())
        return done

    @property
    def chaos_version(self) -> int:
        """Grows with each change of what `chaos` tells."""
        return 0 if self._shared.rehearsal is None else self._shared.rehearsal.chaos.version

    def chaos(self) -> dict[str, Any]:
        """The chaos run that goes on, or the last one."""
        return {"running": False} if self._shared.rehearsal is None else self._shared.rehearsal.chaos.as_row()

    async def chaos_faults(self) -> dict[str, Any]:
        """The faults that a chaos run can inject on this machine."""
        return {"faults": await self._local().chaos.faults()}

    def chaos_report(self) -> str | None:
        """The file of the last chaos run's report, if there is one."""
        output = self._local().chaos.output
        path = None if output is None else os.path.join(output, REPORT)
        return path if path is not None and os.path.exists(path) else None

    async def begin_chaos(self, fields: Fields) -> dict[str, Any]:
        """Begin a chaos run."""
        rehearsal = self._local()
        await self._check_right(AclOperation.ALTER)
        return await rehearsal.chaos.start(fields, self._who)

    async def end_chaos(self) -> dict[str, Any]:
        """End the faults of the chaos run, which is judged then."""
        rehearsal = self._local()
        await self._check_right(AclOperation.ALTER)
        return rehearsal.chaos.ask_to_stop()

    @property
    def _who(self) -> str:
        """Who does something, in the story."""
        return "this console" if self.user is None else self.user

    def _local(self) -> Rehearsal:
        if self._shared.rehearsal is None:
            raise RequestRefusedError(409, "faults need a cluster that raftwerk up started on this machine")
        return self._shared.rehearsal

    async def _check_right(self, operation: AclOperation) -> None:
        """Refuse a user who has not this right on the cluster; without users, the console's page is for all."""
        if self.user is not None:
            if self._shared.rehearsal is not None:
                self._client.ask_last(self._shared.rehearsal.cluster.paused())
            await check_right_on_cluster(self._client, operation)

    async def probing(self, *, start: bool) -> dict[str, Any]:
        """Begin or end the probe."""
        if start:
            await self.probe.start()
        else:
            self.probe.stop()
        return {"done": "the probe writes" if start else "the probe has ended"}
