"""The figures of nodes, from the text of their metrics."""

from __future__ import annotations

import asyncio

from raftwerk.console.metrics.metrics_watch import PERIOD_MS, MetricsWatch
from raftwerk.console.metrics.node_metrics import (
    POINTS_MAX,
    MetricsHistory,
    NodeMetrics,
    Requests,
    parse_metrics,
    point_between,
)
from raftwerk.runtime.http.client import HttpAnswer, HttpError, HttpRequest
from raftwerk.wire.types import TopicPartition

TEXT = """# HELP kafka_network_requestmetrics_totaltimems Milliseconds
kafka_network_requestmetrics_totaltimems{quantile="0.5",request="Produce"} 1.5
kafka_network_requestmetrics_totaltimems_count{request="Produce"} 10.0
kafka_network_requestmetrics_totaltimems_sum{request="Produce"} 25.0
kafka_network_requestmetrics_totaltimems_count{request="Fetch"} NaN?
kafka_log_log_logendoffset{partition="1",topic="t"} 1.7e+01
kafka_log_log_logendoffset{partition="x",topic="t"} 5.0
kafka_log_log_logendoffset{topic="t"} 5.0
kafka_log_log_logendoffset{partition="0",topic="t"} Inf
other{partition="0",topic="t"} 1.0
"""


class Nodes:
    """Nodes that answer with their metrics, and a clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.texts: dict[str, str | None] = {"a:1": TEXT, "b:2": TEXT}
        self.asked = 0

    def wall_ms(self) -> int:
        return self.now_ms

    async def fetch(self, request: HttpRequest) -> HttpAnswer:
        self.asked += 1
        text = self.texts[request.url.removeprefix("http://").removesuffix("/metrics")]
        if text is None:
            raise HttpError("it is down")
        return HttpAnswer(200, text.encode())


def looked(at_ms: int, count: float, sum_ms: float) -> NodeMetrics:
    return NodeMetrics(at_ms, {"Produce": Requests(count, sum_ms)})


def test_what_is_needed_is_read_and_the_rest_passed_over() -> None:
    found = parse_metrics(TEXT, 5)
    assert found == NodeMetrics(5, {"Produce": Requests(10.0, 25.0)}, {TopicPartition("t", 1): 17})


def test_rates_and_means_are_of_the_time_between_two_looks() -> None:
    first = looked(1000, 10, 25)
    assert point_between(first, looked(3000, 14, 33), "Produce") == (3000, 2.0, 2.0)
    assert point_between(first, looked(3000, 10, 25), "Produce") == (3000, 0.0, None)
    assert point_between(first, looked(3000, 2, 5), "Produce") is None  # the node has started anew
    assert point_between(first, looked(1000, 20, 50), "Produce") is None
    assert point_between(NodeMetrics(1000), looked(2000, 4, 2), "Produce") == (2000, 4.0, 0.5)


def test_the_last_points_are_kept() -> None:
    history = MetricsHistory()
    for at in range(POINTS_MAX + 5):
        history.note(1, looked(1000 * at, at, 2 * at))
    points = history.points(0)["Produce"][1]
    assert len(points) == POINTS_MAX and tuple(points[-1]) == (1000 * (POINTS_MAX + 4), 1.0, 2.0)
    assert [one.at_ms for one in history.points(points[-2].at_ms)["Produce"][1]] == [points[-1].at_ms]
    assert history.points(points[-1].at_ms) == {}


def test_nodes_are_asked_once_in_two_seconds_however_many_pages_look() -> None:
    nodes = Nodes()
    watch = MetricsWatch({1: "a:1", 2: "b:2"}, nodes.fetch, nodes)

    async def look() -> None:
        await asyncio.gather(*(watch.requests(0) for _ in range(5)))
        assert nodes.asked == 2
        assert (await watch.replicas("t"))["log_end_offsets"] == {1: {1: 17, 2: 17}}
        nodes.now_ms += PERIOD_MS
        nodes.texts = {"a:1": TEXT.replace("} 10.0", "} 14.0"), "b:2": None}
        found = await watch.requests(0)
        assert found["apis"]["Produce"][1][0].per_s == 2.0 and found["missing"] == [2]
        assert (await watch.replicas("t"))["log_end_offsets"] == {1: {1: 17}}
        assert nodes.asked == 4

    asyncio.run(look())


def test_why_there_are_no_figures_is_told() -> None:
    nodes = Nodes()
    for addresses, why in ((None, "raftwerk up started"), ({}, "--metrics-port")):
        watch = MetricsWatch(addresses, nodes.fetch, nodes)
        assert why in asyncio.run(watch.requests(0))["why_none"]
        assert why in asyncio.run(watch.replicas("t"))["why_none"]
