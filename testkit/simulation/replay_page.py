"""The page that plays a failed run of a simulated test."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...chaos.sim.invariants.invariant_broken import InvariantBroken
from ...chaos.sim.invariants.names import CHECKED_IN_EVERY_RUN
from ...chaos.sim.kernel.run_observer import RunObserver
from ...chaos.sim.replay.history import Failure, RunFacts
from ...chaos.sim.replay.page_text import render_replay
from ...chaos.sim.replay.recorder import RunRecorder
from ...chaos.sim.simulated_cluster import SimulatedCluster
from .simulated_run import SimulatedOutcome

OF_SIMULATED_TESTS = {about: names for about, names in CHECKED_IN_EVERY_RUN.items() if about != "clients"}
"""The simulator knows nothing of what the application's clients were promised."""


@dataclass(slots=True)
class RecordedRun:
    """Records a run, of which `observe` makes the observer."""

    _recorded: list[tuple[RunRecorder, SimulatedCluster]] = field(default_factory=list)

    def observe(self, cluster: SimulatedCluster) -> RunObserver:
        """The observer of the run of this cluster."""
        recorder = RunRecorder(cluster, lambda: 0)
        self._recorded.append((recorder, cluster))
        return recorder

    def page(self, outcome: SimulatedOutcome, test: str, what: str, command: str) -> str:
        """The page of the run that was recorded last; `test` names the test, and `command` runs the seed again."""
        recorder, cluster = self._recorded[-1]
        failure = _failure_of(outcome)
        if failure is not None:
            recorder.on_failure(failure)
        facts = RunFacts(
            scenario=test,
            what=what,
            seed=outcome.seed,
            digest=outcome.digest,
            events=cluster.world.scheduler.events_run,
            acked=0,
            end_us=round(outcome.virtual_s * 1e6),
            command=command,
            failure=failure,
            invariants=OF_SIMULATED_TESTS,
        )
        return render_replay(recorder.history(facts))


def _failure_of(outcome: SimulatedOutcome) -> Failure | None:
    error = outcome.failure
    if error is None:
        return None
    at_us = round(outcome.virtual_s * 1e6)
    if isinstance(error, InvariantBroken):
        return Failure(error.name, error.detail, at_us)
    first, _, rest = str(error).partition("\n")
    return Failure(
        f"{type(error).__name__}: {first}" if first else type(error).__name__, rest, at_us, is_invariant=False
    )
