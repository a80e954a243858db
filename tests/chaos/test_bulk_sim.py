"""What is done some a turn where there is very much of it, done one by one: every seam between two turns is met.

So deletions overtake creations, leaders change before their turn has come, controllers die half-way through a broker's
departure, and sessions are opened partition by partition. The audit of watches is off: nothing may need it.
"""

from __future__ import annotations

import pytest

from raftwerk.chaos.runs import SCENARIOS, Run
from raftwerk.controller import brokers, replication
from raftwerk.isr import fetch_session, isr_changes, role_backlog, watch
from raftwerk.raft import publisher


@pytest.fixture(autouse=True)
def _one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(role_backlog, "PARTITIONS_PER_TURN", 1)
    monkeypatch.setattr(watch, "LOOKED_AT_ONCE", 1)
    monkeypatch.setattr(watch, "AUDIT_INTERVAL_MS", 10**9)
    monkeypatch.setattr(fetch_session, "NAMED_AT_ONCE", 1)
    monkeypatch.setattr(isr_changes, "_ITEMS_MAX", 1)
    monkeypatch.setattr(replication, "CHANGES_AT_ONCE", 1)
    monkeypatch.setattr(brokers, "CHANGES_AT_ONCE", 1)
    monkeypatch.setattr(publisher, "_CHUNK_BYTES", 200)


@pytest.mark.parametrize("scenario", ["leader-crash", "failover", "mixed", "power", "churn", "moves"])
@pytest.mark.parametrize("seed", range(2))
def test_seeds(scenario: str, seed: int) -> None:
    outcome = Run(SCENARIOS[scenario], seed).execute()
    assert outcome.failure is None, outcome
