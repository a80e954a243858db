"""Scenarios for producers that are forgotten, run out of epochs, repeat themselves, or hang.

"expiring-producers": transactional ids and the producers of partitions expire, and come back under the same names. A
client repeats a batch within less than the time for which its producer is known, so that nothing is there twice. So
faults are short, and no node is cut off from clients.

"repeated-requests": whatever a transactional producer asks for is asked for again, as after an answer that was lost.

"used-up-producer-ids": epochs and blocks of producer ids are so small that they run out all the time, under requests
that come twice, and under transactions that are kept for a producer that has recovered.

"wrapping-sequences": producers begin a few records before the highest sequence number.

"contested-ids": a producer takes over the id of another one that is in the middle of a transaction and goes on, so that
requests of both are at the same brokers within one round trip. Epochs are used up soon, so that they often have
different producer ids.

"cleaned-transactions": indexes are so small that one compaction makes several segments, and transactions last over
several of them. Tombstones and markers stay for longer than a node is away: a follower that misses a marker has its
transaction open for ever, as in Apache Kafka.
"""

from __future__ import annotations

from .faults.fault import FaultKind
from .scenario import Scenario
from .workloads.compacted_topic import SETTINGS as KEYS_SETTINGS
from .workloads.producers.silent_producers import SETTINGS as SILENCE_SETTINGS
from .workloads.transactions.transaction_administrator import SETTINGS as ADMINISTRATOR_SETTINGS
from .workloads.transactions.transactional_writers import EXPIRATION_SETTINGS
from .workloads.transactions.transactional_writers import SETTINGS as TRANSACTION_SETTINGS
from .workloads.transactions.two_phase_writers import SETTINGS as TWO_PHASE_SETTINGS

_COORDINATORS = ("transaction-coordinator", "leader", "n1", "n2", "n3")

TRANSACTION_SCENARIOS = (
    Scenario(
        "expiring-producers",
        "transactional ids and producers of partitions expire, also in open transactions, and come back",
        kinds=(FaultKind.KILL, FaultKind.STOP, FaultKind.RESET, FaultKind.SLOW_LINK, FaultKind.PAUSE),
        targets=_COORDINATORS,
        faults_s=9.0,
        mean_gap_s=1.0,
        mean_duration_s=0.4,
        workloads=("expiring transactions", "silent producers"),
        properties={**TRANSACTION_SETTINGS, **EXPIRATION_SETTINGS, **SILENCE_SETTINGS},
        constants=("short waits for former leaders",),
    ),
    Scenario(
        "repeated-requests",
        "each request of transactional producers may come twice, and batches and ends of former transactions again",
        kinds=(FaultKind.KILL, FaultKind.STOP, FaultKind.RESET, FaultKind.SLOW_LINK, FaultKind.SLOW_LINK),
        targets=_COORDINATORS,
        faults_s=4.0,
        mean_gap_s=0.7,
        mean_duration_s=0.5,
        workloads=("repeated transactions", "repeated read-process-write"),
        properties=TRANSACTION_SETTINGS,
    ),
    Scenario(
        "used-up-producer-ids",
        "the epochs of each producer id and the producer ids of each broker are soon used up; requests come twice",
        kinds=(FaultKind.KILL, FaultKind.STOP, FaultKind.CUT, FaultKind.SLOW_LINK, FaultKind.SLOW_LINK),
        targets=("controller", *_COORDINATORS),
        faults_s=3.0,
        mean_gap_s=0.6,
        mean_duration_s=0.5,
        workloads=("repeated transactions", "two-phase commits", "passing producers"),
        properties={**TRANSACTION_SETTINGS, **TWO_PHASE_SETTINGS},
        constants=("few producer epochs", "small producer id blocks"),
    ),
    Scenario(
        "hanging-transactions",
        "transactions of which no coordinator knows hang; an administrator aborts them, and has producers described",
        kinds=(FaultKind.KILL, FaultKind.STOP, FaultKind.SLOW_LINK),
        targets=_COORDINATORS,
        faults_s=5.0,
        mean_gap_s=1.2,
        mean_duration_s=0.4,
        workloads=("transactions", "transaction administrator"),
        properties={**TRANSACTION_SETTINGS, **ADMINISTRATOR_SETTINGS},
    ),
    Scenario(
        "contested-ids",
        "producers take over transactional ids from others that go on, and both write to the same brokers at once",
        kinds=(*(FaultKind.LATE_LINK,) * 3, *(FaultKind.SLOW_LINK,) * 2, FaultKind.COORDINATORS_LOAD, FaultKind.KILL),
        targets=_COORDINATORS,
        faults_s=3.0,
        mean_gap_s=0.5,
        mean_duration_s=0.8,
        workloads=("contested transactions",),
        properties={**TRANSACTION_SETTINGS, "offsets.topic.num.partitions": "2"},
        constants=("few producer epochs",),
    ),
    Scenario(
        "wrapping-sequences",
        "sequence numbers of idempotent producers pass 2^31-1 with batches in flight, while leaders change and restart",
        kinds=(*(FaultKind.KILL,) * 3, *(FaultKind.STOP,) * 2, FaultKind.SLOW_LINK, FaultKind.RESET, FaultKind.PAUSE),
        targets=("leader", "n1", "n2", "n3"),
        mean_gap_s=0.4,
        mean_duration_s=0.3,
        workloads=("wrapping producers", "elections for wrapping producers"),
        properties={"log.roll.ms": "500"},
    ),
    Scenario(
        "cleaned-transactions",
        "transactions of a compacted topic last over segments, of which one compaction makes several, until markers go",
        kinds=(*(FaultKind.KILL_AT_OPERATION,) * 4, FaultKind.KILL, FaultKind.STOP, FaultKind.SLOW_LINK),
        targets=("leader", "n1", "n2", "n3"),
        partitions=1,
        faults_s=4.0,
        mean_gap_s=0.6,
        mean_duration_s=0.25,
        workloads=("keyed transactions",),
        properties={
            **TRANSACTION_SETTINGS,
            **KEYS_SETTINGS,
            "log.cleaner.backoff.ms": "200",
            "log.flush.offset.checkpoint.interval.ms": "200",
            "log.flush.offset.checkpoint.min.bytes": "1",
            "transaction.state.log.num.partitions": "1",
        },
        drawn_properties={
            "log.cleaner.delete.retention.ms": ("1500", "2500"),
            "log.index.size.max.bytes": ("24", "36", "60", "120"),
        },
    ),
)
