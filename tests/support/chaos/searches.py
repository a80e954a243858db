"""Searches for a mutant: how many runs they take, by uniform seeds and guided by what is rare."""

from __future__ import annotations

from raftwerk.chaos.sim.run import Outcome, Run
from raftwerk.chaos.sim.scenarios import SCENARIOS
from raftwerk.chaos.sim.search.guided_seeds import GuidedSeeds
from raftwerk.chaos.sim.seed import Seed

UNIFORM = 1.0
"""The share of fresh seeds that leaves no forks."""


class RunsOfMutant:
    """The runs of whatever is patched in. Searches that choose the same run share it."""

    def __init__(self) -> None:
        self._outcomes: dict[tuple[str, Seed], Outcome] = {}

    def outcome(self, scenario: str, seed: Seed) -> Outcome:
        """The outcome of one run."""
        if (scenario, seed) not in self._outcomes:
            self._outcomes[scenario, seed] = Run(SCENARIOS[scenario], seed).execute()
        return self._outcomes[scenario, seed]

    def until_found(self, search: GuidedSeeds, runs_max: int) -> int:
        """How many runs the search takes until one fails; one more than `runs_max` if none of so many does."""
        for count in range(1, runs_max + 1):
            outcome = self.outcome(*search.next_run())
            if outcome.failure is not None:
                return count
            search.on_outcome(outcome.scenario, outcome.seed, outcome.seen)
        return runs_max + 1

    def failed(self, *, forks: bool) -> tuple[int, int]:
        """How many of the runs failed, and how many there were: of the forks, or of the fresh seeds."""
        outcomes = [one for one in self._outcomes.values() if bool(one.seed.forks) is forks]
        return sum(one.failure is not None for one in outcomes), len(outcomes)
