"""Scenarios that combine what the others have one by one, for branches that only a combination reaches.

Slow steps meet other changes: a compaction that takes seconds meets truncations, deletions and deaths, a move between
log directories meets elections and a failed disk, and an election on slow links meets another one. Names and states
that pass meet requests that are late: topics are deleted under open transactions, voters are removed twice,
registrations go while brokers live. Work of many steps, which requests about thousands of partitions take, meets
whatever changes between its steps. And damage meets those who read it: coordinators that load, compaction, recovery.
"""

from __future__ import annotations

from .faults.fault import FaultKind
from .rare_scenarios import METADATA_SNAPSHOTS
from .scenario import Scenario
from .workloads.compacted_topic import SETTINGS as KEYS_SETTINGS
from .workloads.deletion.deleted_records import SETTINGS as TRIM_SETTINGS
from .workloads.groups.consumer_groups import SETTINGS as GROUP_SETTINGS
from .workloads.transactions.transactional_writers import SETTINGS as TRANSACTION_SETTINGS

_NODES = ("leader", "n1", "n2", "n3")
_FIVE_CONTROLLERS = ("controller", "c101", "c102", "c103", "c104", "c105")
_SHORT_TIMES = {
    "replica.lag.time.max.ms": "600",
    "replica.fetch.wait.max.ms": "150",
    "broker.session.timeout.ms": "1000",
    "broker.heartbeat.interval.ms": "150",
}
_RECOVERY_POINTS = {"log.flush.offset.checkpoint.interval.ms": "100", "log.flush.offset.checkpoint.min.bytes": "1"}
"""Compaction goes only as far as the recovery point, which is stored often."""

COMBINED_SCENARIOS = (
    Scenario(
        "full-disks",
        "disks fill up and are slow, while segments roll and are deleted, and topics and metadata snapshots are made",
        kinds=(*(FaultKind.DISK_FULL,) * 7, FaultKind.SLOW_DISK, FaultKind.KILL, FaultKind.STOP),
        targets=("controller", *_NODES),
        mean_gap_s=0.3,
        topic_configs={"flush.messages": "1"},
        workloads=("churn", "trims"),
        properties=TRIM_SETTINGS,
        drawn_properties={**METADATA_SNAPSHOTS, "metadata.log.spare.bytes": ("0", "8192", "65536")},
    ),
    Scenario(
        "votes",
        "five impatient controllers vote over slow links",
        kinds=(*(FaultKind.SLOW_LINK,) * 6, *(FaultKind.KILL,) * 2, *(FaultKind.RESET,) * 2, FaultKind.CUT_ONE_WAY),
        targets=_FIVE_CONTROLLERS,
        fixed_targets={FaultKind.KILL: "controller"},
        nodes=2,
        controllers=5,
        faults_s=8.0,
        mean_gap_s=0.08,
        mean_duration_s=2.0,
        workloads=("churn",),
        drawn_properties={
            "controller.quorum.election.timeout.ms": ("100", "200", "400"),
            "controller.quorum.election.backoff.max.ms": ("10", "100"),
            "controller.quorum.fetch.timeout.ms": ("550", "800"),
        },
    ),
    Scenario(
        "hasty-voters",
        "voters are added and removed hastily, snapshots come in parts, and controllers keep what they append",
        kinds=(
            *(FaultKind.SLOW_LINK,) * 4,
            *(FaultKind.KILL, FaultKind.KILL, FaultKind.KILL_AT_OPERATION, FaultKind.ISOLATE, FaultKind.CUT),
            *(FaultKind.SLOW_DISK, FaultKind.STALLED_METADATA, FaultKind.METADATA_STAYS, FaultKind.WIPED_DISK),
        ),
        targets=_FIVE_CONTROLLERS,
        fixed_targets={FaultKind.METADATA_STAYS: "controller", FaultKind.KILL: "controller"},
        nodes=1,
        controllers=5,
        first_voters=3,
        faults_s=8.0,
        mean_gap_s=0.25,
        mean_duration_s=0.8,
        workloads=("hasty voters", "churn"),
        drawn_properties={
            "controller.quorum.fetch.snapshot.max.bytes": ("100", "300"),
            "controller.quorum.fetch.timeout.ms": ("1000", "2000"),
        },
    ),
    Scenario(
        "failing-moves",
        "replicas move slowly between directories that fail entirely or in part, under elections and a passing topic",
        kinds=(
            *(FaultKind.DIR_FAILS, FaultKind.REPLICA_FAILS, FaultKind.REPLICA_FAILS, FaultKind.KILL, FaultKind.STOP),
            *(FaultKind.KILL_AT_OPERATION,) * 3,
            *(FaultKind.SLOW_LINK,) * 2,
        ),
        targets=_NODES,
        partitions=4,
        mean_gap_s=0.35,
        mean_duration_s=0.6,
        workloads=("dir moves", "elections", "churn"),
        extra_log_dirs=("/disk2", "/disk3"),
        drawn_properties={"replica.alter.log.dirs.io.max.bytes.per.second": ("2000", "20000", "1e9")},
    ),
    Scenario(
        "rotting-state",
        "bits of clients' and coordinators' records flip under compaction, and while coordinators change",
        kinds=(
            *(FaultKind.BIT_ROT, FaultKind.STATE_ROT, FaultKind.STATE_ROT),
            *(FaultKind.KILL, FaultKind.STOP, FaultKind.ISOLATE),
        ),
        targets=("coordinator", "transaction-coordinator", "transaction-coordinator", *_NODES),
        faults_s=4.0,
        mean_gap_s=0.4,
        mean_duration_s=0.6,
        workloads=("transactions", "keys"),
        properties={
            **KEYS_SETTINGS,
            **TRANSACTION_SETTINGS,
            **_RECOVERY_POINTS,
            "log.scrub.interval.ms": "5000",
            "log.scrub.io.max.bytes.per.second": "1e9",
        },
    ),
    Scenario(
        "slow-compaction",
        "compaction is slow or has little memory, while its logs are cut, trimmed, and their nodes killed",
        kinds=(
            *(FaultKind.KILL_AT_OPERATION,) * 3,
            *(FaultKind.SLOW_LINK, FaultKind.SLOW_LINK, FaultKind.CUT_ONE_WAY),
            *(FaultKind.SLOW_DISK,) * 2,
        ),
        targets=_NODES,
        mean_gap_s=0.25,
        mean_duration_s=0.5,
        workloads=("keys", "elections for keys", "trims of many keys"),
        properties={**KEYS_SETTINGS, **TRIM_SETTINGS, **_RECOVERY_POINTS},
        drawn_properties={
            "log.cleaner.io.max.bytes.per.second": ("2000", "20000", "1e9"),
            "log.cleaner.dedupe.buffer.size": ("4096", "134217728"),
        },
    ),
    Scenario(
        "passing-topics",
        "topics are deleted under transactions, offsets are committed in several at once, producers are careless",
        kinds=(
            *(FaultKind.SLOW_LINK, FaultKind.SLOW_LINK),
            *(FaultKind.STALLED_METADATA,) * 3,
            *(FaultKind.KILL, FaultKind.CUT, FaultKind.PAUSE),
        ),
        targets=("transaction-coordinator", "coordinator", *_NODES),
        faults_s=4.0,
        mean_gap_s=0.4,
        mean_duration_s=0.5,
        workloads=("transactions of passing topics", "mixed commits", "careless transactions"),
        properties=TRANSACTION_SETTINGS,
        drawn_properties={"transaction.partition.verification.enable": ("true", "false")},
    ),
    Scenario(
        "short-files",
        "files beside the logs end early when their node starts again: indexes, leader epochs, producers, transactions",
        kinds=(*(FaultKind.SHORT_FILES,) * 4, FaultKind.KILL, FaultKind.STOP),
        targets=("transaction-coordinator", *_NODES),
        mean_gap_s=0.6,
        mean_duration_s=0.3,
        topic_configs={"segment.ms": "150"},
        workloads=("transactions",),
        properties={**TRANSACTION_SETTINGS, "log.roll.ms": "500", "log.index.interval.bytes": "100"},
    ),
    Scenario(
        "small-isrs",
        "groups whose offsets have too few replicas in sync, in both protocols",
        kinds=(FaultKind.PAUSE, FaultKind.PAUSE, FaultKind.ISOLATE, FaultKind.CUT, FaultKind.KILL, FaultKind.KILL),
        targets=("n1", "n2", "n3"),
        controllers=3,
        mean_gap_s=0.25,
        workloads=("mixed-group",),
        properties={**GROUP_SETTINGS, **_SHORT_TIMES},
    ),
    Scenario(
        "moving-transactions",
        "partitions move among five brokers while transactions end in them",
        kinds=(FaultKind.KILL, FaultKind.CUT, *(FaultKind.SLOW_LINK,) * 2, FaultKind.STALLED_METADATA),
        targets=("n1", "n2", "n3", "n4", "n5"),
        nodes=5,
        controllers=3,
        mean_gap_s=0.4,
        workloads=("transactions", "moves of transactions"),
        properties=TRANSACTION_SETTINGS,
    ),
    Scenario(
        "careless-producers",
        "producers ask for epochs as they like, and former ones come back, while links are late",
        kinds=(*(FaultKind.LATE_LINK,) * 2, FaultKind.SLOW_LINK, FaultKind.CUT, FaultKind.KILL),
        targets=("transaction-coordinator", "n1", "n2", "n3"),
        faults_s=4.0,
        mean_gap_s=0.8,
        mean_duration_s=0.6,
        workloads=("careless transactions",),
        properties=TRANSACTION_SETTINGS,
    ),
    Scenario(
        "lost-proposals",
        "leaders propose ISRs, and get neither an answer of the controller nor the metadata for a while",
        kinds=(*(FaultKind.LOSE_ENDS,) * 4, *(FaultKind.STALLED_METADATA,) * 3, *(FaultKind.SLOW_LINK,) * 2),
        targets=("leader", "n1", "n2", "n3"),
        faults_s=6.0,
        mean_gap_s=0.15,
        mean_duration_s=1.2,
        properties=_SHORT_TIMES,
    ),
    Scenario(
        "eligible-replicas",
        "eligible leader replicas (KIP-966) of topics whose min.insync.replicas differ: nodes stop, one loses power",
        kinds=(*(FaultKind.STOP,) * 4, FaultKind.POWER_LOSS),
        targets=("n1", "n2", "n3"),
        mean_gap_s=0.3,
        mean_duration_s=0.8,
        fixed_targets={FaultKind.POWER_LOSS: "n1"},
        workloads=("churn of another min ISR",),
    ),
    Scenario(
        "cancelled-moves",
        "partitions with one replica or two move among five brokers, and back when few are alive",
        kinds=(*(FaultKind.KILL,) * 3, FaultKind.STOP, FaultKind.ISOLATE),
        targets=("leader", "leader", "leader", "n1", "n2", "n3", "n4", "n5"),
        nodes=5,
        controllers=3,
        mean_gap_s=0.3,
        mean_duration_s=1.5,
        workloads=("cancelled moves",),
        properties={"default.replication.factor": "1", "min.insync.replicas": "1"},
    ),
    Scenario(
        "unregistered",
        "brokers lose their registrations while they live, and are told no metadata; ends of partitions are looked up",
        kinds=(
            *(FaultKind.STALLED_METADATA,) * 3,
            *(FaultKind.SLOW_LINK, FaultKind.LATE_LINK, FaultKind.KILL, FaultKind.PAUSE),
        ),
        targets=_NODES,
        controllers=3,
        mean_gap_s=0.4,
        mean_duration_s=0.5,
        workloads=("unregistrations", "offset lookups", "elections"),
        properties={"max.incremental.fetch.session.cache.slots": "2"},
    ),
    Scenario(
        "decisions-in-steps",
        "decisions of controllers take many steps, between which leaders, topics and the controller change",
        kinds=(*(FaultKind.KILL, FaultKind.CUT, FaultKind.SLOW_LINK) * 2, FaultKind.ISOLATE, FaultKind.STOP),
        targets=("controller", "controller", *_NODES),
        shapes=((3, 0), (3, 3)),
        partitions=5,
        mean_gap_s=0.4,
        mean_duration_s=0.6,
        workloads=("churn of assigned partitions", "cancelled moves", "elections", "min isr"),
        properties=_SHORT_TIMES,
        constants=("small steps",),
    ),
    Scenario(
        "requests-in-steps",
        "requests of producers, consumers and members take many steps, while processes and networks fail",
        kinds=(FaultKind.KILL, FaultKind.PAUSE, FaultKind.CUT, FaultKind.SLOW_LINK, FaultKind.RESET, FaultKind.STOP),
        targets=("leader", "coordinator", "transaction-coordinator", *_NODES),
        mean_gap_s=0.6,
        workloads=("plain", "group", "transactions", "elections"),
        properties={**GROUP_SETTINGS, **TRANSACTION_SETTINGS},
        constants=("small steps",),
    ),
    Scenario(
        "alike-partitions",
        "brokers and directories fail under partitions with the same replicas, hardly two of which are in one state",
        kinds=(*(FaultKind.KILL,) * 3, *(FaultKind.STOP,) * 3, FaultKind.ISOLATE, FaultKind.DIR_FAILS),
        targets=("n1", "n2", "n3"),
        controllers=3,
        partitions=1,
        faults_s=9.0,
        mean_gap_s=0.35,
        mean_duration_s=0.9,
        workloads=("alike partitions",),
        properties=_SHORT_TIMES,
        extra_log_dirs=("/disk2",),
    ),
)
