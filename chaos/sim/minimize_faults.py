"""Shrinks a failing run: leaves out the faults that the failure does not need."""

from __future__ import annotations

from collections.abc import Sequence

from .faults.fault import Fault
from .run import Outcome, Run
from .scenario import Scenario


def shrink(scenario: Scenario, seed: int) -> tuple[Sequence[Fault], Outcome]:
    """A list of faults of which none can be left out, and the outcome of the run with them.

    The remaining faults break the same invariant as all of them. Halves are left out first, then smaller parts.
    """
    run = Run(scenario, seed)
    faults, outcome = run.faults, run.execute()
    if outcome.failure is None:
        return faults, outcome
    broken = outcome.broken
    size = (len(faults) + 1) // 2
    while size and faults:
        left_out = False
        for start in range(max(0, len(faults) - size), -1, -size):
            fewer = [*faults[:start], *faults[start + size :]]
            tried = Run(scenario, seed, fewer).execute()
            if tried.failure is not None and tried.broken == broken:
                faults, outcome, left_out = fewer, tried, True
        if not left_out or size > 1:
            size //= 2
    return faults, outcome
