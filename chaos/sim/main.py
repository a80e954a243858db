"""`raftwerk sim`: many seeds of simulated clusters, and for each that fails its number, what broke, and a timeline.

At the end, or when it is interrupted, it says what was simulated and at what price, and where another run may go on.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from .run import Outcome, Run
from .scenarios import SCENARIOS
from .shrink import shrink

_DEFAULT_SEEDS = 100
_RUNS_A_WORKER = 50


@dataclass(slots=True)
class Totals:
    """What the runs so far come to."""

    runs: int = 0
    virtual_s: float = 0.0
    events: int = 0
    acked: int = 0
    cpu_s: float = 0.0
    scenarios: dict[str, int] = field(default_factory=dict)
    failed: list[Outcome] = field(default_factory=list)

    def add(self, outcome: Outcome, cpu_s: float) -> None:
        """One more run, which took so many seconds of one core."""
        self.runs += 1
        self.virtual_s += outcome.virtual_s
        self.events += outcome.events
        self.acked += outcome.acked
        self.cpu_s += cpu_s
        self.scenarios[outcome.scenario] = self.scenarios.get(outcome.scenario, 0) + 1
        if outcome.failure is not None:
            self.failed.append(outcome)

    @property
    def seeds_per_core_minute(self) -> float:
        return 60 * self.runs / self.cpu_s if self.cpu_s else 0.0


def main(arguments: Sequence[str]) -> int:
    """Run as asked; 0 when every seed held, 1 when one failed, 2 for wrong usage."""
    options = _parser().parse_args(arguments)
    names = options.scenario or list(SCENARIOS)
    tasks, resume_at = _tasks(options, names)
    started = time.monotonic()
    totals = Totals()
    try:
        for outcome, cpu_s in _run_all(tasks, options.jobs):
            totals.add(outcome, cpu_s)
            if options.verbose and not options.json:
                print(_line(outcome), flush=True)
            if outcome.failure is not None and not options.json:
                _print_failure(outcome, options)
            if outcome.failure is not None and not options.keep_going:
                break
            if options.minutes is not None and time.monotonic() - started > 60 * options.minutes:
                break
    except KeyboardInterrupt:
        pass
    following = None if resume_at is None else resume_at + totals.runs
    if options.json:
        print(json.dumps(_summary(totals, time.monotonic() - started, following), indent=2))
    else:
        _print_summary(totals, time.monotonic() - started, following)
    return 1 if totals.failed else 0


def _tasks(options: argparse.Namespace, names: Sequence[str]) -> tuple[list[tuple[str, int]], int | None]:
    """Pairs of scenario and seed, and where they begin when scenarios take turns."""
    if options.seed is not None:
        count = options.seeds if options.seeds is not None else 1
        return [(name, options.seed + number) for number in range(count) for name in names], None
    first = options.resume
    count = options.seeds if options.seeds is not None else _DEFAULT_SEEDS
    return [(names[number % len(names)], number) for number in range(first, first + count)], first


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
    parser.add_argument("--resume", type=int, default=0, metavar="S", help="where the turns begin (default 0)")
    parser.add_argument("--minutes", type=float, metavar="M", help="begin no run after so long")
    parser.add_argument("--json", action="store_true", help="print nothing but the sums, as JSON")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one a core)")
    parser.add_argument("--timeline", type=int, default=60, metavar="N", help="events shown of a failing seed")
    parser.add_argument("--shrink", action="store_true", help="leave out faults that a failure does not need")
    parser.add_argument("--keep-going", action="store_true", help="go on after a failure")
    parser.add_argument("--verbose", "-v", action="store_true", help="a line for every seed")
    return parser


def _run_all(tasks: Sequence[tuple[str, int]], jobs: int) -> Iterator[tuple[Outcome, float]]:
    if jobs <= 1 or len(tasks) == 1:
        yield from map(_run_one, tasks)
        return
    with multiprocessing.get_context("spawn").Pool(min(jobs, len(tasks)), maxtasksperchild=_RUNS_A_WORKER) as pool:
        yield from pool.imap(_run_one, tasks)


def _run_one(task: tuple[str, int]) -> tuple[Outcome, float]:
    """The outcome, without the timeline of what went well, and the seconds of one core that it took."""
    name, seed = task
    started = time.process_time()
    outcome = Run(SCENARIOS[name], seed).execute()
    if outcome.failure is None:
        outcome = replace(outcome, timeline=())
    return outcome, time.process_time() - started


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


def _print_summary(totals: Totals, wall_s: float, following: int | None) -> None:
    failed = [f"{outcome.scenario}:{outcome.seed}" for outcome in totals.failed]
    print(
        f"{totals.runs} runs, {totals.virtual_s / 3600:.2f} simulated hours, {totals.events:,} events, "
        f"{totals.acked:,} records acked, in {wall_s:.1f} s; {totals.seeds_per_core_minute:.0f} seeds a core-minute; "
        f"{len(failed)} failed{': ' + ', '.join(failed) if failed else ''}."
    )
    if following is not None:
        print(f"To go on: --resume {following}")


def _summary(totals: Totals, wall_s: float, following: int | None) -> dict[str, object]:
    return {
        "runs": totals.runs,
        "simulated_hours": round(totals.virtual_s / 3600, 4),
        "events": totals.events,
        "records_acked": totals.acked,
        "wall_s": round(wall_s, 1),
        "cpu_s": round(totals.cpu_s, 1),
        "seeds_per_core_minute": round(totals.seeds_per_core_minute, 1),
        "scenarios": totals.scenarios,
        "failed": [
            {"scenario": outcome.scenario, "seed": outcome.seed, "failure": outcome.failure}
            for outcome in totals.failed
        ],
        "resume": following,
    }
