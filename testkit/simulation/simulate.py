"""`simulate`: an asynchronous test as many seeded runs on a simulated cluster."""

from __future__ import annotations

import inspect
import os
import shlex
import sys
import traceback
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import wraps
from itertools import groupby
from types import UnionType
from typing import Any, Never

from ...chaos.sim.cluster_config import ClusterConfig
from ...chaos.sim.faults.fault import Fault
from ...chaos.sim.kernel.world import World
from ...chaos.sim.simulated_cluster import SimulatedCluster
from ...cluster.command_line.plural import counted
from ...cluster.settings.node_config import load_config
from ...runtime.os_errors import os_reason
from ..cluster_operations import texts_of
from .fault_names import names_of
from .replay_page import RecordedRun
from .sim_cluster import SimCluster
from .simulated_run import SimulatedOutcome, SimulationFailed, SimulationOptions, Simulator, Test

SEED_VARIABLE = "RAFTWERK_SIMULATE_SEED"
"""The environment variable that replays one seed."""
HTML_VARIABLE = "RAFTWERK_SIMULATE_HTML"
"""The environment variable that names the file for the page of a seed that fails."""
DEFAULT_FAULTS = "kill,pause,cut,slow,reset"
_SIMULATORS_OWN = (
    "node.id",
    "process.roles",
    "listeners",
    "advertised.listeners",
    "controller.listener.names",
    "controller.quorum.voters",
    "controller.quorum.bootstrap.servers",
    "log.dirs",
)
_LONG_POLLS = {"replica.fetch.wait.max.ms": "5000"}
"""Followers that have nothing to fetch ask less often, which halves what a quiet hour costs; records end the wait."""
_SHRINKING_RUNS_MAX = 100
_STORY_LINES = 60

_USUAL_CAUSES = (
    "Usual causes: what one run leaves in a module, a class or a fixture, a thread of a library, the order of a set of "
    "objects, real files, a clock that was kept as a default argument"
)


class NotDeterministicError(AssertionError):
    """Two runs of one seed differ: the application has something from outside that the simulator does not control."""


def simulate(
    *without_parentheses: Never,
    seeds: int | Iterable[int] = 100,
    nodes: int = 3,
    faults: str = DEFAULT_FAULTS,
    faults_for_s: float = 20.0,
    mean_gap_s: float = 3.0,
    limit_s: float = 600.0,
    settings: Mapping[str, object] | None = None,
) -> Callable[[Callable[..., Coroutine[Any, Any, object]]], Callable[..., None]]:
    """Make an asynchronous test with a parameter `cluster` a test of as many seeds on a simulated cluster.

    `faults` names what is drawn, as in "kill,cut" (see `fault_names.NAMED_FAULTS`; "" for none), during the first
    `faults_for_s` virtual seconds, on average every `mean_gap_s`. A run fails after `limit_s` virtual seconds. Settings
    are those of server.properties. The first seed runs twice, and must take the same way twice. Raises `ValueError`
    for a fault that does not exist and for numbers that make no run, and `ConfigError` for a setting.
    """
    if without_parentheses:
        raise TypeError("write @simulate() with its parentheses; options are named, as in @simulate(seeds=20)")
    if settings is not None and not isinstance(settings, Mapping):
        raise ValueError(f"settings={settings!r}: a dict, such as {{'min.insync.replicas': 2}}")
    texts = texts_of(settings or {})
    if not _is_number(nodes, int) or not 1 <= nodes <= 9:
        raise ValueError(f"nodes={nodes!r}: a simulated cluster has 1 to 9 nodes")
    _check_settings(texts, nodes)
    for name, value, may_be_0 in (
        ("faults_for_s", faults_for_s, True),
        ("mean_gap_s", mean_gap_s, False),
        ("limit_s", limit_s, False),
    ):
        if not _is_number(value, int | float) or value < 0 or (value == 0 and not may_be_0):
            raise ValueError(f"{name}={value!r}: it is a number of virtual seconds{' above 0' if value == 0 else ''}")
    options = SimulationOptions(nodes, {**_LONG_POLLS, **texts}, names_of(faults), faults_for_s, mean_gap_s, limit_s)
    chosen = _chosen(seeds)

    def decorate(function: Callable[..., Coroutine[Any, Any, object]]) -> Callable[..., None]:
        signature = inspect.signature(function) if callable(function) else inspect.Signature()
        if "cluster" not in signature.parameters or not inspect.iscoroutinefunction(function):
            name = getattr(function, "__qualname__", repr(function))
            raise TypeError(f"{name}: a simulated test is `async def`, with a parameter `cluster`")

        @wraps(function)
        def test(*args: Any, **kwargs: Any) -> None:
            __tracebackhide__ = True
            _run_seeds(lambda cluster: function(*args, **{**kwargs, "cluster": cluster}), function, chosen, options)

        del test.__wrapped__
        others = [each for each in signature.parameters.values() if each.name != "cluster"]
        test.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return test

    return decorate


def _is_number(value: object, kind: type | UnionType) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _chosen(seeds: int | Iterable[int]) -> Sequence[int]:
    """The seeds to run. Raises `ValueError` for none."""
    chosen: Sequence[Any] = ()
    if isinstance(seeds, int):
        chosen = range(seeds)
    elif isinstance(seeds, Iterable) and not isinstance(seeds, str):
        chosen = tuple(seeds)
    if not chosen or isinstance(seeds, bool) or not all(isinstance(seed, int) and seed >= 0 for seed in chosen):
        raise ValueError(f"seeds={seeds!r}: how many, from 1 on, or a list of their numbers, such as [7, 8]")
    return chosen


def _check_settings(settings: Mapping[str, str], nodes: int) -> None:
    """Raise `ValueError` for the simulator's own settings, `ConfigError` for unknown names and wrong values."""
    for name in settings:
        if name in _SIMULATORS_OWN:
            raise ValueError(f"settings: {name} is the simulator's own; leave it out")
    properties = SimulatedCluster(World(0), ClusterConfig(nodes, properties=settings)).properties(1)
    load_config(None, overrides=[f"{name}={value}" for name, value in properties.items()])


def _run_seeds(test: Test, function: Callable[..., object], seeds: Iterable[int], options: SimulationOptions) -> None:
    __tracebackhide__ = True
    replayed = os.environ.get(SEED_VARIABLE)
    if replayed:
        seeds = [_seed_of(replayed)]
    held = 0
    with Simulator() as simulator:
        for seed in seeds:
            outcome = simulator.run(test, seed, options)
            if outcome.failure is not None:
                again = simulator.run(test, seed, options)
                fails_again = _kind_of(again.failure) == _kind_of(outcome.failure)
                failed = _shrunk(simulator, test, options, outcome) if fails_again else outcome
                failure = failed.failure or outcome.failure
                report = _report(failed, outcome, function, held, fails_again=fails_again)
                failure.add_note(f"{report}\n{_watch(simulator, test, options, failed, function)}")
                raise failure
            if held == 0:
                _check_same(outcome, simulator.run(test, seed, options))
            held += 1


def _seed_of(text: str) -> int:
    if not text.strip().isdecimal():
        raise ValueError(f"{SEED_VARIABLE} is {text!r}: it is the number of a seed")
    return int(text)


def _check_same(first: SimulatedOutcome, second: SimulatedOutcome) -> None:
    __tracebackhide__ = True
    if second.failure is not None:
        raise NotDeterministicError(
            f"seed {first.seed} held, and failed when it ran again with the same faults: {second.failure!r}. "
            f"{_USUAL_CAUSES}"
        ) from second.failure
    if first.digest == second.digest:
        return
    pairs = zip(first.story, second.story, strict=False)
    differing = next(((one, other) for one, other in pairs if one != other), None)
    where = "" if differing is None else f"; first difference:\n  {differing[0].strip()}\n  {differing[1].strip()}"
    raise NotDeterministicError(
        f"two runs of seed {first.seed} took different ways, so a failing seed could not be replayed. "
        f"{_USUAL_CAUSES}{where}"
    )


# -- a failing seed is made small


def _shrunk(simulator: Simulator, test: Test, options: SimulationOptions, failed: SimulatedOutcome) -> SimulatedOutcome:
    """The outcome with faults of which none can be left out, as far as a bounded number of runs finds them."""
    kind, runs = _kind_of(failed.failure), 0
    faults: list[Fault] = list(failed.faults)
    size = max(1, (len(faults) + 1) // 2)
    best = failed
    while faults and runs < _SHRINKING_RUNS_MAX:
        left_out = False
        for start in range(max(0, len(faults) - size), -1, -size):
            fewer = [*faults[:start], *faults[start + size :]]
            tried = simulator.run(test, failed.seed, options, fewer)
            runs += 1
            if tried.failure is not None and _kind_of(tried.failure) == kind:
                faults, best, left_out = fewer, tried, True
        if not left_out and size == 1:
            break
        size = max(1, size // 2)
    return best


def _kind_of(failure: BaseException | None) -> tuple[str, str, int]:
    """The type of a failure, and the line of the innermost frame."""
    frames = traceback.extract_tb(failure.__traceback__) if failure is not None else None
    last = frames[-1] if frames else None
    return type(failure).__name__, last.filename if last else "", (last.lineno or 0) if last else 0


# -- the report


def _report(
    failed: SimulatedOutcome,
    first: SimulatedOutcome,
    function: Callable[..., object],
    held: int,
    *,
    fails_again: bool,
) -> str:
    before = f"{held} seeds before it held" if held != 1 else "1 seed before it held"
    lines = ["", f"Seed {failed.seed} failed after {failed.virtual_s:.3f} virtual seconds; {before}."]
    if not fails_again:
        lines.append(f"It did not fail in this way when it ran again, so a replay may hold, too. {_USUAL_CAUSES}.")
        lines += ["Faults:", *(f"  {fault}" for fault in failed.faults)]
    elif failed.faults:
        lines.append(f"Faults without which it does not fail ({len(failed.faults)} of {len(first.faults)} drawn):")
        lines += [f"  {fault}" for fault in failed.faults]
    else:
        lines.append("It fails without any fault.")
    story = _without_repeats(failed.story)
    lines.append("Story (virtual seconds, process, event):")
    if len(story) > _STORY_LINES:
        lines.append(f"  ... {len(story) - _STORY_LINES} lines before")
    lines += [f"  {line.strip()}" for line in story[-_STORY_LINES:]]
    lines.append(f"Replay: {_replay_command(failed.seed, function)}")
    if os.environ.get("PYTHONHASHSEED", "random") == "random":
        lines.append(
            "This process orders sets by random hashes. If the seed does not fail again in another process, "
            f"run all seeds so: {_hash_seed()} {_fixed_addresses()}pytest ..."
        )
    return "\n".join(lines)


def _replay_command(seed: int, function: Callable[..., object], others: str = "") -> str:
    return f"{SEED_VARIABLE}={seed} {others}{_hash_seed()} {_fixed_addresses()}{_how_to_run(function)}"


def _watch(
    simulator: Simulator,
    test: Test,
    options: SimulationOptions,
    failed: SimulatedOutcome,
    function: Callable[..., object],
) -> str:
    """Write the page of the failed run, if a file is named for it, and say where it is or how to get it."""
    path = os.environ.get(HTML_VARIABLE)
    if not path:
        return f"Watch: {_replay_command(failed.seed, function, f'{HTML_VARIABLE}=replay.html ')}"
    run = RecordedRun()
    outcome = simulator.run(test, failed.seed, options, failed.faults, run.observe)
    what = f"{counted(len(failed.faults), 'fault')} in a cluster of {counted(options.nodes, 'node')}"
    page = run.page(outcome, function.__qualname__, what, _replay_command(failed.seed, function))
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(page)
    except OSError as error:
        return f"The page of this run could not be written: {os_reason(error)}"
    return f"Watch: {os.path.abspath(path)}"


def _without_repeats(story: Sequence[str]) -> list[str]:
    """The lines; one that is repeated at once stands there once, with how often and until when."""
    lines: list[str] = []
    for _, group in groupby(story, key=lambda line: line.split(maxsplit=1)[1]):
        same = list(group)
        last_s = same[-1].split(maxsplit=1)[0]
        first = same[0].strip()
        lines.append(first if len(same) == 1 else f"{first} ({len(same)} times, until {last_s})")
    return lines


def _hash_seed() -> str:
    given = os.environ.get("PYTHONHASHSEED", "random")
    return f"PYTHONHASHSEED={'0' if given == 'random' else given}"


def _fixed_addresses() -> str:
    """A command that loads Python at the same addresses each time: before Python 3.12 they decide the hash of None."""
    return "setarch -R " if sys.version_info < (3, 12) and sys.platform == "linux" else ""


def _how_to_run(function: Callable[..., object]) -> str:
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
    if test:
        return f"pytest {shlex.quote(test)}"
    return f"python {shlex.quote(sys.argv[0])}  # {function.__qualname__}"


__all__ = ["DEFAULT_FAULTS", "NotDeterministicError", "SimCluster", "SimulationFailed", "simulate"]
