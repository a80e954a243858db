"""Draws the faults of a run from its seed."""

from __future__ import annotations

import random
from collections.abc import Sequence

from .fault import Fault, FaultKind


def draw_faults(
    rng: random.Random,
    kinds: Sequence[FaultKind],
    targets: Sequence[str],
    *,
    start_s: float,
    end_s: float,
    mean_gap_s: float,
    mean_duration_s: float,
) -> list[Fault]:
    """At least one fault between two times. Each lasts at most four times the mean, and ends by `end_s`."""
    faults: list[Fault] = []
    at_s = min(start_s + rng.expovariate(1 / mean_gap_s), (start_s + end_s) / 2)
    while at_s < end_s:
        duration_s = min(rng.expovariate(1 / mean_duration_s), 4 * mean_duration_s, end_s - at_s)
        faults.append(Fault(at_s, rng.choice(kinds), rng.choice(targets), rng.choice(targets), duration_s))
        at_s += rng.expovariate(1 / mean_gap_s)
    return faults
