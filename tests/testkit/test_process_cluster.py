"""A cluster of processes is started although another process takes one of its ports."""

from __future__ import annotations

import socket
from contextlib import ExitStack

import pytest

from raftwerk.cluster.local.layout import ClusterPlan, ClusterShape, plan_cluster
from raftwerk.testkit.process_cluster import TestCluster

pytestmark = pytest.mark.process


@pytest.mark.parametrize("which", ["port", "controller_port"])
def test_another_process_takes_a_port_after_it_was_chosen(monkeypatch: pytest.MonkeyPatch, which: str) -> None:
    """The next attempt has other ports, also for a controller that has been formatted with the first."""
    name = "raftwerk.testkit.process_cluster.plan_cluster"
    plans: list[ClusterPlan] = []

    def plan(directory: str, shape: ClusterShape) -> ClusterPlan:
        plans.append(plan_cluster(directory, shape))
        if len(plans) == 1:
            other = others.enter_context(socket.socket())
            other.bind(("127.0.0.1", getattr(plans[0].nodes[0], which)))
            other.listen()
        return plans[-1]

    monkeypatch.setattr(name, plan)
    with ExitStack() as others, TestCluster.start(1) as cluster:
        assert len(plans) == 2
        assert cluster.describe().brokers
