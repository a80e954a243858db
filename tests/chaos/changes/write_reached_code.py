"""Writes chaos/sim/changes/reached_code.txt: which scenarios run which functions. Run it as a program, some minutes."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
from collections import Counter
from pathlib import Path

import coverage

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "tests"))

_PACKAGES = ("broker", "cluster", "controller", "isr", "log", "raft", "runtime", "security", "wire")
_RUNS_A_WORKER = 8


def reached(task: tuple[str, int]) -> tuple[str, set[tuple[str, int]]]:
    """The lines that one seed of a scenario runs."""
    from raftwerk.chaos.sim.run import Run
    from raftwerk.chaos.sim.scenarios import SCENARIOS

    scenario, seed = task
    include = [f"{ROOT}/{below}{package}/*" for package in _PACKAGES for below in ("", "raftwerk/")]
    measured = coverage.Coverage(data_file=None, config_file=False, include=include)
    with measured.collect():
        Run(SCENARIOS[scenario], seed).execute()
    data = measured.get_data()
    found: set[tuple[str, int]] = set()
    for file in data.measured_files():
        path = os.path.relpath(os.path.realpath(file), ROOT)
        found.update((path, line) for line in data.lines(file) or ())
    return scenario, found


def main() -> None:
    """Run the seeds, and write the table."""
    from support.chaos.reached_code import table

    from raftwerk.chaos.sim import changes
    from raftwerk.chaos.sim.scenarios import SCENARIOS

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    counts: dict[str, Counter[tuple[str, int]]] = {name: Counter() for name in SCENARIOS}
    tasks = [(name, seed) for seed in range(options.seeds) for name in SCENARIOS]
    with multiprocessing.get_context("spawn").Pool(options.processes, maxtasksperchild=_RUNS_A_WORKER) as pool:
        for done, (name, lines) in enumerate(pool.imap_unordered(reached, tasks), start=1):
            counts[name].update(lines)
            print(f"\r{done} of {len(tasks)} runs", end="", file=sys.stderr, flush=True)
    paths = {path for lines in counts.values() for path, _ in lines}
    sources = {path: (ROOT / path).read_text(encoding="utf-8") for path in paths}
    written = Path(changes.__path__[0]) / "reached_code.txt"
    written.write_text("".join(f"{line}\n" for line in table(counts, options.seeds, sources)), encoding="utf-8")


if __name__ == "__main__":
    main()
