"""Scenarios for what leaders tell their followers in incremental fetch sessions (KIP-227).

"follower-sessions": a leadership is given away and back while answers to followers that do not take part in it are
late. So a session goes on in another leader epoch, of which the leader has told nothing yet. Logs begin later and end
elsewhere meanwhile, clients ask where leader epochs end, and where slots are few, sessions take those of others.
"""

from __future__ import annotations

from .faults.fault import FaultKind
from .scenario import Scenario
from .workloads.deletion.deleted_records import SETTINGS as TRIM_SETTINGS

REPLICATION_SCENARIOS = (
    Scenario(
        "follower-sessions",
        "leaders change to and fro while answers to followers are late, and clients ask where leader epochs end",
        kinds=(
            *(FaultKind.LATE_LINK,) * 8,
            *(FaultKind.SLOW_LINK,) * 3,
            *(FaultKind.STALLED_METADATA, FaultKind.RESET, FaultKind.CUT, FaultKind.KILL),
        ),
        targets=("leader", "leader", "leader", "n1", "n2", "n3", "n4"),
        nodes=4,
        faults_s=4.0,
        mean_gap_s=0.15,
        mean_duration_s=1.0,
        workloads=("elections to and fro", "trims", "epoch lookups", "epoch lookups of trims"),
        properties=TRIM_SETTINGS,
        drawn_properties={"max.incremental.fetch.session.cache.slots": ("2", "3", "1000", "1000")},
    ),
)
