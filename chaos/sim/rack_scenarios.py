"""Scenarios in which brokers are in racks (KIP-36, KIP-392).

"near-replicas": consumers read from the replica in their own rack, while leaders change, logs are cut, followers are
slow, and nodes die. "moving-racks": they do so among five brokers, while partitions move to other brokers and racks,
and new ones are placed though brokers are fenced.
"""

from __future__ import annotations

from ...controller.configs.broker_configs import LEADER_SELECTOR, RACK_AWARE_SELECTOR
from .faults.fault import FaultKind
from .scenario import Scenario
from .workloads.transactions.transactional_writers import SETTINGS as TRANSACTION_SETTINGS

_DRAWN = {
    "max.incremental.fetch.session.cache.slots": ("1", "4", "1000"),
    "replica.selector.class": (LEADER_SELECTOR, RACK_AWARE_SELECTOR, RACK_AWARE_SELECTOR),
}

RACK_SCENARIOS = (
    Scenario(
        "near-replicas",
        "consumers read from replicas in their own rack, while leaders change, followers are slow, and nodes die",
        kinds=(
            *(FaultKind.SLOW_LINK,) * 3,
            *(FaultKind.KILL, FaultKind.KILL, FaultKind.STOP, FaultKind.CUT, FaultKind.ISOLATE, FaultKind.RESET),
        ),
        targets=("leader", "n1", "n2", "n3"),
        mean_gap_s=0.5,
        mean_duration_s=0.8,
        workloads=("transactions", "elections", "nearby consumers"),
        racks=("abc", "aab"),
        properties=TRANSACTION_SETTINGS,
        drawn_properties={**_DRAWN, "fetch.sendfile.min.bytes": ("-1", "1")},
    ),
    Scenario(
        "moving-racks",
        "topics come and go on five brokers in racks, of which some are fenced, and partitions with near readers move",
        kinds=(*(FaultKind.STOP,) * 3, *(FaultKind.KILL,) * 2, FaultKind.SLOW_LINK, FaultKind.ISOLATE),
        targets=("leader", "n1", "n2", "n3", "n4", "n5"),
        nodes=5,
        controllers=1,
        mean_gap_s=0.6,
        mean_duration_s=1.5,
        workloads=("moves", "wide churn", "nearby consumers"),
        racks=("abcde", "aabbc", "aaabb", "aabcd", "aaaab"),
        properties={"broker.session.timeout.ms": "1000", "broker.heartbeat.interval.ms": "150"},
        drawn_properties=_DRAWN,
    ),
)
