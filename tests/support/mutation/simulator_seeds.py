"""Fixed seeds of the simulator, as tests: what the unit tests let live is run by whole nodes under faults."""

import pytest

from raftwerk.chaos.sim.run import Run
from raftwerk.chaos.sim.scenarios import SCENARIOS

SEEDS = (
    ("leader-crash", 0), ("kill", 0), ("mixed", 0), ("elections", 0), ("voters", 0), ("power", 0), ("moves", 0),
    ("churn", 0), ("min-isr", 0), ("isolation", 0), ("elr", 0), ("trims", 0), ("roles", 0), ("dirs", 0),
)  # fmt: skip


@pytest.mark.parametrize(("scenario", "seed"), SEEDS)
def test_seed(scenario: str, seed: int) -> None:
    assert Run(SCENARIOS[scenario], seed).execute().failure is None
