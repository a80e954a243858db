"""Scenarios by name: which faults, on which cluster, under which workloads.

The records of a partition are durable by replication, not by fsync. A scenario may kill any processes, because their
hosts keep the page cache. But only one host at a time may lose power, while all others are in sync, unless the topic
flushes every append. In "elr" one host may lose power at any time while the others stop cleanly: what is committed is
on min.insync.replicas nodes, and a node that may have lost its last records is not eligible to lead (KIP-966). The
controller cannot distinguish a SIGKILL from a loss of power; two of them at the wrong time may lose records, as in
Kafka.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from .faults.fault import FaultKind
from .workloads.compacted_topic import SETTINGS as KEYS_SETTINGS
from .workloads.consumer_groups import SETTINGS as GROUP_SETTINGS
from .workloads.deleted_records import SETTINGS as TRIM_SETTINGS
from .workloads.quota_changes import SETTINGS as QUOTA_SETTINGS
from .workloads.transactions.transactional_writers import SETTINGS as TRANSACTION_SETTINGS
from .workloads.transactions.two_phase_writers import SETTINGS as TWO_PHASE_SETTINGS

_PROCESS_FAULTS = (FaultKind.KILL, FaultKind.STOP, FaultKind.PAUSE)
_NETWORK_FAULTS = (FaultKind.ISOLATE, FaultKind.CUT, FaultKind.CUT_ONE_WAY, FaultKind.RESET, FaultKind.SLOW_LINK)
_SHAPED_CUTS = (
    FaultKind.BRIDGE,
    FaultKind.RING,
    FaultKind.SPLIT,
    FaultKind.CLIENTS_CUT,
    FaultKind.CUT_OFF,
    FaultKind.RESET,
)
_HALF_OPEN = (FaultKind.LOSE_ENDS, FaultKind.REJECT)
_COORDINATOR_FAULTS = (FaultKind.SLOW_LINK, FaultKind.ISOLATE, FaultKind.CUT, FaultKind.KILL, FaultKind.KILL)
_GROUP_COORDINATORS = ("coordinator", "coordinator", "n1", "n2", "n3")
_FIVE_NODES = ("leader", "controller", "n1", "n2", "n3", "n4", "n5")
_FIVE_CONTROLLERS = ("c101", "c102", "c103", "c104", "c105")
_SHORT_TIMES = {
    "replica.lag.time.max.ms": "600",
    "replica.fetch.wait.max.ms": "150",
    "broker.session.timeout.ms": "1000",
    "broker.heartbeat.interval.ms": "150",
}
"""With these settings replicas fall behind, and brokers are fenced and unfenced, several times in a run."""
_ALL_NODES = ("n1", "n2", "n3", "n4", "n5", "c101", "c102", "c103")


@dataclass(frozen=True, slots=True)
class Scenario:
    """The faults, the cluster and the workloads of a run. Times are in virtual seconds."""

    name: str
    what: str
    """What happens, for the help of `raftwerk sim`."""
    kinds: Sequence[FaultKind]
    targets: Sequence[str] = ("leader", "controller", "n1", "n2", "n3")
    nodes: int = 3
    partitions: int = 2
    faults_s: float = 6.0
    mean_gap_s: float = 1.0
    mean_duration_s: float = 1.0
    one_at_a_time: bool = False
    topic_configs: Mapping[str, str] = field(default_factory=dict)
    controllers: int = 0
    shapes: Sequence[tuple[int, int]] = ()
    """Pairs of numbers of nodes and of controllers; one pair is drawn instead of `nodes` and `controllers`."""
    first_voters: int = 0
    """How many controllers are voters at first, if voters are dynamic (KIP-853); 0: voters are fixed."""
    workloads: Sequence[str] = ()
    """Names of workloads beside the main load; see `Run`."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Settings of the nodes."""
    fixed_targets: Mapping[FaultKind, str] = field(default_factory=dict)
    """The target of all faults of a kind, instead of the drawn one."""
    extra_log_dirs: Sequence[str] = ()
    """Log directories of each node besides the first one."""

    def with_drawn_shape(self, rng: random.Random) -> Scenario:
        """This scenario with one of its shapes."""
        if not self.shapes:
            return self
        nodes, controllers = rng.choice(self.shapes)
        return replace(self, nodes=nodes, controllers=controllers)


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            "leader-crash",
            "the host of a leader loses power, a few times",
            kinds=(FaultKind.POWER_LOSS,),
            targets=("leader",),
            faults_s=1.0,
            mean_gap_s=0.5,
            mean_duration_s=0.6,
            one_at_a_time=True,
        ),
        Scenario(
            "kill",
            "single nodes are killed, and sometimes all at once",
            kinds=(FaultKind.KILL, FaultKind.KILL, FaultKind.KILL_ALL),
        ),
        Scenario(
            "chase",
            "each new leader is killed within moments",
            kinds=(FaultKind.KILL, FaultKind.KILL, FaultKind.KILL, FaultKind.PAUSE, FaultKind.RESET),
            targets=("leader", "leader", "controller"),
            mean_gap_s=0.15,
            mean_duration_s=0.1,
            faults_s=4.0,
        ),
        Scenario(
            "failover",
            "leaders are killed in quick succession, over slow links",
            kinds=(FaultKind.KILL, FaultKind.KILL, FaultKind.SLOW_LINK),
            targets=("leader", "leader", "n1", "n2", "n3"),
            mean_gap_s=0.08,
            mean_duration_s=0.2,
            faults_s=3.0,
        ),
        Scenario(
            "few-alive",
            "nodes are killed and stopped until few are alive",
            kinds=(FaultKind.KILL, FaultKind.KILL, FaultKind.STOP),
            targets=("n1", "n2", "n3"),
            mean_gap_s=0.2,
            mean_duration_s=0.5,
        ),
        Scenario(
            "stop",
            "nodes are stopped cleanly and started again",
            kinds=(FaultKind.STOP,),
            mean_gap_s=1.5,
        ),
        Scenario(
            "pause",
            "nodes hang for seconds",
            kinds=(FaultKind.PAUSE,),
            mean_duration_s=2.0,
        ),
        Scenario(
            "network",
            "nodes are cut off, links are cut one way, reset, half open or slow",
            kinds=(*_NETWORK_FAULTS, *_HALF_OPEN),
            mean_duration_s=1.5,
        ),
        Scenario(
            "mixed",
            "kills, stops, pauses, network faults and slow disks together",
            kinds=(*_PROCESS_FAULTS, *_NETWORK_FAULTS, FaultKind.SLOW_DISK, FaultKind.KILL_ALL),
        ),
        Scenario(
            "power",
            "hosts lose power, one or all; the topic flushes every append",
            kinds=(FaultKind.POWER_LOSS, FaultKind.POWER_LOSS, FaultKind.POWER_LOSS_ALL, FaultKind.KILL),
            topic_configs={"flush.messages": "1"},
        ),
        Scenario(
            "disk",
            "fsyncs fail, disks fill up or are slow; the topic flushes every append",
            kinds=(FaultKind.FSYNC_FAILS, FaultKind.DISK_FULL, FaultKind.SLOW_DISK, FaultKind.KILL),
            topic_configs={"flush.messages": "1"},
        ),
        Scenario(
            "lost-disk",
            "a node comes back with an empty disk or an old copy of it",
            kinds=(FaultKind.WIPED_DISK, FaultKind.OLD_DISK, FaultKind.KILL, FaultKind.KILL_ALL),
            mean_duration_s=0.5,
        ),
        Scenario(
            "dirs",
            "log directories fail or come back empty, while replicas move between them",
            kinds=(FaultKind.DIR_FAILS, FaultKind.DIR_FAILS, FaultKind.WIPED_DIR, FaultKind.KILL, FaultKind.STOP),
            partitions=6,
            workloads=("dir moves",),
            extra_log_dirs=("/disk2", "/disk3"),
        ),
        Scenario(
            "lost-dir",
            "a log directory is exchanged for an empty one while the node is stopped",
            kinds=(FaultKind.STOP, FaultKind.STOP, FaultKind.EXCHANGED_DIR),
            targets=("n1", "n2", "n3"),
            controllers=3,
            mean_gap_s=0.3,
            mean_duration_s=0.5,
            fixed_targets={FaultKind.EXCHANGED_DIR: "n1"},
            extra_log_dirs=("/disk2", "/disk3"),
        ),
        Scenario(
            "sendfile",
            "processes, networks and disks fail while consumers are served by sendfile",
            kinds=(*_PROCESS_FAULTS, *_NETWORK_FAULTS, FaultKind.SLOW_DISK),
            targets=("leader", "leader", "n1", "n2", "n3"),
            mean_gap_s=0.3,
            mean_duration_s=0.5,
            workloads=("plain",),
            properties={"fetch.sendfile.min.bytes": "1"},
        ),
        Scenario(
            "rot",
            "bits of stored records flip, and the scrubber finds them",
            kinds=(FaultKind.BIT_ROT,),
            targets=("leader", "n1", "n2", "n3"),
            one_at_a_time=True,
            properties={"log.scrub.interval.ms": "500", "log.scrub.io.max.bytes.per.second": "1e9"},
        ),
        Scenario(
            "clocks",
            "wall clocks jump and drift, nodes are killed and paused",
            kinds=(FaultKind.CLOCK_JUMP, FaultKind.CLOCK_DRIFT, FaultKind.KILL, FaultKind.PAUSE),
        ),
        Scenario(
            "roles",
            "controllers run apart from brokers; processes and networks fail",
            kinds=(*_PROCESS_FAULTS, *_NETWORK_FAULTS, *_SHAPED_CUTS),
            targets=("leader", "controller", "n1", "n2", "n3", "c101", "c102", "c103"),
            controllers=3,
            mean_gap_s=0.7,
        ),
        Scenario(
            "isolation",
            "the active controller is cut off from everybody for a long time",
            kinds=(FaultKind.ISOLATE,),
            targets=("controller",),
            faults_s=16.0,
            mean_gap_s=20.0,
            mean_duration_s=30.0,
        ),
        Scenario(
            "cuts",
            "five nodes in partitioned networks: bridges, rings, halves, half-open links",
            kinds=(*_SHAPED_CUTS, *_HALF_OPEN),
            targets=_FIVE_NODES,
            nodes=5,
            mean_gap_s=1.5,
            mean_duration_s=2.0,
        ),
        Scenario(
            "clients",
            "plain producers and a consumer group, while processes and networks fail",
            kinds=(*_PROCESS_FAULTS, *_NETWORK_FAULTS, FaultKind.KILL_ALL),
            workloads=("plain", "group"),
            properties=GROUP_SETTINGS,
        ),
        Scenario(
            "churn",
            "a topic is created, grows, is deleted and created again",
            kinds=(*_PROCESS_FAULTS, *_NETWORK_FAULTS, FaultKind.KILL_ALL),
            workloads=("churn",),
        ),
        Scenario(
            "moves",
            "partitions move among five brokers, while processes and networks fail",
            kinds=(*_PROCESS_FAULTS, *_NETWORK_FAULTS),
            targets=_FIVE_NODES,
            nodes=5,
            workloads=("moves",),
        ),
        Scenario(
            "throttled",
            "the same with throttled moves",
            kinds=(*_PROCESS_FAULTS, *_NETWORK_FAULTS),
            targets=_FIVE_NODES,
            nodes=5,
            workloads=("throttled moves",),
        ),
        Scenario(
            "elections",
            "leaders are elected on request, over slow links and while nodes are killed",
            kinds=(FaultKind.SLOW_LINK, FaultKind.SLOW_LINK, FaultKind.KILL, FaultKind.PAUSE, FaultKind.CUT_ONE_WAY),
            targets=("leader", "n1", "n2", "n3"),
            mean_gap_s=0.2,
            mean_duration_s=0.4,
            faults_s=4.0,
            workloads=("elections",),
        ),
        Scenario(
            "groups",
            "a consumer group of the new protocol (KIP-848) loses its coordinators",
            kinds=_COORDINATOR_FAULTS,
            targets=_GROUP_COORDINATORS,
            mean_gap_s=0.3,
            workloads=("group",),
            properties=GROUP_SETTINGS,
        ),
        Scenario(
            "classic-groups",
            "a consumer group of the classic protocol loses its coordinators",
            kinds=_COORDINATOR_FAULTS,
            targets=_GROUP_COORDINATORS,
            mean_gap_s=0.3,
            workloads=("classic-group",),
            properties=GROUP_SETTINGS,
        ),
        Scenario(
            "migrations",
            "a group with members of both protocols loses its coordinators",
            kinds=_COORDINATOR_FAULTS,
            targets=_GROUP_COORDINATORS,
            mean_gap_s=0.3,
            workloads=("mixed-group",),
            properties=GROUP_SETTINGS,
        ),
        Scenario(
            "transactions",
            "transactions over several partitions: commits, aborts, zombies, time-outs",
            kinds=(*_PROCESS_FAULTS, *_NETWORK_FAULTS, FaultKind.KILL_ALL),
            targets=("leader", "transaction-coordinator", "transaction-coordinator", "controller", "n1", "n2", "n3"),
            mean_gap_s=0.6,
            workloads=("transactions",),
            properties=TRANSACTION_SETTINGS,
        ),
        Scenario(
            "transaction-failover",
            "transactions while their coordinators and leaders die in quick succession, on slow links",
            kinds=(
                FaultKind.SLOW_LINK,
                FaultKind.SLOW_LINK,
                FaultKind.SLOW_LINK,
                FaultKind.KILL,
                FaultKind.KILL,
                FaultKind.ISOLATE,
                FaultKind.STOP,
            ),
            targets=("transaction-coordinator", "transaction-coordinator", "leader", "n1", "n2", "n3"),
            mean_gap_s=0.08,
            mean_duration_s=0.3,
            faults_s=4.0,
            workloads=("transactions",),
            properties=TRANSACTION_SETTINGS,
        ),
        Scenario(
            "coordinator-elections",
            "other brokers become the coordinators of transactions while all are alive, and some segments are late",
            kinds=(FaultKind.LATE_LINK,),
            targets=("n1", "n2", "n3"),
            mean_gap_s=0.25,
            mean_duration_s=2.0,
            workloads=("transactions", "coordinator elections"),
            properties=TRANSACTION_SETTINGS,
        ),
        Scenario(
            "late-requests",
            "requests of transactional clients arrive after later ones (Jepsen's analysis of Bufstream 0.1.0)",
            kinds=(FaultKind.SLOW_CLIENTS,),
            targets=("n1", "n2", "n3"),
            mean_gap_s=0.25,
            mean_duration_s=2.0,
            workloads=("late transactions",),
            properties=TRANSACTION_SETTINGS,
        ),
        Scenario(
            "late-transactions",
            "late requests, while coordinators are cut off, paused and killed",
            kinds=(
                FaultKind.SLOW_CLIENTS,
                FaultKind.SLOW_CLIENTS,
                FaultKind.SLOW_LINK,
                FaultKind.ISOLATE,
                FaultKind.PAUSE,
                FaultKind.KILL,
            ),
            targets=("leader", "transaction-coordinator", "transaction-coordinator", "n1", "n2", "n3"),
            mean_gap_s=0.25,
            workloads=("late transactions",),
            properties=TRANSACTION_SETTINGS,
        ),
        Scenario(
            "late-batches",
            "batches that clients with transaction.version 1 have given up arrive after their transactions (KIP-890)",
            kinds=(FaultKind.SLOW_CLIENTS,),
            targets=("n1", "n2", "n3"),
            mean_gap_s=0.25,
            mean_duration_s=2.0,
            workloads=("late old batches",),
            properties=TRANSACTION_SETTINGS,
        ),
        Scenario(
            "leaderless",
            "partitions of one replica have no leader for a while, also when coordinators elsewhere end transactions",
            kinds=(FaultKind.KILL, FaultKind.KILL, FaultKind.STOP),
            targets=("n1",),
            mean_gap_s=0.8,
            mean_duration_s=1.0,
            workloads=("transactions",),
            properties={**TRANSACTION_SETTINGS, "default.replication.factor": "1", "min.insync.replicas": "1"},
        ),
        Scenario(
            "exactly-once",
            "a processor that reads, writes and commits its offsets in transactions",
            kinds=(
                FaultKind.SLOW_LINK,
                FaultKind.ISOLATE,
                FaultKind.CUT,
                FaultKind.KILL,
                FaultKind.KILL,
                FaultKind.PAUSE,
            ),
            targets=("leader", "coordinator", "transaction-coordinator", "n1", "n2", "n3"),
            mean_gap_s=0.4,
            workloads=("read-process-write",),
            properties=TRANSACTION_SETTINGS,
        ),
        Scenario(
            "exactly-once-group",
            "members of one group that commit their offsets in transactions, and stall",
            kinds=_COORDINATOR_FAULTS,
            targets=("leader", "coordinator", "transaction-coordinator", "n1", "n2", "n3"),
            faults_s=10.0,
            mean_gap_s=0.8,
            workloads=("grouped processors",),
            properties={**TRANSACTION_SETTINGS, **GROUP_SETTINGS},
        ),
        Scenario(
            "cut-off-coordinators",
            "clients still reach a coordinator of groups that no other node reaches, while another one takes over",
            kinds=(FaultKind.ISOLATE,),
            targets=("coordinator",),
            faults_s=14.0,
            mean_duration_s=3.5,
            one_at_a_time=True,
            workloads=("read-process-write by any broker",),
            properties={**TRANSACTION_SETTINGS, **_SHORT_TIMES, "offsets.topic.num.partitions": "1"},
        ),
        Scenario(
            "two-phase",
            "transactions that an outside coordinator ends; their producers die before and after it has decided",
            kinds=(
                FaultKind.SLOW_LINK,
                FaultKind.ISOLATE,
                FaultKind.CUT,
                FaultKind.KILL,
                FaultKind.KILL,
                FaultKind.STOP,
            ),
            targets=("leader", "transaction-coordinator", "transaction-coordinator", "n1", "n2", "n3"),
            mean_gap_s=0.4,
            mean_duration_s=0.6,
            workloads=("two-phase commits",),
            properties={**TRANSACTION_SETTINGS, **TWO_PHASE_SETTINGS},
        ),
        Scenario(
            "transaction-versions",
            "transaction.version goes up and down under transactions and read-process-write, while nodes fail",
            kinds=(FaultKind.SLOW_LINK, FaultKind.CUT, FaultKind.KILL, FaultKind.KILL, FaultKind.STOP, FaultKind.PAUSE),
            targets=("leader", "transaction-coordinator", "transaction-coordinator", "controller", "n1", "n2", "n3"),
            mean_gap_s=0.5,
            workloads=(
                "transactions of changing versions",
                "read-process-write of changing versions",
                "transaction versions",
            ),
            properties=TRANSACTION_SETTINGS,
        ),
        Scenario(
            "storm",
            "nearly all faults and workloads at once",
            kinds=(
                *_PROCESS_FAULTS,
                *_NETWORK_FAULTS,
                *_SHAPED_CUTS,
                *_HALF_OPEN,
                FaultKind.KILL_ALL,
                FaultKind.SLOW_DISK,
                FaultKind.CLOCK_JUMP,
                FaultKind.CLOCK_DRIFT,
            ),
            targets=("leader", "coordinator", "controller", "n1", "n2", "n3"),
            mean_gap_s=0.5,
            workloads=("plain", "group", "churn", "elections"),
            properties=GROUP_SETTINGS,
        ),
        Scenario(
            "shapes",
            "clusters of one to five brokers, with and without separate controllers",
            kinds=(*_PROCESS_FAULTS, *_NETWORK_FAULTS, *_SHAPED_CUTS, FaultKind.KILL_ALL),
            targets=("leader", "controller", *_ALL_NODES),
            shapes=((1, 0), (2, 0), (4, 0), (1, 1), (2, 1), (3, 1), (4, 3), (5, 3)),
            mean_gap_s=0.5,
        ),
        Scenario(
            "voters",
            "voters of the quorum are added and removed, while controllers fail and lose disks",
            kinds=(
                *_PROCESS_FAULTS,
                *_NETWORK_FAULTS,
                FaultKind.POWER_LOSS,
                FaultKind.WIPED_DISK,
                FaultKind.WIPED_DISK,
            ),
            targets=("controller", *_FIVE_CONTROLLERS),
            nodes=1,
            controllers=5,
            first_voters=3,
            mean_gap_s=0.6,
            workloads=("voters", "churn"),
        ),
        Scenario(
            "upgrades",
            "a rolling upgrade and often a downgrade, while nodes fail",
            kinds=(FaultKind.KILL, FaultKind.PAUSE, *_NETWORK_FAULTS),
            targets=("leader", "controller", "n1", "n2", "n3"),
            mean_gap_s=0.8,
            mean_duration_s=0.6,
            workloads=("upgrade", "churn"),
        ),
        Scenario(
            "upgrades-apart",
            "the same with controllers apart from brokers",
            kinds=(FaultKind.KILL, FaultKind.KILL, FaultKind.PAUSE, FaultKind.STOP),
            targets=("leader", "controller", "n1", "n2", "c101", "c102", "c103"),
            nodes=2,
            controllers=3,
            workloads=("upgrade",),
        ),
        Scenario(
            "elr",
            "eligible leader replicas (KIP-966): nodes stop, and one loses power",
            kinds=(FaultKind.STOP, FaultKind.STOP, FaultKind.POWER_LOSS),
            targets=("n1", "n2", "n3"),
            mean_gap_s=0.3,
            mean_duration_s=0.5,
            fixed_targets={FaultKind.POWER_LOSS: "n1"},
        ),
        Scenario(
            "sessions",
            "short sessions: brokers are fenced and unfenced again and again",
            kinds=(*_PROCESS_FAULTS, FaultKind.PAUSE, *_NETWORK_FAULTS, *_SHAPED_CUTS, FaultKind.SLOW_DISK),
            mean_gap_s=0.4,
            properties=_SHORT_TIMES,
        ),
        Scenario(
            "min-isr",
            "min.insync.replicas changes while replicas fall behind",
            kinds=(FaultKind.KILL, FaultKind.PAUSE, FaultKind.CUT, FaultKind.SLOW_LINK, FaultKind.SLOW_LINK),
            targets=("leader", "leader", "n1", "n2", "n3", "c101"),
            controllers=1,
            mean_gap_s=0.2,
            mean_duration_s=0.8,
            workloads=("min isr",),
            properties=_SHORT_TIMES,
        ),
        Scenario(
            "pipelined-producers",
            "producers that send to a new leader while the former one has not answered, over slow and cut links",
            kinds=(*_NETWORK_FAULTS, FaultKind.KILL, FaultKind.PAUSE, FaultKind.REJECT, FaultKind.CLIENTS_CUT),
            targets=("leader", "leader", "controller", "n1", "n2", "n3"),
            faults_s=10.0,
            mean_gap_s=0.5,
            workloads=("pipelined producers", "elections"),
            properties=_SHORT_TIMES,
        ),
        Scenario(
            "trims",
            "the beginning of a log is deleted while replicas are down",
            kinds=(*_PROCESS_FAULTS, *_NETWORK_FAULTS, FaultKind.KILL_ALL),
            mean_gap_s=0.6,
            workloads=("trims",),
            properties=TRIM_SETTINGS,
        ),
        Scenario(
            "quotas",
            "quotas of clients come and go, while processes and networks fail",
            kinds=(*_PROCESS_FAULTS, *_NETWORK_FAULTS),
            mean_gap_s=0.8,
            workloads=("quotas",),
            properties=QUOTA_SETTINGS,
        ),
        Scenario(
            "compaction",
            "a compacted topic and a consumer group, while processes and networks fail",
            kinds=(*_PROCESS_FAULTS, *_NETWORK_FAULTS, FaultKind.SLOW_DISK, FaultKind.KILL_ALL),
            targets=("leader", "coordinator", "n1", "n2", "n3"),
            faults_s=14.0,
            mean_gap_s=1.2,
            workloads=("keys", "group"),
            properties={**GROUP_SETTINGS, **KEYS_SETTINGS},
        ),
        Scenario(
            "single",
            "one node that is killed, stopped and paused",
            kinds=(FaultKind.KILL, FaultKind.STOP, FaultKind.PAUSE, FaultKind.RESET),
            targets=("n1",),
            nodes=1,
        ),
        Scenario(
            "five",
            "five nodes, while processes and networks fail",
            kinds=(*_PROCESS_FAULTS, *_NETWORK_FAULTS),
            targets=_FIVE_NODES,
            nodes=5,
        ),
    )
}
