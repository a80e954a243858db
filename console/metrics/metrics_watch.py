"""Reads the metrics of the nodes of a local cluster while a page shows them, at most every two seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from ...runtime.http.client import Fetch, HttpError, HttpRequest
from ...runtime.ports import Clock
from .node_metrics import MetricsHistory, NodeMetrics, parse_metrics

PERIOD_MS = 2000
_TIMEOUT_S = 2.0
_NOT_LOCAL = "metrics are read of a cluster that raftwerk up started on this machine"
_NOT_SERVED = "the nodes serve no metrics: raftwerk up --metrics-port 0 lets them"


class MetricsWatch:
    """The figures of the nodes at `addresses` (`host:port` by id); None where the cluster is not local."""

    def __init__(self, addresses: Mapping[int, str] | None, fetch: Fetch, clock: Clock) -> None:
        self._addresses = addresses or {}
        self._why_none = _NOT_LOCAL if addresses is None else None if addresses else _NOT_SERVED
        self._fetch = fetch
        self._clock = clock
        self._history = MetricsHistory()
        self._answering: list[int] = []
        self._looked_ms = 0
        self._looking = asyncio.Lock()

    async def requests(self, since_ms: int) -> dict[str, Any]:
        """The points of the APIs after a time, and the nodes that do not answer; or why there are none."""
        if self._why_none is not None:
            return {"why_none": self._why_none}
        await self._look()
        missing = [one for one in self._addresses if one not in self._answering]
        return {"at_ms": self._looked_ms, "apis": self._history.points(since_ms), "missing": missing}

    async def replicas(self, topic: str) -> dict[str, Any]:
        """The log end offsets of the replicas of a topic, by partition and node; or why there are none."""
        if self._why_none is not None:
            return {"why_none": self._why_none}
        await self._look()
        return {"log_end_offsets": self._history.log_end_offsets(topic, self._answering)}

    async def _look(self) -> None:
        async with self._looking:
            if self._clock.wall_ms() - self._looked_ms < PERIOD_MS:
                return
            found = await asyncio.gather(*(self._metrics_of(one) for one in self._addresses))
            self._looked_ms = self._clock.wall_ms()
            self._note(found)

    def _note(self, found: Sequence[NodeMetrics | None]) -> None:
        seen = {node: metrics for node, metrics in zip(self._addresses, found, strict=True) if metrics is not None}
        self._answering = list(seen)
        for node_id, metrics in seen.items():
            self._history.note(node_id, metrics)

    async def _metrics_of(self, node_id: int) -> NodeMetrics | None:
        """The node's figures; None when it does not answer in time."""
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                answer = await self._fetch(HttpRequest(f"http://{self._addresses[node_id]}/metrics"))
        except (HttpError, TimeoutError):
            return None
        if answer.status != 200:
            return None
        return parse_metrics(answer.body.decode("utf-8", "replace"), self._clock.wall_ms())
