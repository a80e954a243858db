"""What a node's metrics say of its requests and of the ends of its logs, and how that moved in the last minutes."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ...wire.types import TopicPartition

POINTS_MAX = 150
"""Points of the history: five minutes, at one look in two seconds."""
_REQUESTS = "kafka_network_requestmetrics_totaltimems"
_LOG_END = "kafka_log_log_logendoffset"
_SAMPLE = re.compile(rf"^({_REQUESTS}_count|{_REQUESTS}_sum|{_LOG_END})\{{([^}}]*)\}} (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class Requests(NamedTuple):
    """Requests of one API that a node has answered since its start, and the milliseconds that these took."""

    answered: float
    sum_ms: float


class Point(NamedTuple):
    """Requests of one API between two looks. `mean_ms` is None where there were none."""

    at_ms: int
    per_s: float
    mean_ms: float | None


@dataclass(frozen=True, slots=True)
class NodeMetrics:
    """The figures of one node at one moment. `at_ms` is in milliseconds since 1970."""

    at_ms: int
    requests: Mapping[str, Requests] = field(default_factory=dict)
    log_end_offsets: Mapping[TopicPartition, int] = field(default_factory=dict)


def parse_metrics(text: str, at_ms: int) -> NodeMetrics:
    """The figures in the text that a node's `/metrics` has; what is no number is passed over."""
    counts: dict[str, float] = {}
    sums: dict[str, float] = {}
    ends: dict[TopicPartition, int] = {}
    for found in _SAMPLE.finditer(text):
        name, labels = found[1], dict(_LABEL.findall(found[2]))
        try:
            value = float(found[3])
            if name == _LOG_END:
                ends[TopicPartition(labels["topic"], int(labels["partition"]))] = int(value)
            else:
                (counts if name.endswith("_count") else sums)[labels["request"]] = value
        except (KeyError, ValueError, OverflowError):
            continue
    return NodeMetrics(at_ms, {one: Requests(count, sums.get(one, 0.0)) for one, count in counts.items()}, ends)


def point_between(before: NodeMetrics, after: NodeMetrics, api: str) -> Point | None:
    """The requests of an API between two looks; None where the node has started anew, so that counts began again."""
    first, last = before.requests.get(api, Requests(0.0, 0.0)), after.requests.get(api, Requests(0.0, 0.0))
    elapsed_s = (after.at_ms - before.at_ms) / 1000
    count = last.answered - first.answered
    if count < 0 or elapsed_s <= 0:
        return None
    mean_ms = round((last.sum_ms - first.sum_ms) / count, 3) if count else None
    return Point(after.at_ms, round(count / elapsed_s, 2), mean_ms)


class MetricsHistory:
    """The last looks at all nodes, and the points of their APIs."""

    def __init__(self) -> None:
        self._last: dict[int, NodeMetrics] = {}
        self._points: dict[tuple[int, str], deque[Point]] = {}

    def note(self, node_id: int, metrics: NodeMetrics) -> None:
        """Add a look at a node."""
        before = self._last.get(node_id)
        self._last[node_id] = metrics
        if before is None:
            return
        for api in metrics.requests:
            point = point_between(before, metrics, api)
            if point is not None:
                self._points.setdefault((node_id, api), deque(maxlen=POINTS_MAX)).append(point)

    def points(self, since_ms: int) -> dict[str, dict[int, list[Point]]]:
        """The points after a time, by API and node."""
        found: dict[str, dict[int, list[Point]]] = {}
        for (node_id, api), points in self._points.items():
            new = [one for one in points if one.at_ms > since_ms]
            if new:
                found.setdefault(api, {})[node_id] = new
        return found

    def log_end_offsets(self, topic: str, nodes: Iterable[int]) -> dict[int, dict[int, int]]:
        """The ends of the replicas of a topic on these nodes, by partition and node."""
        found: dict[int, dict[int, int]] = {}
        for node_id in nodes:
            metrics = self._last.get(node_id)
            for key, end in (metrics.log_end_offsets if metrics else {}).items():
                if key.topic == topic:
                    found.setdefault(key.partition, {})[node_id] = end
        return found
