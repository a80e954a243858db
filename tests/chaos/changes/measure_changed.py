"""Measures how many runs find a mutant, with scenarios in turn and by what the mutant changes. Run it as a program.

Some seeds of every scenario are run with the mutant. From their outcomes many searches of both kinds are drawn.
"""

from __future__ import annotations

import argparse
import inspect
import multiprocessing
import os
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import mean, median
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "tests"))

_SEARCHES = 10_000
_RUNS_MAX = 1_000
_HEAD = """| bug | failed | in scenarios | in turn: median (mean) | by what changed: median (mean) | most often then |
|---|---:|---:|---:|---:|---|"""


def apply_noting(apply: Callable[[pytest.MonkeyPatch], None], patch: pytest.MonkeyPatch) -> set[str]:
    """Put a mutant in; returns the functions that it replaces."""
    changed: set[str] = set()
    replace = pytest.MonkeyPatch.setattr

    def noting(self: pytest.MonkeyPatch, target: Any, name: Any, *value: Any, **options: Any) -> None:
        if value and not isinstance(target, str):
            changed.add(_name_of(target, name))
        replace(self, target, name, *value, **options)

    pytest.MonkeyPatch.setattr = noting  # type: ignore[method-assign]
    try:
        apply(patch)
    finally:
        pytest.MonkeyPatch.setattr = replace  # type: ignore[method-assign]
    return changed


def _name_of(target: Any, name: str) -> str:
    """What a commit with the change would be told to have changed, wherever the function is defined."""
    replaced = inspect.getattr_static(target, name, None)
    if isinstance(replaced, property):
        replaced = replaced.fget
    replaced = inspect.unwrap(getattr(replaced, "__func__", replaced)) if replaced is not None else None
    if inspect.isfunction(replaced):
        file, function = replaced.__code__.co_filename, replaced.__qualname__
    else:
        module = sys.modules[target.__module__] if inspect.isclass(target) else target
        file, function = module.__file__ or "", target.__qualname__ if inspect.isclass(target) else ""
    return f"{os.path.relpath(os.path.realpath(file), ROOT)}:{function}"


def row(name: str, seeds: int) -> str:
    """One line of the table, from so many seeds of each scenario."""
    from support.chaos.promise_mutants import ALL_MUTANTS

    from raftwerk.chaos.sim.changes.scenario_weights import ReachedCode, weights
    from raftwerk.chaos.sim.run import Run
    from raftwerk.chaos.sim.scenarios import SCENARIOS

    names = list(SCENARIOS)
    mutant = next(one for one in ALL_MUTANTS if one.name == name)
    with pytest.MonkeyPatch.context() as patch:
        shares = weights(apply_noting(mutant.apply, patch), ReachedCode.load(), names)
        failed = {
            scenario: [Run(SCENARIOS[scenario], seed).execute().failure is not None for seed in range(seeds)]
            for scenario in names
        }
    shares = shares or dict.fromkeys(names, 1 / len(names))
    rng = random.Random(name)
    in_turn = [_until_failed(_in_turn(names, rng), failed, rng) for _ in range(_SEARCHES)]
    by_change = [_until_failed(_by_shares(shares, rng), failed, rng) for _ in range(_SEARCHES)]
    often = ", ".join(f"{one} {shares[one]:.0%}" for one in sorted(shares, key=lambda one: -shares[one])[:3])
    told = " | ".join(f"{median(found):g} ({mean(found):.1f})" for found in (in_turn, by_change))
    count = sum(sum(of_scenario) for of_scenario in failed.values())
    return f"| {name} | {count} of {seeds * len(names)} | {sum(map(any, failed.values()))} | {told} | {often} |"


def _in_turn(names: Sequence[str], rng: random.Random) -> Iterator[str]:
    begin = rng.randrange(len(names))
    return (names[(begin + number) % len(names)] for number in range(_RUNS_MAX))


def _by_shares(shares: Mapping[str, float], rng: random.Random) -> Iterator[str]:
    return iter(rng.choices(list(shares), list(shares.values()), k=_RUNS_MAX))


def _until_failed(scenarios: Iterator[str], failed: Mapping[str, Sequence[bool]], rng: random.Random) -> int:
    """How many runs a search takes whose runs have these outcomes."""
    return next((count for count, one in enumerate(scenarios, start=1) if rng.choice(failed[one])), _RUNS_MAX)


def main() -> None:
    """Print the table."""
    from support.chaos.promise_mutants import ALL_MUTANTS

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mutants", nargs="*", help="default: every fourth of docs/mutants.md")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    names = options.mutants or [one.name for one in ALL_MUTANTS if one.scenarios][::4]
    print(_HEAD, flush=True)
    with multiprocessing.get_context("fork").Pool(options.processes, maxtasksperchild=1) as pool:
        for line in pool.imap(partial(row, seeds=options.seeds), names):
            print(line, flush=True)


if __name__ == "__main__":
    main()
