"""Work that is done in steps, with one item a step, so that faults meet every boundary between two steps.

So deletions overtake creations, leaders change before their step has come, controllers die while they fence a broker,
and fetch sessions are opened partition by partition. The audit of incremental fetch contexts is off: the nodes must
work without it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from raftwerk.chaos.sim.kernel.drawn_constants import SMALL_STEPS, steps_of
from raftwerk.chaos.sim.run import Run
from raftwerk.chaos.sim.scenarios import SCENARIOS
from raftwerk.isr.fetching import dirty_partitions


@pytest.fixture(autouse=True)
def _one_by_one(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(dirty_partitions, "AUDIT_INTERVAL_MS", 10**9)
    with steps_of({name: min(values) for name, values in SMALL_STEPS.items()}):
        yield


@pytest.mark.parametrize(
    "scenario", ["leader-crash", "failover", "mixed", "power", "churn", "moves", "elections", "min-isr"]
)
@pytest.mark.parametrize("seed", range(2))
def test_seeds(scenario: str, seed: int) -> None:
    outcome = Run(SCENARIOS[scenario], seed).execute()
    assert outcome.failure is None, outcome
