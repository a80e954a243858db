"""Scenarios for coordinators of groups that lose touch with the other replicas of `__consumer_offsets`.

"lone-coordinators": a coordinator is alone in the ISR and then cut off, while a replica of the ELR takes over; and a
replica is elected that has records which nobody can commit for longer than a coordinator waits at a time. In both,
clients go on asking every broker for offsets, and none may be answered what is old or not committed.

"loading-coordinators": other brokers become the coordinators of groups while transactions that commit offsets end, so
that markers reach coordinators that are still loading.

"removed-markers": members of a group commit in transactions, whose markers compaction removes soon; often it makes
several segments of what there is, as their indexes are small.

"static-members": members come back under the instance id of one that died or stopped, or not at all.

"slow-assignments": members come and go, in either protocol, faster than the assignments of their group get to the log.

"careless-members": requests of members come twice, in another order, or when the member that they are of was thought
dead and has come back.

"subscriptions": members subscribe to other topics than before, while topics are created, grow and are deleted; members
of the classic protocol offer several protocols.

"administered-groups": administrators delete groups and offsets, and look at them, while commits and joins are on their
way; offsets expire.

"slow-rebalances": members of a classic group join and sync late, vanish while the others wait, or come back as static
ones.
"""

from __future__ import annotations

from .faults.fault import FaultKind
from .scenario import Scenario
from .workloads.compacted_topic import SETTINGS as KEYS_SETTINGS
from .workloads.groups.administered_groups import SETTINGS as ADMINISTRATION_SETTINGS
from .workloads.groups.consumer_groups import SETTINGS as GROUP_SETTINGS
from .workloads.groups.hasty_group import SETTINGS as HASTY_GROUP_SETTINGS
from .workloads.groups.hasty_group import SHORT_SESSION_SETTINGS
from .workloads.groups.slow_rebalances import SETTINGS as SLOW_REBALANCE_SETTINGS
from .workloads.transactions.transactional_writers import SETTINGS as TRANSACTION_SETTINGS

_SHORT_TIMES = {
    "replica.lag.time.max.ms": "600",
    "replica.fetch.wait.max.ms": "150",
    "broker.session.timeout.ms": "1000",
    "broker.heartbeat.interval.ms": "150",
}

GROUP_SCENARIOS = (
    Scenario(
        "lone-coordinators",
        "a coordinator of groups is left alone in the ISR and cut off, or elected where nobody is left to commit",
        kinds=(FaultKind.LEFT_ALONE, FaultKind.OTHERS_KILLED),
        targets=("n1", "n2", "n3"),
        fixed_targets={FaultKind.LEFT_ALONE: "coordinator"},
        controllers=3,
        faults_s=24.0,
        mean_gap_s=8.0,
        mean_duration_s=14.0,
        one_at_a_time=True,
        workloads=("offset register",),
        properties={**_SHORT_TIMES, "offsets.topic.num.partitions": "1"},
    ),
    Scenario(
        "loading-coordinators",
        "transactions that commit offsets end while other brokers become the coordinators of groups; segments are late",
        kinds=(*(FaultKind.LATE_LINK,) * 3, FaultKind.SLOW_LINK, FaultKind.SLOW_DISK),
        targets=("coordinator", "n1", "n2", "n3"),
        mean_gap_s=0.25,
        mean_duration_s=1.0,
        workloads=("read-process-write", "mixed commits", "group coordinator elections"),
        properties=TRANSACTION_SETTINGS,
        constants=("slow loads",),
    ),
    Scenario(
        "removed-markers",
        "members of a group commit offsets in transactions, whose markers are soon removed, and stall",
        kinds=(FaultKind.PAUSE, FaultKind.SLOW_LINK, FaultKind.KILL),
        targets=("coordinator", "n1", "n2", "n3"),
        faults_s=6.0,
        mean_gap_s=1.5,
        workloads=("grouped processors",),
        properties={
            **TRANSACTION_SETTINGS,
            **GROUP_SETTINGS,
            **KEYS_SETTINGS,
            "log.flush.offset.checkpoint.interval.ms": "100",
            "log.cleaner.delete.retention.ms": "100",
            "offsets.topic.num.partitions": "1",
        },
        drawn_properties={"log.index.size.max.bytes": ("24", "36", "60")},
    ),
    Scenario(
        "static-members",
        "static members of a group come back, or not, while their coordinators are lost",
        kinds=(FaultKind.KILL, FaultKind.PAUSE, *(FaultKind.CUT,) * 2, FaultKind.SLOW_LINK),
        targets=("coordinator", "coordinator", "n1", "n2", "n3"),
        faults_s=12.0,
        mean_gap_s=1.5,
        workloads=("static group",),
        properties={**GROUP_SETTINGS, "offsets.topic.num.partitions": "1"},
    ),
    Scenario(
        "slow-assignments",
        "members of a group come and go while the records of their assignments are slow",
        kinds=(*(FaultKind.CUT,) * 3, *(FaultKind.PAUSE,) * 2, FaultKind.SLOW_LINK, FaultKind.KILL),
        targets=("coordinator", "coordinator", "n1", "n2", "n3"),
        controllers=3,
        mean_gap_s=0.4,
        workloads=("hasty group",),
        properties={**HASTY_GROUP_SETTINGS, "offsets.topic.num.partitions": "1"},
    ),
    Scenario(
        "careless-members",
        "members of a group repeat requests, and requests of a former generation or epoch arrive late",
        kinds=(FaultKind.CUT, FaultKind.PAUSE, FaultKind.SLOW_LINK, FaultKind.SLOW_CLIENTS, FaultKind.KILL),
        targets=("coordinator", "coordinator", "n1", "n2", "n3"),
        mean_gap_s=1.5,
        workloads=("careless group",),
        properties={**SHORT_SESSION_SETTINGS, "offsets.topic.num.partitions": "1"},
    ),
    Scenario(
        "subscriptions",
        "members of a group subscribe to other topics, also by regular expressions, while topics come, grow and go",
        kinds=(FaultKind.CUT, FaultKind.PAUSE, FaultKind.SLOW_LINK, FaultKind.KILL),
        targets=("coordinator", "controller", "n1", "n2", "n3"),
        mean_gap_s=1.5,
        workloads=("changing subscriptions",),
        properties={**SHORT_SESSION_SETTINGS, "offsets.topic.num.partitions": "1"},
    ),
    Scenario(
        "administered-groups",
        "groups and their offsets are deleted, expire and are described, while members join and commit",
        kinds=(FaultKind.CUT, FaultKind.PAUSE, FaultKind.SLOW_LINK, FaultKind.SLOW_DISK, FaultKind.KILL),
        targets=("coordinator", "coordinator", "n1", "n2", "n3"),
        mean_gap_s=1.5,
        workloads=("administered groups",),
        properties={**ADMINISTRATION_SETTINGS, "offsets.topic.num.partitions": "1"},
    ),
    Scenario(
        "slow-rebalances",
        "members of a classic group join and sync late, vanish while others wait for them, or come back as static ones",
        kinds=(FaultKind.CUT, FaultKind.PAUSE, FaultKind.SLOW_LINK, FaultKind.KILL),
        targets=("coordinator", "coordinator", "n1", "n2", "n3"),
        mean_gap_s=1.5,
        workloads=("slow rebalances",),
        properties={**SLOW_REBALANCE_SETTINGS, "offsets.topic.num.partitions": "1"},
    ),
)
