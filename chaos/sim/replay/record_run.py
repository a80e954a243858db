"""Runs a seed again and records it for a replay."""

from __future__ import annotations

from collections.abc import Sequence

from ..faults.fault import Fault
from ..invariants.names import CHECKED_IN_EVERY_RUN
from ..run import Outcome, Run
from ..scenario import Scenario
from .history import Failure, History, RunFacts
from .recorder import RunRecorder


def record_run(scenario: Scenario, seed: int, faults: Sequence[Fault] | None = None) -> tuple[Outcome, History]:
    """The outcome of a run and its history. `faults` replaces the faults that the seed would draw."""
    run = Run(scenario, seed, faults)
    recorder = RunRecorder(run.cluster, lambda: len(run.history.acked))
    run.world.observe(recorder)
    outcome = run.execute()
    failure = failure_of(outcome)
    if failure is not None:
        recorder.on_failure(failure)
    facts = RunFacts(
        scenario=scenario.name,
        what=scenario.what,
        seed=seed,
        digest=outcome.digest,
        events=outcome.events,
        acked=outcome.acked,
        end_us=round(outcome.virtual_s * 1e6),
        command=f"raftwerk sim --scenario {scenario.name} --seed {seed}{'' if faults is None else ' --shrink'}",
        failure=failure,
        invariants=CHECKED_IN_EVERY_RUN,
    )
    return outcome, recorder.history(facts)


def failure_of(outcome: Outcome) -> Failure | None:
    """The broken invariant of a run, with the time at which the run ended."""
    if outcome.failure is None:
        return None
    name, _, detail = outcome.failure.partition(": ")
    return Failure(name, detail, round(outcome.virtual_s * 1e6))
