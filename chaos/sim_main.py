"""`raftwerk sim`: many seeds of simulated clusters, and for each that fails its number, what broke, and a timeline."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence

from .runs import SCENARIOS, Outcome, Run
from .shrink import shrink

_DEFAULT_SEEDS = 100
_RUNS_A_WORKER = 50


def main(arguments: Sequence[str]) -> int:
    """Run as asked; 0 when every seed held, 1 when one failed, 2 for wrong usage."""
    options = _parser().parse_args(arguments)
    names = options.scenario or list(SCENARIOS)
    count = options.seeds if options.seeds is not None else (_DEFAULT_SEEDS if options.seed is None else 1)
    first = options.seed or 0
    tasks = [(names[number % len(names)], first + number) for number in range(count)]
    if options.seed is not None:
        tasks = [(name, first + number) for number in range(count) for name in names]
    started = time.monotonic()
    outcomes = []
    for outcome in _run_all(tasks, options.jobs):
        outcomes.append(outcome)
        if options.verbose:
            print(_line(outcome), flush=True)
        if outcome.failure is not None:
            _print_failure(outcome, options)
            if not options.keep_going:
                break
    _print_summary(outcomes, time.monotonic() - started)
    return 1 if any(outcome.failure for outcome in outcomes) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="raftwerk sim",
        description="Run clusters of whole nodes in the deterministic simulator. The same seed gives the same run.",
    )
    parser.add_argument("--seeds", type=int, metavar="N", help=f"how many seeds (default {_DEFAULT_SEEDS})")
    parser.add_argument("--seed", type=int, metavar="S", help="the first seed; without --seeds the only one")
    parser.add_argument(
        "--scenario", action="append", choices=list(SCENARIOS), help="may be repeated; without it seeds take turns"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one a core)")
    parser.add_argument("--timeline", type=int, default=60, metavar="N", help="events shown of a failing seed")
    parser.add_argument("--shrink", action="store_true", help="leave out faults that a failure does not need")
    parser.add_argument("--keep-going", action="store_true", help="go on after a failure")
    parser.add_argument("--verbose", "-v", action="store_true", help="a line for every seed")
    return parser


def _run_all(tasks: Sequence[tuple[str, int]], jobs: int) -> Iterator[Outcome]:
    if jobs <= 1 or len(tasks) == 1:
        yield from map(_run_one, tasks)
        return
    with multiprocessing.get_context("spawn").Pool(min(jobs, len(tasks)), maxtasksperchild=_RUNS_A_WORKER) as pool:
        yield from pool.imap(_run_one, tasks)


def _run_one(task: tuple[str, int]) -> Outcome:
    name, seed = task
    return Run(SCENARIOS[name], seed).execute()


def _line(outcome: Outcome) -> str:
    return (
        f"{outcome.scenario:<13} seed {outcome.seed:<6} {outcome.digest[:12]} {outcome.virtual_s:6.1f} s virtual, "
        f"{outcome.events:>7} events, {outcome.acked:>5} acked, longest gap {outcome.longest_ack_gap_s:5.2f} s"
        f"{'' if outcome.failure is None else '  FAILED'}"
    )


def _print_failure(outcome: Outcome, options: argparse.Namespace) -> None:
    faults = outcome.faults
    if options.shrink:
        _, outcome = shrink(SCENARIOS[outcome.scenario], outcome.seed)
        print(f"\n{len(outcome.faults)} of {len(faults)} faults are needed.")
    print(f"\nFAILED: scenario {outcome.scenario}, seed {outcome.seed}: {outcome.failure}")
    print("\nFaults:")
    for fault in outcome.faults:
        print(f"  {fault}")
    print("\nTimeline:")
    for line in outcome.timeline[-options.timeline :]:
        print(f"  {line}")
    print(f"\nAgain: raftwerk sim --scenario {outcome.scenario} --seed {outcome.seed}\n", flush=True)


def _print_summary(outcomes: Sequence[Outcome], wall_s: float) -> None:
    failed = [f"{outcome.scenario}:{outcome.seed}" for outcome in outcomes if outcome.failure is not None]
    hours = sum(outcome.virtual_s for outcome in outcomes) / 3600
    events = sum(outcome.events for outcome in outcomes)
    acked = sum(outcome.acked for outcome in outcomes)
    print(
        f"{len(outcomes)} runs, {hours:.2f} simulated hours, {events:,} events, {acked:,} records acked, "
        f"in {wall_s:.1f} s; {len(failed)} failed{': ' + ', '.join(failed) if failed else ''}."
    )
