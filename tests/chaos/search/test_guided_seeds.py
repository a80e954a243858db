"""Which runs a search chooses, by the outcomes of those before: no run is made here."""

from __future__ import annotations

from collections import Counter

from raftwerk.chaos.sim.search.guided_seeds import GuidedSeeds
from raftwerk.chaos.sim.seed import Seed
from raftwerk.runtime.invariants import Sightings

USUAL = {"usual": Sightings(2.0, 5)}


def search(runs: int, first_seed: int = 0, rare: int = 3, at_s: float = 4.0) -> list[tuple[str, Seed]]:
    """The runs of a search in which one seed, and what is forked from it, reach something rare."""
    guided = GuidedSeeds(["a", "b"], first_seed)
    chosen = []
    for _ in range(runs):
        scenario, seed = guided.next_run()
        chosen.append((scenario, seed))
        seen = dict(USUAL)
        if seed.number == rare:
            seen["rare"] = Sightings(at_s, 1)
        guided.on_outcome(scenario, seed, seen)
    return chosen


def test_a_search_begins_with_fresh_seeds_and_takes_the_scenarios_in_turn() -> None:
    fresh = [(scenario, seed) for scenario, seed in search(60, first_seed=40) if not seed.forks]
    assert [seed.number for _, seed in fresh] == [*range(40, 40 + len(fresh))]
    assert [scenario for scenario, _ in fresh] == ["a", "b"] * (len(fresh) // 2) + ["a"] * (len(fresh) % 2)
    assert 15 < len(fresh) < 50
    assert not any(seed.forks for _, seed in search(4))


def test_the_same_outcomes_lead_to_the_same_runs() -> None:
    assert search(60) == search(60)
    assert search(60) != search(60, rare=4)


def test_what_reached_something_rare_is_forked_more_often_near_that_moment() -> None:
    forks = [(scenario, seed) for scenario, seed in search(100) if seed.forks]
    numbers = Counter(seed.number for _, seed in forks)
    assert numbers.most_common(1)[0][0] == 3
    assert {scenario for scenario, seed in forks if seed.number == 3} == {"b"}
    late = [seed.forks[-1].at_s for _, seed in forks if seed.number == 3 and seed.forks[-1].at_s > 3.0]
    assert len(late) > numbers[3] / 2
    assert min(late) >= 3.5 and max(late) <= 4.3


def test_the_same_run_is_not_forked_for_ever() -> None:
    numbers = Counter(seed.number for _, seed in search(100) if seed.forks)
    assert len(numbers) > 5


def test_what_is_seen_before_the_faults_begin_is_no_moment_to_fork_at() -> None:
    guided = GuidedSeeds(["a"])
    for _ in range(50):
        scenario, seed = guided.next_run()
        assert not seed.forks
        guided.on_outcome(scenario, seed, {"at the start": Sightings(0.0, 3)})


def test_a_count_of_another_magnitude_is_rare_too() -> None:
    guided = GuidedSeeds(["a"])
    forked: Counter[int] = Counter()
    for _ in range(80):
        scenario, seed = guided.next_run()
        if seed.forks:
            forked[seed.number] += 1
        many = seed.number == 2 and not seed.forks
        guided.on_outcome(scenario, seed, {"usual": Sightings(2.0, 300 if many else 5)})
    assert forked.most_common(1)[0][0] == 2
