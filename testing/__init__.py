"""Clusters for tests of applications: simulated, and of real processes.

`simulate` makes a test of many seeds on a simulated cluster. `TestCluster` is a cluster of processes; the pytest plugin
has fixtures for it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .process_cluster import TestCluster
    from .simulation.sim_application import SimApplication
    from .simulation.sim_cluster import ReadRecord, SimCluster
    from .simulation.simulate import simulate

_HOMES = {
    "ReadRecord": ".simulation.sim_cluster",
    "SimApplication": ".simulation.sim_application",
    "SimCluster": ".simulation.sim_cluster",
    "TestCluster": ".process_cluster",
    "simulate": ".simulation.simulate",
}
__all__ = ["ReadRecord", "SimApplication", "SimCluster", "TestCluster", "simulate"]


def __getattr__(name: str) -> object:
    """Load a public name when it is used first: pytest imports this package in every project that has Raftwerk."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name], __name__), name)
