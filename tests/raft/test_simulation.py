"""Quorums of 1, 3 and 5 voters in seeded histories of faults; every invariant is checked after every event."""

from __future__ import annotations

import pytest
from support.raft.simulation import simulate

SEEDS_A_TEST = 30


@pytest.mark.parametrize("first", range(0, 360, SEEDS_A_TEST))
def test_seeds(first: int) -> None:
    elections = committed = installs = late_votes = 0
    for seed in range(first, first + SEEDS_A_TEST):
        voters, observers = [(3, 0), (3, 1), (5, 0), (3, 0), (1, 1)][seed % 5]
        try:
            sim = simulate(seed, voters, observers, snapshots=seed % 2 == 0)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        elections += sim.elections
        committed += len(sim.committed)
        installs += sim.installs
        late_votes += sim.late_votes
    assert elections > SEEDS_A_TEST, "the histories have elections in them"
    assert installs > SEEDS_A_TEST // 6, "slow nodes fetch snapshots"
    assert late_votes > SEEDS_A_TEST, "votes outlive their round"
    assert committed > 10 * SEEDS_A_TEST, "the histories commit records"
