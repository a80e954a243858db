"""Chooses the runs of a search: fresh seeds, and forks of runs that reached something rare.

A uniform seed reaches a rare branch now and then, and the next seed begins from nothing. Here such a run is kept, and
is run again with everything drawn anew from shortly before or after the rare moment: its prefix has brought the cluster
into a state that few seeds reach, and there are many ways on from it. What is rare is counted by the statements of what
happens sometimes. As in AFL, a statement that is confirmed 40 times is rarer than the same confirmed twice, and
a run is chosen the more often the rarer its statements are, and the less often it was chosen before.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ....runtime.invariants import Sightings
from ..seed import Seed

FRESH_SHARE = 0.4
"""How many of the runs have a fresh seed, once there is something to fork."""
_FRESH_FIRST = 4
_BEFORE_S, _AFTER_S = 0.4, 0.2
_FORK_NUMBERS = 1000

Feature = tuple[str, int]


@dataclass(slots=True)
class _KeptRun:
    scenario: str
    seed: Seed
    moments: Mapping[Feature, float]
    """When each of its features was first seen; in seconds since the faults began."""
    times_forked: int = 0


class GuidedSeeds:
    """Pure: outcomes in, the next run out. The same first seed and outcomes give the same runs."""

    def __init__(self, scenarios: Sequence[str], first_seed: int = 0, fresh_share: float = FRESH_SHARE) -> None:
        self._scenarios = scenarios
        self._fresh_share = fresh_share
        self._rng = random.Random(f"{first_seed} search")
        self._next_seed = first_seed
        self._first_seed = first_seed
        self._runs_with: Counter[Feature] = Counter()
        self._kept: list[_KeptRun] = []

    def next_run(self) -> tuple[str, Seed]:
        """The scenario and the seed of the next run."""
        if len(self._kept) < _FRESH_FIRST or self._rng.random() < self._fresh_share:
            return self._fresh()
        return self._fork()

    def on_outcome(self, scenario: str, seed: Seed, seen: Mapping[str, Sightings]) -> None:
        """A run that held has confirmed these statements."""
        moments = dict(_features(seen))
        self._runs_with.update(moments)
        if any(at_s > 0 for at_s in moments.values()):
            self._kept.append(_KeptRun(scenario, seed, moments))

    def _fresh(self) -> tuple[str, Seed]:
        number = self._next_seed
        self._next_seed += 1
        return self._scenarios[(number - self._first_seed) % len(self._scenarios)], Seed(number)

    def _fork(self) -> tuple[str, Seed]:
        run = self._rng.choices(self._kept, [self._energy(one) for one in self._kept])[0]
        run.times_forked += 1
        forkable = [(feature, at_s) for feature, at_s in run.moments.items() if at_s > 0]
        _, at_s = self._rng.choices(forkable, [self._rarity(feature) for feature, _ in forkable])[0]
        fork_at_s = max(0.001, at_s + self._rng.uniform(-_BEFORE_S, _AFTER_S))
        return run.scenario, run.seed.forked(fork_at_s, self._rng.randrange(_FORK_NUMBERS))

    def _energy(self, run: _KeptRun) -> float:
        rarest = max(self._rarity(feature) for feature, at_s in run.moments.items() if at_s > 0)
        return rarest / (1 + run.times_forked)

    def _rarity(self, feature: Feature) -> float:
        return 1 / self._runs_with[feature]


def _features(seen: Mapping[str, Sightings]) -> Iterator[tuple[Feature, float]]:
    """Each statement, and each power of two that its count reached."""
    for what, sightings in seen.items():
        for power in range(sightings.count.bit_length()):
            yield (what, power), sightings.first_s
