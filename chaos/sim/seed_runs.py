"""Runs many seeds of simulated clusters, and reports each failing seed with its timeline.

At the end, or when it is interrupted, it prints totals and the seed at which another run may continue.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING, TextIO, TypeAlias

from ...cluster.command_line.plural import counted, size_text
from ...runtime.os_errors import os_reason
from .changes.changed_functions import NoChangesError, changed_functions
from .changes.scenario_weights import ReachedCode, drawn, weights
from .faults.fault import Fault
from .minimize_faults import shrink
from .replay.history import within
from .replay.page_text import render_replay
from .replay.record_run import record_run
from .run import Outcome, Run
from .scenarios import SCENARIOS
from .statements import ConfirmedStatements

if TYPE_CHECKING:
    from multiprocessing.pool import IMapIterator

DEFAULT_SEEDS = 100
_RUNS_A_WORKER = 50
_PROGRESS_EVERY_S = 10.0
_MANY_RUNS = 500
"""From so many runs on, the rare branches that none reached are named."""
_REFRESH_S = 1.0
_SCENARIOS_NAMED = 5

Task: TypeAlias = tuple[str, int]
"""A scenario and a seed."""


@dataclass(frozen=True, slots=True)
class SeedOptions:
    """Which seeds to run, and what to print; the options of `raftwerk sim`."""

    seeds: int | None = None
    first_seed: int | None = None
    """Each scenario runs the seeds from here on. None: the seeds from `resume` on take the scenarios in turn."""
    changed: str | None = None
    """A commit: each seed draws the scenario, by how much it runs of what has changed since then."""
    scenarios: tuple[str, ...] = ()
    """Names of scenarios; empty: all of them."""
    resume: int = 0
    minutes: float | None = None
    """Begin no run after this time."""
    as_json: bool = False
    jobs: int = 1
    timeline: int = 60
    """How many events of a failing seed are shown."""
    shrink: bool = False
    keep_going: bool = False
    verbose: bool = False
    html: str | None = None
    """The file for the replay of the run, or of the first one that fails if there are several."""
    html_from: float = 0.0
    html_to: float | None = None
    """The virtual seconds that the replay shows."""


@dataclass(slots=True)
class Totals:
    """The totals of the runs so far."""

    runs: int = 0
    virtual_s: float = 0.0
    events: int = 0
    acked: int = 0
    cpu_s: float = 0.0
    scenarios: dict[str, int] = field(default_factory=dict)
    failed: list[Outcome] = field(default_factory=list)
    statements: ConfirmedStatements = field(default_factory=ConfirmedStatements)

    def add(self, outcome: Outcome, cpu_s: float) -> None:
        """Add a run that took `cpu_s` seconds of one core."""
        self.runs += 1
        self.virtual_s += outcome.virtual_s
        self.events += outcome.events
        self.acked += outcome.acked
        self.cpu_s += cpu_s
        self.statements.add(outcome.scenario, outcome.seen)
        self.scenarios[outcome.scenario] = self.scenarios.get(outcome.scenario, 0) + 1
        if outcome.failure is not None:
            self.failed.append(outcome)

    @property
    def seeds_per_core_minute(self) -> float:
        """Runs in a minute of one core's time."""
        return 60 * self.runs / self.cpu_s if self.cpu_s else 0.0


def run_seeds(options: SeedOptions) -> int:
    """Run the seeds and print the results; the exit code: 1 if a seed failed, 130 or 143 after a signal, else 0."""
    chosen = _chosen(options)
    started = time.monotonic()
    totals = Totals()
    progress = Progress(len(chosen.tasks), sys.stderr, is_shown=not options.as_json and not options.verbose)
    interrupted: list[int] = []
    shown: _ShownRun | None = None

    def on_sigterm(number: int, _frame: object) -> None:
        interrupted.append(number)
        raise KeyboardInterrupt  # the workers have to be ended

    previous = signal.signal(signal.SIGTERM, on_sigterm)
    try:
        if chosen.told and not options.as_json:
            print(chosen.told, flush=True)
        progress.show(totals)
        for outcome, cpu_s in _run_all(chosen.tasks, options.jobs, lambda: progress.show(totals)):
            totals.add(outcome, cpu_s)
            progress.show(totals)
            if options.verbose and not options.as_json:
                print(_line(outcome), flush=True)
            told = _ShownRun(outcome)
            if outcome.failure is not None:
                is_shown = options.html is not None and shown is None
                if options.shrink and (is_shown or not options.as_json):
                    needed, shrunk = shrink(SCENARIOS[outcome.scenario], outcome.seed)
                    told = _ShownRun(shrunk, needed)
                if not options.as_json:
                    progress.erase()
                    _print_failure(told, len(outcome.faults), options)
            if shown is None and (outcome.failure is not None or len(chosen.tasks) == 1):
                shown = told
            if outcome.failure is not None and not options.keep_going:
                break
            if options.minutes is not None and time.monotonic() - started > 60 * options.minutes:
                break
    except KeyboardInterrupt:
        interrupted = interrupted or [signal.SIGINT]
    finally:
        signal.signal(signal.SIGTERM, previous)
    progress.erase()
    following = None if chosen.resume_at is None else chosen.resume_at + totals.runs
    if options.as_json:
        print(json.dumps(_summary(totals, time.monotonic() - started, following)))
    else:
        _print_summary(totals, time.monotonic() - started, following)
    if options.html is not None and not interrupted and not _write_replay(shown, options.html, options):
        return 1
    if totals.failed:
        return 1
    return 128 + interrupted[0] if interrupted else 0


@dataclass(frozen=True, slots=True)
class _ShownRun:
    """A run that is told in full, or shown by a replay."""

    outcome: Outcome
    faults: Sequence[Fault] | None = None
    """The faults that its failure needs, if they were looked for; None: all that the seed draws."""


def _write_replay(shown: _ShownRun | None, path: str, options: SeedOptions) -> bool:
    """Record the run again, and write its page; False if it could not be written."""
    say = print if not options.as_json else lambda _text: None
    if shown is None:
        say(f"No run failed, so {path} is not written; --seed with one --scenario shows a run that holds.")
        return True
    outcome, history = record_run(SCENARIOS[shown.outcome.scenario], shown.outcome.seed, shown.faults)
    if options.html_from * 1e6 >= history.to_us:
        print(f"Error: the run ends after {outcome.virtual_s:.3f} s, before --html-from", file=sys.stderr)
        return False
    to_us = history.to_us if options.html_to is None else round(options.html_to * 1e6)
    page = render_replay(within(history, round(options.html_from * 1e6), to_us))
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(page)
    except OSError as error:
        print(f"Error: the replay could not be written: {os_reason(error)}", file=sys.stderr)
        return False
    say(f"Replay of scenario {outcome.scenario}, seed {outcome.seed}: {path}, {size_text(len(page.encode()))}.")
    return True


class Progress:
    """How many runs there were so far: a line that is rewritten on a terminal, elsewhere a line now and then."""

    def __init__(self, count: int, stream: TextIO, *, is_shown: bool) -> None:
        self._count = count
        self._stream = stream
        self._is_shown = is_shown and count > 1
        self._began = self._last = time.monotonic()
        self._width = 0

    def show(self, totals: Totals) -> None:
        """Show the totals, unless that was done on a file less than some seconds ago."""
        now = time.monotonic()
        is_terminal = self._stream.isatty()
        if not self._is_shown or (not is_terminal and now - self._last < _PROGRESS_EVERY_S):
            return
        self._last = now
        text = f"{totals.runs} of {self._count} runs, {len(totals.failed)} failed, {now - self._began:.0f} s"
        self._stream.write(f"\r{text:{self._width}}" if is_terminal else f"{text}\n")
        self._stream.flush()
        self._width = len(text) if is_terminal else 0

    def erase(self) -> None:
        """Remove the line from the terminal."""
        if self._width:
            self._stream.write(f"\r{'':{self._width}}\r")
            self._stream.flush()
            self._width = 0


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The runs that the options choose."""

    tasks: Sequence[Task]
    resume_at: int | None = None
    """The first seed, if each has one scenario."""
    told: str = ""
    """How they were chosen."""


def _chosen(options: SeedOptions) -> _Chosen:
    names = options.scenarios or tuple(SCENARIOS)
    if options.first_seed is not None:
        last = options.first_seed + (1 if options.seeds is None else options.seeds)
        return _Chosen([(name, seed) for seed in range(options.first_seed, last) for name in names])
    first = options.resume
    seeds = range(first, first + (DEFAULT_SEEDS if options.seeds is None else options.seeds))
    if options.changed is None:
        return _Chosen([(names[seed % len(names)], seed) for seed in seeds], first)
    shares = _shares(options.changed, names)
    return _Chosen([(drawn(shares, seed), seed) for seed in seeds], first, _told(options.changed, shares))


def _shares(revision: str, names: Sequence[str]) -> Mapping[str, float]:
    changed = changed_functions(os.path.dirname(__file__), revision)
    if not changed:
        raise NoChangesError(f"no code of the nodes has changed since {revision}: leave out --changed")
    found = weights(changed, ReachedCode.load(), names)
    if not found:
        raise NoChangesError(f"no scenario is known to run what has changed since {revision}: leave out --changed")
    return found


def _told(revision: str, shares: Mapping[str, float]) -> str:
    often = sorted(shares, key=lambda name: -shares[name])[:_SCENARIOS_NAMED]
    told = ", ".join(f"{name} {shares[name]:.0%}" for name in often)
    return f"Scenarios by what has changed since {revision}: {told}{', ...' if len(shares) > len(often) else ''}"


def _run_all(tasks: Sequence[Task], jobs: int, while_waiting: Callable[[], None]) -> Iterator[tuple[Outcome, float]]:
    """The results in the order of the tasks. `while_waiting` is called every second until the next one is there."""
    if len(tasks) == 1:
        yield _run_one(tasks[0])
        return
    context = multiprocessing.get_context("spawn")
    # Ctrl-C on a terminal is sent to the workers, too. They inherit this mask, also those that are started later.
    resource_tracker.ensure_running()  # its start would remove the mask
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
    try:
        pool = context.Pool(min(jobs, len(tasks)), maxtasksperchild=_RUNS_A_WORKER)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT,))
    with pool:
        results = pool.imap(_run_one, tasks)
        for _ in tasks:
            yield _next_of(results, while_waiting)


def _next_of(results: IMapIterator[tuple[Outcome, float]], while_waiting: Callable[[], None]) -> tuple[Outcome, float]:
    while True:
        try:
            return results.next(_REFRESH_S)
        except multiprocessing.TimeoutError:
            while_waiting()


def _run_one(task: Task) -> tuple[Outcome, float]:
    """The outcome, with a timeline only if it failed, and the seconds of one core that it took."""
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


def _print_failure(told: _ShownRun, drawn: int, options: SeedOptions) -> None:
    """Print the failure; the seed had `drawn` faults."""
    outcome = told.outcome
    if told.faults is not None:
        print(f"\n{len(told.faults)} of {drawn} faults are needed.")
    print(f"\nFAILED: scenario {outcome.scenario}, seed {outcome.seed}: {outcome.failure}")
    print("\nFaults:")
    for fault in outcome.faults:
        print(f"  {fault}")
    print("\nTimeline:")
    for line in outcome.timeline[-options.timeline :]:
        print(f"  {line}")
    again = f"raftwerk sim --scenario {outcome.scenario} --seed {outcome.seed}"
    print(f"\nAgain: {again}")
    if options.html is None:
        print(f"Watch: {again} --html replay.html")
    print(flush=True)


def simulated_time(seconds: float) -> str:
    """How long the nodes lived, in a unit in which it is a number to read."""
    if seconds < 120:
        return f"{seconds:.1f} simulated seconds"
    return f"{seconds / 60:.1f} simulated minutes" if seconds < 7200 else f"{seconds / 3600:.1f} simulated hours"


def _print_summary(totals: Totals, wall_s: float, following: int | None) -> None:
    failed = [f"{outcome.scenario}:{outcome.seed}" for outcome in totals.failed]
    print(
        f"{counted(totals.runs, 'run')}, {simulated_time(totals.virtual_s)}, {totals.events:,} events, "
        f"{totals.acked:,} records acked, in {wall_s:.1f} s; {totals.seeds_per_core_minute:.0f} seeds a core-minute; "
        f"{len(failed)} failed{': ' + ', '.join(failed) if failed else ''}."
    )
    never = totals.statements.never
    print(f"{len(totals.statements) - len(never)} of {len(totals.statements)} rare branches were reached.")
    if totals.runs >= _MANY_RUNS:
        for what in never:
            print(f"  not in these runs: {what}")
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
        "sometimes": totals.statements.as_json(),
        "resume": following,
    }
