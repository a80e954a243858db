"""What the nodes of a real cluster log about a failover."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from raftwerk.cluster.local.layout import ClusterShape, plan_cluster
from raftwerk.cluster.local.supervisor import Supervisor
from raftwerk.testkit.process_cluster import TestCluster

pytestmark = pytest.mark.process


def events(cluster: TestCluster, node: int) -> list[dict[str, object]]:
    rows = [json.loads(line) for line in cluster.log_of(node).splitlines()]
    assert all(row["node"] == node for row in rows)
    return [row for row in rows if row["logger"] == "raftwerk.state-change"]


def test_a_partition_is_followed_through_a_failover(tmp_path: Path) -> None:
    supervisor = Supervisor(plan_cluster(str(tmp_path), ClusterShape(3, port=0)), log_options=["--log-format", "json"])
    with supervisor:
        supervisor.start(60)
        cluster = TestCluster(supervisor, throw_away=False)
        topic = cluster.create_topic(replicas=3)
        old = cluster.leader_of(topic)
        cluster.kill(old)
        cluster.create_topic()  # answered after the death was committed and applied
        new = cluster.leader_of(topic)
        assert new != old
        controller = cluster.controller()
        assert controller is not None
        cluster.stop()
    story = [row for row in events(cluster, new) if row.get("topic") == topic and row["event"] == "partition-change"]
    assert (story[0]["leader"], story[0]["role"]) == (old, "follower")
    took_over = next(row for row in story if row["leader"] == new)
    assert (took_over["role"], took_over["leader_before"]) == ("leader", old)
    assert took_over["leader_epoch"] == int(str(story[0]["leader_epoch"])) + 1
    assert any(row["event"] == "leads" and row["topic"] == topic for row in events(cluster, new))
    fenced = [row["broker"] for row in events(cluster, new) if row["event"] == "broker-fenced"]
    assert old in fenced
    assert f"broker {old} is fenced: its connections closed and its port refuses" in cluster.log_of(controller)
    roles = [row["role"] for row in events(cluster, controller) if row["event"] == "quorum-role"]
    assert "leader" in roles
