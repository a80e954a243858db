"""Every panel shows something while a node dies: a real Prometheus that scrapes a real cluster answers its queries."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.deploy.live_prometheus import ROOT, Load, Prometheus, plan_with_metrics, wait_for

from raftwerk.cluster.local.supervisor import Supervisor
from raftwerk.testkit.process_cluster import TestCluster

pytestmark = pytest.mark.process
DASHBOARDS = sorted((ROOT / "deploy" / "grafana" / "dashboards").glob("*.json"))


@pytest.fixture
def binary() -> str:
    found = shutil.which("prometheus")
    if found is None:
        pytest.skip("prometheus is not installed: the dashboards are NOT tested")
    return found


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    with Supervisor(plan_with_metrics(tmp_path / "cluster")) as running:
        running.start(60)
        yield running


def queries() -> list[tuple[str, str]]:
    """Title and expression of every panel, with Grafana's variables filled in as it does for All."""
    found = []
    for path in DASHBOARDS:
        for panel in json.loads(path.read_text())["panels"]:
            found += [(panel["title"], target["expr"].replace("$topic", ".*")) for target in panel["targets"]]
    return found


def test_every_panel_has_data_when_a_node_dies(binary: str, supervisor: Supervisor, tmp_path: Path) -> None:
    cluster = TestCluster(supervisor, throw_away=False)
    plan = supervisor.plan
    addresses = {node.node_id: f"127.0.0.1:{node.properties['metrics.port']}" for node in plan.nodes}
    topic = cluster.create_topic("flights", partitions=6, replicas=3, config={"min.insync.replicas": "2"})
    prometheus = Prometheus(binary, tmp_path / "prometheus", list(addresses.values()))
    load = Load(plan.bootstrap, topic)
    try:
        wait_for("three nodes", lambda: prometheus.value('sum(up{job="raftwerk"})') == 3)
        wait_for("a reading group", lambda: prometheus.query("kafka_consumergroup_current_offset"))
        victim = next(node for node in (1, 2, 3) if node != cluster.controller())
        cluster.kill(victim)
        wait_for("under-replication", lambda: (prometheus.value(by_title()["Under-replicated"]) or 0) >= 6)
        wait_for("elections", lambda: (prometheus.value(by_title()["Leader elections"]) or 0) >= 2)
        wait_for("a pending alert", lambda: ("RaftwerkNodeDown", addresses[victim]) in prometheus.alerts())
        assert prometheus.value(by_title()["Nodes that answer"]) == 2
        assert prometheus.value(by_title()["Active controllers"]) == 1
        empty = [title for title, expression in queries() if not prometheus.query(expression)]
        assert empty == []
        cluster.start_node(victim)
        wait_for("all in sync", lambda: prometheus.value(by_title()["Under-replicated"]) == 0)
        wait_for("the alert's end", lambda: ("RaftwerkNodeDown", addresses[victim]) not in prometheus.alerts())
    finally:
        load.stop()
        prometheus.stop()


def by_title() -> dict[str, str]:
    return dict(reversed(queries()))
