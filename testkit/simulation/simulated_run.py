"""One run of a simulated test: a seed, a cluster, the faults, the test's coroutine, and what came of it."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...chaos.sim.cluster_config import ClusterConfig
from ...chaos.sim.faults.fault import Fault
from ...chaos.sim.faults.nemesis import Nemesis
from ...chaos.sim.invariants.invariant_broken import InvariantBroken
from ...chaos.sim.kernel.event_loop import ProcessLoop, SimulationError
from ...chaos.sim.kernel.run_observer import RunObserver
from ...chaos.sim.kernel.world import World
from ...chaos.sim.simulated_cluster import SimulatedCluster
from .application_loop import ApplicationLoop
from .controlled_sources import ControlledSources
from .escapes import Escapes
from .fault_names import draw
from .module_state import ModuleState
from .sim_application import SimApplication
from .sim_cluster import SimCluster
from .simulated_targets import SimulatedTargets

_TEST, _HARNESS = "test", "harness"
_OF_NODES_ALONE = (
    *("info: ", "warning: ", "error: "),
    *("leads ", "unattached of ", "prospective of ", "candidate of ", "follower of "),
)
_RUNS_PER_COLLECTION = 10
_LINES_KEPT = 5_000
_START_LIMIT_S = 30.0
_IGNORED_EXIT = "coroutine ignored GeneratorExit"

Test = Callable[[SimCluster], Coroutine[Any, Any, object]]


class SimulationFailed(AssertionError):
    """A simulated test failed in another way than by an error of its own; the sentence says how."""


class _ProcessEnded(BaseException):
    """`time.sleep` raises it in a process that was killed meanwhile. No `except Exception` of the program stops it."""


def _exited(name: str, end: SystemExit) -> SimulationFailed:
    where = "in a task; the coroutine that was started may call it"
    failed = SimulationFailed(f"{name} called sys.exit({end.code!r}) {where}")
    failed.__cause__ = end
    return failed


@dataclass(frozen=True, slots=True)
class SimulationOptions:
    """The shape of the cluster, the faults and the limit of a simulated test."""

    nodes: int = 3
    settings: Mapping[str, str] = field(default_factory=dict)
    faults: tuple[str, ...] = ()
    faults_for_s: float = 20.0
    mean_gap_s: float = 3.0
    limit_s: float = 600.0


@dataclass(frozen=True, slots=True)
class SimulatedOutcome:
    """What came of a run."""

    seed: int
    failure: BaseException | None
    faults: Sequence[Fault]
    digest: str
    story: Sequence[str]
    virtual_s: float


class Simulator:
    """Runs seeds of one test, while it controls time, randomness and what would leave the simulation."""

    def __init__(self) -> None:
        self.sources = ControlledSources(self._sleep)
        self.escapes = Escapes(lambda: self.sources.is_inside)
        self._modules = ModuleState()
        self._runs = 0
        self._warnings = warnings.catch_warnings()
        self._unraisable = sys.unraisablehook
        self._run: _Run | None = None
        self._loop: ApplicationLoop | None = None
        """The process of the application whose event runs."""

    def __enter__(self) -> Simulator:
        # Clients of processes that were killed are never closed, and would warn of that in some later test.
        self._warnings.__enter__()
        warnings.simplefilter("ignore", ResourceWarning)
        self._unraisable, sys.unraisablehook = sys.unraisablehook, self._tell_unraisable
        self.sources.install()
        self.escapes.install()
        return self

    def __exit__(self, *_: object) -> None:
        self.escapes.remove()
        self.sources.remove()
        gc.collect()
        sys.unraisablehook = self._unraisable
        self._warnings.__exit__(None, None, None)

    def _tell_unraisable(self, unraisable: Any) -> None:
        """Python closes the coroutines of killed processes, of which some would `await` more in their `finally`."""
        if str(unraisable.exc_value) != _IGNORED_EXIT:
            self._unraisable(unraisable)

    def run(
        self,
        test: Test,
        seed: int,
        options: SimulationOptions,
        faults: Sequence[Fault] | None = None,
        observe: Callable[[SimulatedCluster], RunObserver] | None = None,
    ) -> SimulatedOutcome:
        """Run one seed, with the faults that follow from it unless others are given.

        `observe` makes an observer of the run, which changes nothing in it.
        """
        gc_was_on = gc.isenabled()
        gc.disable()  # so that memory use does not decide when objects are finalized
        world = World(seed, lines_kept=_LINES_KEPT)
        self.sources.begin(seed)
        self._modules.restore()
        self.escapes.found.clear()
        try:
            with world, _StoryOfLogs(world, self.sources):
                run = self._run = _Run(self, world, options)
                if observe is not None:
                    world.observe(observe(run.nodes))
                return run.execute(test, faults)
        finally:
            self._run = None
            if gc_was_on:
                gc.enable()
            self._runs += 1
            if self._runs % _RUNS_PER_COLLECTION == 0:
                gc.collect()  # little is allocated between runs, so it would hardly come by itself

    def around_event(self, process: ProcessLoop, run: Callable[[], object]) -> None:
        """Run an event; within one of the application, time and randomness are virtual."""
        was = (self.sources.is_inside, self._loop)
        try:
            if isinstance(process, ApplicationLoop):
                self._enter(process)
            else:
                self.sources.is_inside = False
            run()
        except SystemExit as end:
            if not isinstance(process, ApplicationLoop):
                raise
            self.escapes.found.append(_exited(process.name, end))
        finally:
            self.sources.is_inside, self._loop = was

    def _enter(self, loop: ApplicationLoop) -> None:
        if self._run is not None:
            world = self._run.world
            self._loop = loop
            self.sources.enter(world.now_s, world.hosts[loop.name].clock.wall_ms() / 1000)

    def _sleep(self, seconds: float) -> None:
        """`time.sleep` in the application: its process does nothing while the world and its faults go on."""
        loop, run = self._loop, self._run
        if loop is None or run is None:
            return
        if loop.slept_s is not None:
            loop.slept_s += seconds
            return
        run.world.trace.show(loop.name, f"time.sleep({seconds:g}) blocks the event loop")
        swap = getattr(asyncio.tasks, "_swap_current_task", None)
        task = swap(loop, None) if swap is not None else None
        self.sources.is_inside = False
        loop.block()
        try:
            has_slept = run.sleep(loop, seconds)
        finally:
            loop.unblock()
            asyncio._set_running_loop(loop.as_asyncio)
            if swap is not None:
                swap(loop, task)
            self._enter(loop)
        if not has_slept:
            raise _ProcessEnded


class _Run:
    """The parts of one run."""

    def __init__(self, simulator: Simulator, world: World, options: SimulationOptions) -> None:
        self.world = world
        self._simulator = simulator
        self._options = options
        self._began_s = self._deadline_s = 0.0
        self._nemesis: Nemesis | None = None
        self.nodes = SimulatedCluster(world, ClusterConfig(options.nodes, properties=options.settings))
        self._targets = SimulatedTargets(self.nodes, _TEST, _flushes_each_batch(options.settings))
        world.scheduler.around_event = simulator.around_event
        for name in (_TEST, _HARNESS):
            world.add_host(name)
        self._harness = ProcessLoop(world.scheduler, _HARNESS, world.network)
        world.processes.append(self._harness)

    def execute(self, test: Test, faults: Sequence[Fault] | None) -> SimulatedOutcome:
        failure: BaseException | None = None
        drawn: Sequence[Fault] = ()
        try:
            self.nodes.start_all()
            scheduler = self.world.scheduler
            if not scheduler.run_until(self.nodes.is_healthy, _START_LIMIT_S):
                raise SimulationFailed(f"the cluster does not start: {self.nodes.why_not_healthy()}")
            scheduler.stop_at_first_error = True
            self._began_s = self.world.now_s
            drawn = self._draw() if faults is None else faults
            self._nemesis = Nemesis(self._targets, drawn)
            self._deadline_s = self.world.now_s + self._options.limit_s
            failure = self._run_test(test, self._nemesis)
        except (SimulationError, InvariantBroken, SimulationFailed) as error:
            failure = error
        if self.world.errors:
            first = self.world.errors[0]
            failure = SimulationFailed(f"the cluster itself failed, which is a bug of Raftwerk: {first}")
        world = self.world
        story = [line for line in world.trace.timeline(_LINES_KEPT) if _tells(line)]
        story = [line for line in story if float(line.split(maxsplit=1)[0]) > self._began_s]
        return SimulatedOutcome(world.seed, failure, drawn, world.trace.digest(), story, world.now_s)

    def _draw(self) -> list[Fault]:
        options, now_s = self._options, self.world.now_s
        rng = self.world.rng_for("faults of the application")
        end_s = now_s + options.faults_for_s
        return draw(rng, options.faults, start_s=now_s, end_s=end_s, mean_gap_s=options.mean_gap_s)

    def _run_test(self, test: Test, nemesis: Nemesis) -> BaseException | None:
        def heal() -> None:
            self.world.trace.note(_TEST, "heal()")
            nemesis.cancel()
            nemesis.heal_links_and_hosts()
            for application in self._targets.applications.values():
                application.resume()
            self._targets.restart_all()

        cluster = SimCluster(self.nodes, self._harness, self._make_application, self._targets, heal)
        loop = self._make_loop(_TEST)
        self.world.processes.append(loop)
        self.world.hosts[_TEST].process = loop
        task = loop.create_task(test(cluster), name="test")
        if not nemesis.run_until(task.done, self._deadline_s):
            return self._not_ended(loop)
        return self._failure_of(task)

    def sleep(self, loop: ApplicationLoop, seconds: float) -> bool:
        """Let the world go on while a process sleeps, and longer if it is paused; False when it has been killed.

        It is also False at the end of the run, if the process is paused for longer.
        """
        if self._nemesis is None:
            return False
        self._nemesis.run_until(lambda: loop.dead, self.world.now_s + seconds)
        if loop.paused:
            self._nemesis.run_until(lambda: loop.dead or not loop.paused, self._deadline_s)
        return not (loop.dead or loop.paused)

    def _failure_of(self, task: asyncio.Task[object]) -> BaseException | None:
        if task.cancelled():
            return SimulationFailed("the test's task was cancelled")
        failure = task.exception()
        if failure is not None:
            return _exited(_TEST, failure) if isinstance(failure, SystemExit) else failure
        if self._simulator.escapes.found:
            return self._simulator.escapes.found[0]
        for application in self._targets.applications.values():
            if application.error is not None:
                told = f"{application.name} ended with {application.error!r}"
                failed = SimulationFailed(f"{told}; `await ended()` expects an error")
                failed.__cause__ = application.error
                return failed
        return None

    def _not_ended(self, test_loop: ApplicationLoop) -> SimulationFailed:
        applications = self._targets.applications.values()
        loops = [test_loop, *(each.loop for each in applications if each.loop is not None)]
        waiting = [f"  {loop.name}: {line}" for loop in loops for line in loop.waiting_tasks()]
        text = f"the test did not end within {self._options.limit_s:g} virtual seconds (limit_s)"
        told = "; ".join([text, *self._targets.deaths(), "these tasks wait:"])
        return SimulationFailed("\n".join([told, *waiting]))

    def _make_loop(self, name: str) -> ApplicationLoop:
        world = self.world
        return ApplicationLoop(world.scheduler, name, world.network, world.trace.show, self._simulator.escapes.refusal)

    def _make_application(self, name: str, program: Callable[[], Awaitable[object]]) -> SimApplication:
        if name in self.world.hosts:
            raise ValueError(f"there is a process {name!r} already: give this one another `name`")
        application = SimApplication(self.world, self.world.add_host(name), self._make_loop, program)
        self._targets.applications[name] = application
        return application


class _StoryOfLogs(logging.Handler):
    """Puts what the application logs, from INFO on, into the story, and nowhere else."""

    def __init__(self, world: World, sources: ControlledSources) -> None:
        super().__init__(logging.INFO)
        self._world = world
        self._sources = sources
        self._root = logging.getLogger()
        self._before = (self._root.level, self._root.handlers)

    def __enter__(self) -> None:
        self._root.handlers = [self]
        self._root.setLevel(logging.INFO)

    def __exit__(self, *_: object) -> None:
        level, self._root.handlers = self._before
        self._root.setLevel(level)

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler`."""
        if self._sources.is_inside:
            where = getattr(asyncio._get_running_loop(), "name", "-")
            told = f"{record.levelname.lower()}: {' '.join(record.getMessage().split())}"
            error = record.exc_info[1] if record.exc_info else None
            self._world.show_line(where, told if error is None else f"{told}: {error!r}")


def _flushes_each_batch(settings: Mapping[str, str]) -> bool:
    return settings.get("log.flush.interval.messages") == "1"


def _tells(line: str) -> bool:
    """Whether a line of the timeline belongs into an application's story: nodes' logs do not, nor followers' roles."""
    _, where, text = line.split(maxsplit=2)
    is_of_node = where[0] in ("n", "c") and where[1:].isdigit()
    return not (is_of_node and text.startswith(_OF_NODES_ALONE))
