"""Clusters for tests of applications: simulated, and of real processes.

`simulate` makes a test of many seeds on a simulated cluster; `cluster` runs nodes in the test's own event loop.
`TestCluster` is a cluster of processes; the pytest plugin has fixtures for it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .testkit.cluster_operations import ReadRecord
    from .testkit.in_process import InProcessCluster, cluster
    from .testkit.process_cluster import TestCluster
    from .testkit.simulation.sim_application import SimApplication
    from .testkit.simulation.sim_cluster import SimCluster
    from .testkit.simulation.simulate import simulate

_HOMES = {
    "InProcessCluster": ".testkit.in_process",
    "ReadRecord": ".testkit.cluster_operations",
    "SimApplication": ".testkit.simulation.sim_application",
    "SimCluster": ".testkit.simulation.sim_cluster",
    "TestCluster": ".testkit.process_cluster",
    "cluster": ".testkit.in_process",
    "simulate": ".testkit.simulation.simulate",
}
__all__ = [
    "InProcessCluster",
    "ReadRecord",
    "SimApplication",
    "SimCluster",
    "TestCluster",
    "cluster",
    "simulate",
]


def __getattr__(name: str) -> object:
    """Load a public name when it is used first: the simulator is much to load."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name], "raftwerk"), name)
