"""The metrics and health port of a node.

Python formats about a hundred thousand samples a second, and a node with 2,000 partitions has 20,000. So the answer to
a scrape is made in parts, and clients' requests are served between them.
"""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from prometheus_client import GC_COLLECTOR, PROCESS_COLLECTOR, CollectorRegistry, Metric, generate_latest
from prometheus_client.registry import Collector

from ...runtime.os_errors import os_reason
from ...runtime.ports import Runtime
from ..node.errors import NodeFailedError
from ..node.node import Node
from ..node.observers import NodeObservers
from .catalog import CATALOG, COUNTER, SUMMARY, Spec
from .counters import BrokerTopicStats, PartitionChanges, ProcessTimings, RequestMetrics
from .http_server import HttpServer, Page
from .node_samples import Counters, not_ready_because, read_all

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BY_NAME = {spec.name: spec for spec in CATALOG}
_INDEX = """<!doctype html><title>Raftwerk node%s</title>
<ul>
<li><a href="/metrics">/metrics</a>: for Prometheus
<li><a href="/health/ready">/health/ready</a>: whether it serves (/health is the same)
<li><a href="/health/live">/health/live</a>: whether it runs
</ul>
"""
_CHUNK = 250


class _Family(Collector):
    """A collector of one metric family, so that the family can be written by itself."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterable[Metric]:
        return (self._metric,)


class NodeCollector(Collector):
    """Reads one node's state when `prometheus_client` collects."""

    def __init__(self, node: Node, counters: Counters, partition_limit: int) -> None:
        self._node = node
        self._counters = counters
        self._partition_limit = partition_limit

    def collect(self) -> Iterator[Metric]:
        """The metric families, each complete, in the order in which they are read."""
        now = asyncio.get_running_loop().time()
        for samples in read_all(self._node, self._counters, self._partition_limit):
            for name, rows in samples.rows.items():
                yield family(_BY_NAME[name], rows, now)


def family(spec: Spec, rows: Iterable[tuple[tuple[str, ...], Any]], now: float) -> Metric:
    """A metric family of the catalog with its samples; `now` is the loop's time."""
    name, kind = spec.name, spec.kind
    if kind == COUNTER and name.endswith("_count"):  # the count of a timer: a summary of which only that is known
        name, kind = name.removesuffix("_count"), SUMMARY
    elif kind == COUNTER:
        name = name.removesuffix("_total")
    metric = Metric(name, spec.doc, kind)
    for values, value in rows:
        labels = dict(zip(spec.labels, values, strict=True))
        if spec.kind != SUMMARY:
            metric.add_sample(spec.name, labels, value)
            continue
        latency, unit = value
        for quantile, duration_s in latency.quantiles_s(now):
            metric.add_sample(spec.name, {**labels, "quantile": f"{quantile:g}"}, duration_s * unit)
        metric.add_sample(f"{spec.name}_count", labels, latency.count)
        metric.add_sample(f"{spec.name}_sum", labels, latency.sum_s * unit)
    return metric


@dataclass(frozen=True, slots=True)
class ExporterConfig:
    """Where to listen, and how many partitions have time series. An empty host means every interface."""

    host: str
    port: int
    partition_limit: int


class Exporter:
    """Serves metrics and health over HTTP.

    Make the node with `with_timed_disk` and `observers`; call `listen` before it starts, so that its start can be seen,
    `subscribe` when it has started, and `stop` at the end.
    """

    def __init__(self, config: ExporterConfig) -> None:
        self.config = config
        self.port = config.port
        self._counters = Counters(ProcessTimings(), RequestMetrics(), BrokerTopicStats())
        self._registry = CollectorRegistry(auto_describe=False)
        self._node: Node | None = None
        self._server = HttpServer(
            {
                "/": self._serve_index,
                "/metrics": self._serve_metrics,
                "/health": self._serve_ready,
                "/health/live": self._serve_live,
                "/health/ready": self._serve_ready,
            }
        )

    @property
    def observers(self) -> NodeObservers:
        """What the node must be made with, so that its requests are counted."""
        return NodeObservers(self._counters.topics, self._counters.requests)

    def with_timed_disk(self, runtime: Runtime) -> Runtime:
        """What the node must be made with, so that syncs of its disk are timed."""
        return self._counters.process.with_timed_disk(runtime)

    async def listen(self, node: Node) -> None:
        """Open the port. Raises `NodeFailedError` when it is in use."""
        self._node = node
        for collector in (PROCESS_COLLECTOR, GC_COLLECTOR):
            self._registry.register(collector)
        self._registry.register(NodeCollector(node, self._counters, self.config.partition_limit))
        try:
            await self._server.start(self.config.host, self.config.port)
        except OSError as error:
            where = f"{self.config.host or '*'}:{self.config.port}"
            is_taken = error.errno == errno.EADDRINUSE
            reason = "the port is in use; stop the process that has it, or" if is_taken else f"{os_reason(error)};"
            text = f"the metrics cannot listen on {where}: {reason} change metrics.host or metrics.port"
            raise NodeFailedError(text) from error
        self.port = self._server.port
        self._counters.process.start()

    def subscribe(self, node: Node) -> None:
        """Subscribe to the metadata of a node that has just started."""
        loader, node_id, counters = node.loader, node.config.node_id, self._counters
        if loader is None:
            return
        counters.changes = PartitionChanges(node_id, loader.image)
        loader.subscribe(counters.changes.on_metadata)
        loader.subscribe_leader(counters.changes.on_leader)
        counters.topics.know_metadata(node_id, loader.image)
        loader.subscribe(counters.topics.forget_deleted)

    async def stop(self) -> None:
        """Close the port."""
        self._counters.process.stop()
        await self._server.stop()

    async def render(self) -> bytes:
        """The text of a scrape; other work of the loop runs between its parts."""
        parts = []
        for metric in self._registry.collect():
            for part in split(metric):
                parts.append(part)
                await asyncio.sleep(0)
        return b"".join(parts)

    async def _serve_index(self) -> Page:
        name = "" if self._node is None else f" {self._node.config.node_id}"
        return Page((_INDEX % name).encode(), "text/html; charset=utf-8")

    async def _serve_metrics(self) -> Page:
        return Page(await self.render(), CONTENT_TYPE)

    async def _serve_live(self) -> Page:
        failed = self._node is None or self._node.has_failed
        return _health(None if not failed else "the node has failed and is about to stop")

    async def _serve_ready(self) -> Page:
        return _health(not_ready_because(self._node) if self._node is not None else "the node is starting")


def _health(reason: str | None) -> Page:
    body = {"status": "up"} if reason is None else {"status": "down", "reason": reason}
    status = HTTPStatus.OK if reason is None else HTTPStatus.SERVICE_UNAVAILABLE
    return Page(f"{json.dumps(body)}\n".encode(), "application/json; charset=utf-8", status)


def split(metric: Metric) -> Iterator[bytes]:
    """The family's text in parts of at most `_CHUNK` samples; only the first has the lines HELP and TYPE."""
    for start in range(0, len(metric.samples), _CHUNK):
        part = Metric(metric.name, metric.documentation, metric.type)
        part.samples = metric.samples[start : start + _CHUNK]
        text = generate_latest(_Registry(part))
        if start:
            text = b"".join(line for line in text.splitlines(keepends=True) if not line.startswith(b"#"))
        yield text


class _Registry(CollectorRegistry):
    def __init__(self, metric: Metric) -> None:
        super().__init__(auto_describe=False)
        self.register(_Family(metric))
