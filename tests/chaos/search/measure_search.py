"""Measures how many runs find a mutant, by uniform seeds and by a search: prints a table. Run it as a program.

Both begin with the same fresh seeds, so they differ in the forks alone, and a run that both choose is made once.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from pathlib import Path
from statistics import mean, median

import pytest

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "tests"))

_SEEDS_APART = 1000
_MUTANTS = (
    "a failed fsync is believed",
    "divergence after a fast double failover (KIP-279)",
    "a recovery point before its fsync",
    "commits of any generation are taken",
    "a commit of the epoch before is taken",
    "another min.insync.replicas leaves nobody to lead",
    "an ISR of a former partition epoch is taken",
    "a transaction is complete after its first marker",
    "unclean elections",
    "offsets answered before they are replicated",
    "a truncation leaves producers as they were",
    "a form of records is finalized that a broker does not know",
)
"""Bugs of docs/mutants.md that took uniform seeds more than five runs."""
_HEAD = """| bug | scenario | uniform seeds: median (mean) | search: median (mean) | failed of fresh | failed of forks |
|---|---|---:|---:|---:|---:|"""


def row(name: str, searches: int, runs_max: int) -> str:
    """One line of the table: this many searches of each kind, each of at most so many runs."""
    from support.chaos.promise_mutants import ALL_MUTANTS
    from support.chaos.searches import UNIFORM, RunsOfMutant

    from raftwerk.chaos.sim.search.guided_seeds import FRESH_SHARE, GuidedSeeds

    mutant = next(one for one in ALL_MUTANTS if one.name == name)
    counts: dict[float, list[int]] = {UNIFORM: [], FRESH_SHARE: []}
    with pytest.MonkeyPatch.context() as patch:
        mutant.apply(patch)
        runs = RunsOfMutant()
        for number in range(searches):
            for fresh_share, found in counts.items():
                search = GuidedSeeds(mutant.scenarios, number * _SEEDS_APART, fresh_share)
                found.append(runs.until_found(search, runs_max))
    told = [f"{median(found):g} ({mean(found):.1f})" for found in counts.values()]
    told += [f"{failed} of {count}" for failed, count in (runs.failed(forks=False), runs.failed(forks=True))]
    return f"| {name} | {', '.join(mutant.scenarios)} | {' | '.join(told)} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mutants", nargs="*", default=_MUTANTS)
    parser.add_argument("--searches", type=int, default=10)
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    print(_HEAD, flush=True)
    with multiprocessing.get_context("fork").Pool(options.processes, maxtasksperchild=1) as pool:
        made = [pool.apply_async(row, (name, options.searches, options.runs)) for name in options.mutants]
        for one in made:
            print(one.get(), flush=True)


if __name__ == "__main__":
    main()
