"""Scenarios for what hardly happens in the others, and for losses that must be accounted for.

"late-commits": a member's commit is on its way while its partition is given up, so it arrives after the new owner has
begun. It must be refused then, by the epoch of the member or the generation of the group.

"stalled-metadata": a node hears everything but the metadata log, while partitions elect leaders. So a broker leads on
that has missed the epoch of another leader. "kept-metadata": a controller appends records that no other node gets. In
"parted-quorum" several do so, one after the other, so that a longer log may be an older one.
"skipped-metadata": a node gets no metadata until what it lacks is in a snapshot alone, while topics, quotas, settings
and registrations of brokers come and go.

"unclean": acked records may be lost where an unclean election is on record, and only those that the elected replica did
not have. "retention": logs lose their beginnings by size or by time, and nothing else.

"lying-disk": replication alone keeps what one broker's disk said was durable. Its controllers run apart, as a voter may
not forget its vote. Logs have one segment: a hole before the recovery point's segment is not looked for, as in Kafka.

"dirs-power", "interrupted": a process ends between two operations on its disk that belong together. Where logs are
compacted or trimmed it only dies, and its host keeps its page cache: a replica that is made again from such a log does
not know all batches of a producer, so that it takes a late retry for a gap, as Kafka's does.
"""

from __future__ import annotations

from .faults.fault import FaultKind
from .scenario import Scenario
from .workloads.compacted_topic import SETTINGS as KEYS_SETTINGS
from .workloads.deletion.deleted_records import SETTINGS as TRIM_SETTINGS
from .workloads.groups.consumer_groups import SETTINGS as GROUP_SETTINGS
from .workloads.quota_changes import SETTINGS as QUOTA_SETTINGS

_NODES = ("controller", "n1", "n2", "n3", "c101", "c102", "c103")

SCRUB_SETTINGS = {"log.scrub.interval.ms": "500", "log.scrub.io.max.bytes.per.second": "1e9"}
"""Damaged batches are found and mended within a run."""

METADATA_SNAPSHOTS = {
    "metadata.log.max.record.bytes.between.snapshots": ("500", "2000", "20971520"),
    "metadata.max.retention.bytes": ("0", "4000", "104857600"),
}
"""Often the metadata log is short: a node that was away is offered a snapshot, or finds that its log may differ."""

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
    Scenario(
        "stalled-metadata",
        "nodes get no metadata while their other connections work, and leaders of partitions change meanwhile",
        kinds=(
            *(FaultKind.STALLED_METADATA,) * 5,
            *(FaultKind.SLOW_LINK,) * 4,
            FaultKind.CUT,
            FaultKind.CUT_ONE_WAY,
            FaultKind.KILL,
        ),
        targets=("leader", "leader", "n1", "n2", "n3", "controller"),
        shapes=((3, 3),),
        mean_gap_s=0.1,
        mean_duration_s=0.5,
        workloads=("elections", "pipelined producers", "elections for pipelined producers"),
    ),
    Scenario(
        "kept-metadata",
        "a controller appends what no other node gets, dies, and comes back when another one leads; nodes start slowly",
        kinds=(
            *(FaultKind.METADATA_STAYS,) * 4,
            *(FaultKind.STALLED_METADATA, FaultKind.CUT, FaultKind.KILL),
            *(FaultKind.SLOW_START,) * 3,
        ),
        targets=("leader", *_NODES),
        shapes=((3, 0), (3, 3)),
        fixed_targets={FaultKind.METADATA_STAYS: "controller"},
        faults_s=8.0,
        mean_gap_s=0.8,
        mean_duration_s=0.5,
        workloads=("elections", "churn", "min isr"),
        drawn_properties=METADATA_SNAPSHOTS,
    ),
    Scenario(
        "parted-quorum",
        "controllers append what no other one gets and are killed, one after the other, so that their logs part",
        kinds=(*(FaultKind.METADATA_STAYS,) * 3, *(FaultKind.KILL,) * 4, FaultKind.SLOW_START),
        targets=("c101", "c102", "c103"),
        fixed_targets={FaultKind.METADATA_STAYS: "controller"},
        controllers=3,
        nodes=2,
        faults_s=12.0,
        mean_gap_s=0.4,
        mean_duration_s=0.5,
        workloads=("churn", "elections", "min isr"),
        properties={"controller.quorum.fetch.timeout.ms": "800", "controller.quorum.election.timeout.ms": "300"},
    ),
    Scenario(
        "skipped-metadata",
        "nodes get no metadata for so long that they go on from a snapshot; quotas and registrations go meanwhile",
        kinds=(*(FaultKind.STALLED_METADATA,) * 4, FaultKind.PAUSE, FaultKind.CUT, FaultKind.KILL),
        targets=_NODES,
        shapes=((3, 0), (3, 3)),
        mean_gap_s=0.6,
        mean_duration_s=1.5,
        workloads=("churn", "quotas", "min isr", "unregistrations"),
        properties={
            **QUOTA_SETTINGS,
            "metadata.log.max.record.bytes.between.snapshots": "500",
            "metadata.max.retention.bytes": "0",
        },
    ),
    Scenario(
        "unclean",
        "a topic allows unclean elections, while nodes are killed and stopped until few are alive",
        kinds=(FaultKind.KILL, FaultKind.KILL, FaultKind.STOP, FaultKind.SLOW_LINK, FaultKind.SLOW_LINK),
        targets=("leader", "n1", "n2", "n3"),
        mean_gap_s=0.12,
        mean_duration_s=0.4,
        workloads=("unclean",),
    ),
    Scenario(
        "retention",
        "records are deleted by size or by time under load, while clocks jump, processes and networks fail",
        kinds=(
            *(FaultKind.KILL, FaultKind.STOP, FaultKind.PAUSE, FaultKind.KILL_ALL),
            *(FaultKind.CUT, FaultKind.SLOW_LINK, FaultKind.SLOW_LINK, FaultKind.CLOCK_JUMP),
        ),
        mean_gap_s=0.5,
        workloads=("retained",),
        properties=TRIM_SETTINGS,
    ),
    Scenario(
        "lying-disk",
        "the disk of one broker of three says that fsyncs are done that are not, and the broker alone loses power",
        kinds=(FaultKind.LYING_DISK,),
        targets=("leader", "n1", "n2", "n3"),
        controllers=3,
        one_at_a_time=True,
        faults_s=3.0,
        properties=SCRUB_SETTINGS,
    ),
    Scenario(
        "dirs-power",
        "nodes die or lose power, also between two operations on a disk, while replicas move between log directories",
        kinds=(FaultKind.POWER_LOSS, FaultKind.POWER_LOSS_AT_OPERATION, *(FaultKind.KILL_AT_OPERATION,) * 2),
        targets=("leader", "n1", "n2", "n3"),
        partitions=4,
        one_at_a_time=True,
        faults_s=4.0,
        topic_configs={"flush.messages": "1"},
        mean_gap_s=0.4,
        mean_duration_s=0.8,
        workloads=("dir moves",),
        extra_log_dirs=("/disk2", "/disk3"),
    ),
    Scenario(
        "interrupted",
        "nodes are killed between two operations on a disk, while segments roll, are compacted and deleted",
        kinds=(FaultKind.KILL_AT_OPERATION,),
        targets=("leader", "controller", "n1", "n2", "n3"),
        faults_s=4.0,
        mean_gap_s=0.3,
        mean_duration_s=0.3,
        workloads=("keys", "trims"),
        properties={**KEYS_SETTINGS, **TRIM_SETTINGS},
        drawn_properties=METADATA_SNAPSHOTS,
    ),
)
