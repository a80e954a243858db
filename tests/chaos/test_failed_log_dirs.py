"""A log directory fails under load: other brokers lead at once, and no write waits for the replicas in it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from raftwerk.chaos.sim.faults.fault import Fault, FaultKind
from raftwerk.chaos.sim.run import Run
from raftwerk.chaos.sim.scenarios import SCENARIOS

DIRS = replace(SCENARIOS["dirs"], faults_s=2.0)


@pytest.mark.parametrize("at_s", [0.5, 0.501])
def test_writes_resume_within_a_second(at_s: float) -> None:
    """The two times hit two directories."""
    for seed, target in enumerate(("n1", "n2", "n3")):
        faults = [Fault(at_s, FaultKind.DIR_FAILS, target, target, 1.5)]
        outcome = Run(DIRS, seed, faults=faults).execute()
        assert outcome.failure is None, f"seed {seed}: {outcome.failure}"
        assert outcome.longest_ack_gap_s < 1.0, f"seed {seed}"
