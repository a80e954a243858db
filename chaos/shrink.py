"""Makes a failing run smaller: leaves out faults that the failure does not need."""

from __future__ import annotations

from collections.abc import Sequence

from .runs import Outcome, Run, Scenario
from .scenario import Fault


def shrink(scenario: Scenario, seed: int) -> tuple[Sequence[Fault], Outcome]:
    """The smallest list of faults found that breaks the same invariant, and the outcome of the run with it."""
    run = Run(scenario, seed)
    faults, outcome = run.faults, run.execute()
    if outcome.failure is None:
        return faults, outcome
    broken = outcome.broken
    position = len(faults) - 1
    while position >= 0:
        fewer = [*faults[:position], *faults[position + 1 :]]
        tried = Run(scenario, seed, fewer).execute()
        if tried.failure is not None and tried.broken == broken:
            faults, outcome = fewer, tried
        position -= 1
    return faults, outcome
