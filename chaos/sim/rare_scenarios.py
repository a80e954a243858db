"""Scenarios for what hardly happens in the others, and for losses that must be accounted for.

"late-commits": a member's commit is on its way while its partition is given up, so it arrives after the new owner has
begun. It must be refused then, by the epoch of the member or the generation of the group.
"""

from __future__ import annotations

from .faults.fault import FaultKind
from .scenario import Scenario
from .workloads.consumer_groups import SETTINGS as GROUP_SETTINGS

RARE_SCENARIOS = (
    Scenario(
        "late-commits",
        "commits of group members are in flight while their partitions are given up, in both protocols",
        kinds=(
            FaultKind.SLOW_CLIENTS,
            FaultKind.SLOW_CLIENTS,
            FaultKind.SLOW_CLIENTS,
            FaultKind.ISOLATE,
            FaultKind.KILL,
        ),
        targets=("coordinator", "coordinator", "n1", "n2", "n3"),
        faults_s=10.0,
        mean_gap_s=0.4,
        mean_duration_s=2.0,
        partitions=3,
        workloads=("group that commits behind",),
        properties=GROUP_SETTINGS,
    ),
)
