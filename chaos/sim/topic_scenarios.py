"""Scenarios for topics whose own settings change under load.

"stamped-topics": whose clock records carry (`message.timestamp.type`), the codec in which they are stored
(`compression.type`) and when segments roll. "kept-keys": a topic that is compacted and deleted by time, with bounds for
the age of what is compacted, and tombstones that stay for short. In both, clients look for offsets by time.
"""

from __future__ import annotations

from .faults.fault import FaultKind
from .scenario import Scenario
from .workloads.settings.changing_topic import CLEANER_SETTINGS

TOPIC_SCENARIOS = (
    Scenario(
        "stamped-topics",
        "timestamp type, codec and segments of a topic change, while clocks jump and nodes fail",
        kinds=(
            *(FaultKind.KILL, FaultKind.KILL, FaultKind.STOP, FaultKind.PAUSE, FaultKind.CLOCK_JUMP),
            *(FaultKind.CLOCK_DRIFT, FaultKind.SLOW_LINK, FaultKind.CUT, FaultKind.RESET, FaultKind.STALLED_METADATA),
        ),
        targets=("leader", "n1", "n2", "n3"),
        mean_gap_s=0.5,
        mean_duration_s=0.6,
        workloads=("changing topic", "time lookups"),
    ),
    Scenario(
        "kept-keys",
        "a compacted and deleted topic with bounds for the age of what goes, which change; disks come back empty",
        kinds=(
            *(FaultKind.KILL, FaultKind.KILL, FaultKind.STOP, FaultKind.PAUSE, FaultKind.WIPED_DISK),
            *(FaultKind.SLOW_LINK, FaultKind.CUT, FaultKind.STALLED_METADATA),
        ),
        targets=("leader", "n1", "n2", "n3"),
        faults_s=8.0,
        mean_gap_s=0.8,
        mean_duration_s=0.6,
        workloads=("kept keys", "time lookups of kept keys"),
        properties=CLEANER_SETTINGS,
    ),
)
