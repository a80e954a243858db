"""Clusters for tests of applications: simulated, and of real processes.

`simulate` makes a test of many seeds on a simulated cluster. `TestCluster` is a cluster of processes; the pytest plugin
has fixtures for it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .testkit.process_cluster import TestCluster
    from .testkit.simulation.sim_application import SimApplication
    from .testkit.simulation.sim_cluster import ReadRecord, SimCluster
    from .testkit.simulation.simulate import simulate

_HOMES = {
    "ReadRecord": ".testkit.simulation.sim_cluster",
    "SimApplication": ".testkit.simulation.sim_application",
    "SimCluster": ".testkit.simulation.sim_cluster",
    "TestCluster": ".testkit.process_cluster",
    "simulate": ".testkit.simulation.simulate",
}
__all__ = ["ReadRecord", "SimApplication", "SimCluster", "TestCluster", "simulate"]


def __getattr__(name: str) -> object:
    """Load a public name when it is used first: the simulator is much to load."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name], "raftwerk"), name)
