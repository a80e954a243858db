"""Late requests of a former transaction: what Kafka's protocol allows below `transaction.version` 2, and not with it.

Jepsen's analysis of Bufstream 0.1.0 says that a request of a former transaction may tear or lose a later one, since
nothing orders the two. With an epoch for each transaction (KIP-890) the late request is refused. A late marker of a
former coordinator is always refused.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.chaos.late_marker import late_marker

from raftwerk.chaos.sim.faults.fault import Fault, FaultKind
from raftwerk.chaos.sim.run import Outcome, Run
from raftwerk.chaos.sim.scenarios import SCENARIOS
from raftwerk.chaos.sim.workloads.transactions.transactional_producer import ClientStyle

SCENARIO = SCENARIOS["late-requests"]
OLD = replace(SCENARIO, workloads=("late old transactions",))
SLOW = [Fault(0.3, FaultKind.SLOW_CLIENTS, node, node, SCENARIO.faults_s) for node in SCENARIO.targets]
"""Requests to every node may be late all the time."""
SEEDS = range(100)


@pytest.fixture(scope="module")
def harmful() -> Outcome:
    """The first run in which an old client is harmed. About one in six is."""
    outcomes = (Run(OLD, seed, SLOW).execute() for seed in SEEDS)
    return next(outcome for outcome in outcomes if outcome.failure is not None)


def test_a_late_request_harms_a_later_transaction_of_an_old_client(harmful: Outcome) -> None:
    assert harmful.broken in ("nothing is read that was not committed", "a reported commit is never undone")


def test_no_request_of_a_former_transaction_is_taken_with_a_new_epoch_for_each(harmful: Outcome) -> None:
    assert Run(SCENARIO, harmful.seed, SLOW).execute().failure is None


@pytest.mark.parametrize("version", [1, 2])
def test_a_late_marker_of_a_former_coordinator_ends_no_later_transaction(version: int) -> None:
    assert late_marker(ClientStyle(version)) is None
