"""Work that is done in steps, with one item a step, so that faults meet every boundary between two steps.

So deletions overtake creations, leaders change before their step has come, controllers die while they fence a broker,
and fetch sessions are opened partition by partition. The audit of incremental fetch contexts is off: the nodes must
work without it.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator

import pytest

from raftwerk.broker.apis.records import large_produce
from raftwerk.chaos.sim.kernel.drawn_constants import SMALL_STEPS, many_steps, modules_with, steps_of
from raftwerk.chaos.sim.run import Run
from raftwerk.chaos.sim.scenarios import SCENARIOS
from raftwerk.isr.fetching import dirty_partitions, fetch_requests
from raftwerk.runtime import incremental_work
from raftwerk.wire import produce


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(dirty_partitions, "AUDIT_INTERVAL_MS", 10**9)
    with steps_of({name: min(values) for name, values in SMALL_STEPS.items()}):
        yield


@pytest.mark.usefixtures("one_by_one")
@pytest.mark.parametrize(
    "scenario", ["leader-crash", "failover", "mixed", "power", "churn", "moves", "elections", "min-isr"]
)
@pytest.mark.parametrize("seed", range(2))
def test_seeds(scenario: str, seed: int) -> None:
    outcome = Run(SCENARIOS[scenario], seed).execute()
    assert outcome.failure is None, outcome


@pytest.mark.parametrize("name", SMALL_STEPS)
def test_each_constant_is_there(name: str) -> None:
    assert Run.__module__ in sys.modules  # what a run loads
    assert modules_with(name)


def test_steps_are_small_in_all_modules_until_the_run_ends() -> None:
    def values() -> list[int]:
        return [
            incremental_work.ITEMS_PER_STEP,
            fetch_requests.ITEMS_PER_STEP,  # type: ignore[attr-defined]
            produce.PARTITIONS_PER_STEP,
            large_produce.PARTITIONS_PER_STEP,  # type: ignore[attr-defined]
        ]

    usual, seen = values(), set()
    for seed in range(20):
        with many_steps(random.Random(seed)):
            seen.add(tuple(values()))
        assert values() == usual
    assert seen >= {(1, 1, 1, 1), (3, 3, 1, 1), tuple(usual)}
    assert all(first == second for first, second, *_ in seen)
