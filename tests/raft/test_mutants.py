"""The simulation's checks are checked: known ways to break a quorum are each caught within some seeds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.raft.quorum_mutants import MUTANTS, SNAPSHOT_MUTANTS, Mutate
from support.raft.simulation import simulate

FIRST_SEED = {
    "commit_older_epochs_by_count": 84,
    "count_votes_of_any_round": 30,
    "cut_at_the_end_of_another_epoch": 84,
}
"""Where the rare ones are known to be caught soon, to spare the time."""


@pytest.fixture(params=MUTANTS + SNAPSHOT_MUTANTS, ids=lambda mutate: mutate.__name__)
def mutant(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mutate]:
    request.param(monkeypatch)
    yield request.param


def test_mutant_is_caught(mutant: Mutate) -> None:
    first = FIRST_SEED.get(mutant.__name__, 0)
    for seed in range(first, first + 600):
        try:
            simulate(seed, voters=5 if seed % 2 else 3, observers=0, snapshots=mutant in SNAPSHOT_MUTANTS)
        except Exception:
            return
    raise AssertionError("not caught in 600 seeds")
