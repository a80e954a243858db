"""Late requests of a former transaction: what Kafka's protocol allows below `transaction.version` 2, and not with it.

Jepsen's analysis of Bufstream 0.1.0 says that a request of a former transaction may tear or lose a later one, since
nothing orders the two. With an epoch for each transaction (KIP-890) the late request is refused.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from raftwerk.chaos.sim.run import Run
from raftwerk.chaos.sim.scenarios import SCENARIOS

SCENARIO = SCENARIOS["late-requests"]
OLD = replace(SCENARIO, workloads=("late old transactions",))
SEEDS = (3, 8)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_late_request_harms_a_later_transaction_of_an_old_client(seed: int) -> None:
    failure = Run(OLD, seed).execute().failure
    assert failure is not None
    assert failure.startswith("nothing is read that was not committed")


@pytest.mark.parametrize("seed", SEEDS)
def test_no_request_of_a_former_transaction_is_taken_with_a_new_epoch_for_each(seed: int) -> None:
    assert Run(SCENARIO, seed).execute().failure is None
