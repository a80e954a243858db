"""Work that is done in steps, with one item a step, so that faults meet every boundary between two steps.

So deletions overtake creations, leaders change before their step has come, controllers die while they fence a broker,
and fetch sessions are opened partition by partition. The audit of incremental fetch contexts is off: the nodes must
work without it.
"""

from __future__ import annotations

import pytest

from raftwerk.chaos.sim.run import Run
from raftwerk.chaos.sim.scenarios import SCENARIOS
from raftwerk.controller.partitions import broker_departures
from raftwerk.isr.fetching import dirty_partitions
from raftwerk.isr.follower import follower_fetch_session
from raftwerk.isr.leader import alter_partition_manager, isr_proposals
from raftwerk.isr.roles import pending_role_transitions
from raftwerk.raft.driver import commit_publisher
from raftwerk.runtime import incremental_work


@pytest.fixture(autouse=True)
def _one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_role_transitions, "PARTITIONS_PER_SLICE", 1)
    monkeypatch.setattr(dirty_partitions, "LOOKED_AT_ONCE", 1)
    monkeypatch.setattr(dirty_partitions, "AUDIT_INTERVAL_MS", 10**9)
    monkeypatch.setattr(follower_fetch_session, "NAMED_AT_ONCE", 1)
    monkeypatch.setattr(alter_partition_manager, "_ITEMS_MAX", 1)
    monkeypatch.setattr(isr_proposals, "SHRINKS_PER_SLICE", 1)
    monkeypatch.setattr(broker_departures, "CHANGES_PER_BATCH", 1)
    monkeypatch.setattr(incremental_work, "ITEMS_PER_STEP", 1)
    monkeypatch.setattr(commit_publisher, "_CHUNK_BYTES", 200)


@pytest.mark.parametrize(
    "scenario", ["leader-crash", "failover", "mixed", "power", "churn", "moves", "elections", "min-isr"]
)
@pytest.mark.parametrize("seed", range(2))
def test_seeds(scenario: str, seed: int) -> None:
    outcome = Run(SCENARIOS[scenario], seed).execute()
    assert outcome.failure is None, outcome
