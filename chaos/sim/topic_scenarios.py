"""Scenarios for topics whose own settings change under load.

"stamped-topics": whose clock records carry (`message.timestamp.type`), the codec in which they are stored
(`compression.type`) and when segments roll. "kept-keys": a topic that is compacted and deleted by time, with bounds for
the age of what is compacted, and tombstones that stay for short. In both, clients look for offsets by time.

"follower-sessions": a leadership is given away and back while answers to followers that do not take part in it are
late. So a session goes on in another leader epoch, of which the leader has told nothing yet. Logs begin later and end
elsewhere meanwhile, clients ask where leader epochs end, and where slots are few, sessions take those of others.

"times-at-new-leaders": a new leader does not know yet what is committed, and must not say that there is no such record.
"""

from __future__ import annotations

from .faults.fault import FaultKind
from .scenario import Scenario
from .workloads.deletion.deleted_records import SETTINGS as TRIM_SETTINGS
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
    Scenario(
        "times-at-new-leaders",
        "clients look for offsets by time at leaders that have just been elected, whose followers hear late",
        kinds=(
            *(FaultKind.LATE_LINK,) * 4,
            *(FaultKind.SLOW_LINK,) * 6,
            *(FaultKind.STALLED_METADATA, FaultKind.PAUSE, FaultKind.KILL),
        ),
        targets=("leader", "n1", "n2", "n3"),
        faults_s=4.0,
        mean_gap_s=0.2,
        mean_duration_s=0.8,
        workloads=("changing topic", "lookups of new times", "elections of a changing topic"),
    ),
)
