"""Half-open connections: one end is gone, and the other end does not know it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from raftwerk.chaos.sim.faults.fault import Fault, FaultKind
from raftwerk.chaos.sim.run import Run
from raftwerk.chaos.sim.scenarios import SCENARIOS


@pytest.mark.parametrize("target", ["n1", "n2", "n3"])
def test_a_node_that_answers_its_peers_with_resets_holds_nothing_up_when_that_is_over(target: str) -> None:
    """Its fetches wait on connections that the leaders have lost, while it is fenced and unfenced."""
    for seed in range(4):
        faults = [Fault(1.0, FaultKind.REJECT, target, target, 3.0)]
        outcome = Run(replace(SCENARIOS["network"], faults_s=6.0), seed, faults=faults).execute()
        assert outcome.failure is None
        assert outcome.longest_ack_gap_s < 3.0, f"seed {seed}"


def test_a_controller_does_not_believe_in_connections_of_its_former_term() -> None:
    """It keeps connections that its brokers have lost; then the next controller dies, and the brokers return to it."""
    for seed in range(8):
        faults = [
            Fault(1.0, FaultKind.REJECT, "controller", "n1", 2.0),
            Fault(5.0, FaultKind.KILL, "controller", "n1", 10.0),
        ]
        outcome = Run(replace(SCENARIOS["network"], faults_s=15.0), seed, faults=faults).execute()
        assert outcome.failure is None
        assert outcome.longest_ack_gap_s < 3.0, f"seed {seed}"
