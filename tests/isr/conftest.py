"""Every cluster that a test of isr makes is disposed of after it, and must have no uncaught error."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.isr.manager_cluster import Cluster, dispose_clusters

from raftwerk.wire.types import TopicPartition


@pytest.fixture(autouse=True)
def _dispose_clusters() -> Iterator[None]:
    yield
    dispose_clusters()


@pytest.fixture
def cluster() -> Cluster:
    """Three nodes; all have a replica of t-0, which node 1 leads, with five records."""
    made = Cluster()
    for node in (1, 2, 3):
        made.boot(node)
    made.create_topic("t", 7, (1, 2, 3))
    made.tell()
    made.sleep(1.0)
    for _ in range(5):
        made.produce(1, TopicPartition("t", 0))
    made.sleep(1.0)
    return made
