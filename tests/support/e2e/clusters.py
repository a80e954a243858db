"""Starts the clusters of real processes that tests use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from raftwerk.cluster.local.layout import ClusterShape, plan_cluster
from raftwerk.cluster.local.supervisor import Supervisor

START_TIMEOUT_S = 60.0


def start_cluster(directory: Path, brokers: int = 3, **shape: Any) -> Supervisor:
    """A cluster whose nodes are ready, on free ports; `shape` is as of `ClusterShape`."""
    supervisor = Supervisor(plan_cluster(str(directory), ClusterShape(brokers=brokers, **{"port": 0, **shape})))
    supervisor.start(START_TIMEOUT_S)
    return supervisor
