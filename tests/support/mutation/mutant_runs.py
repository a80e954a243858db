"""Runs of tests for code mutation: pytest collects them once, then a forked process runs a few for each mutant."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import Phase, settings
from support.mutation.mutants import CodeMutant, functions_by_place, import_mutated, put_in_place, real_path

WITHOUT_MUTANTS = "not mutant and not test_caught"
"""Tests of bugs that are put back check the checkers. They patch the code that is mutated here."""
WITHOUT_PROCESSES = "not process and not java and not soak and not containers"
"""Other processes do not run the mutants."""
MEMORY_BYTES_MAX = 6 << 30
FILE_BYTES_MAX = 256 << 20
LEAST_LIMIT_S = 5.0
SLOWER_AT_MOST = 2
"""A test is stopped after the least limit and this many times what it took while its coverage was measured."""

settings.register_profile(
    "mutation", deadline=None, derandomize=True, database=None, phases=(Phase.explicit, Phase.generate)
)


@dataclass(frozen=True, slots=True)
class TestCoverage:
    """What one test ran of the package: its lines by module. `passed` is False if it fails without any mutant."""

    __test__ = False
    node_id: str
    passed: bool
    duration_s: float
    lines: dict[str, list[int]]


@dataclass(frozen=True, slots=True)
class MutantResult:
    """What became of a mutant: killed by a test, or by its time limit, survived, or run by no test."""

    key: str
    digest: str
    status: str
    by: str
    duration_s: float


KILLED = ("killed", "time limit", "crashed")


# -- coverage

LineTracer = Callable[[FrameType, str, Any], Any]


class _CoverageOfTests:
    """A plugin of pytest that runs all tests and records the lines of the package that each of them runs."""

    def __init__(self, root: Path, package: str) -> None:
        self._root = f"{root}/"
        self._prefix = f"{root / package}/"
        self._lines: dict[str, set[int]] = {}
        self._tracers: dict[str, LineTracer | None] = {}
        """By the path in a code object: what notes its lines; None if it is not of the package."""
        self._failed = False
        self.tests: list[TestCoverage] = []

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        for number, item in enumerate(session.items):
            following = session.items[number + 1] if number + 1 < len(session.items) else None
            self._failed = False
            for lines in self._lines.values():
                lines.clear()
            start = time.monotonic()
            threading.settrace(self._trace)
            sys.settrace(self._trace)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            sys.settrace(None)
            threading.settrace(None)
            duration_s = time.monotonic() - start
            ran = {module: sorted(lines) for module, lines in sorted(self._lines.items()) if lines}
            self.tests.append(TestCoverage(item.nodeid, not self._failed, duration_s, ran))
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed = self._failed or report.failed

    def _trace(self, frame: FrameType, event: str, arg: Any) -> LineTracer | None:
        """Called for each call of a function, so it has to be quick for those of other packages."""
        path = frame.f_code.co_filename
        if path not in self._tracers:
            self._tracers[path] = self._tracer_of(real_path(path))
        tracer = self._tracers[path]
        return None if tracer is None else tracer(frame, event, arg)

    def _tracer_of(self, path: str) -> LineTracer | None:
        if not path.startswith(self._prefix):
            return None
        add = self._lines.setdefault(path.removeprefix(self._root), set()).add

        def trace_line(frame: FrameType, event: str, arg: Any) -> LineTracer:
            add(frame.f_lineno)
            return trace_line

        return trace_line


def measured_coverage(root: Path, package: str, paths: Sequence[str]) -> list[TestCoverage]:
    """What each test of the paths runs of the package, measured in a process of its own."""
    with tempfile.TemporaryDirectory() as directory:
        result = Path(directory) / "coverage.json"

        def measure() -> None:
            plugin = _CoverageOfTests(root, package)
            _run_pytest(root, paths, plugin, directory)
            result.write_text(json.dumps([(t.node_id, t.passed, t.duration_s, t.lines) for t in plugin.tests]))

        pid = _forked(measure)
        os.waitpid(pid, 0)
        return [TestCoverage(*fields) for fields in json.loads(result.read_text())]


def _run_pytest(root: Path, paths: Sequence[str], plugin: object, directory: str) -> None:
    os.environ["PYTEST_DEBUG_TEMPROOT"] = directory
    tempfile.tempdir = directory
    os.chdir(root)
    # `python -m` puts the root on the path. pytest then takes the folder isr/ for the package of tests/isr, and
    # imports it without the mutant.
    sys.path[:] = [path for path in sys.path if Path(path or ".").resolve() != root]
    # Without the root, `raftwerk` would be the clone that is installed, which may be another one.
    links = Path(directory) / "links"
    links.mkdir()
    (links / "raftwerk").symlink_to(root / "raftwerk")
    sys.path.insert(0, str(links))
    options = ["--rootdir", str(root), "--hypothesis-profile", "mutation"]
    without = [
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "-p",
        "no:cov",
        "-k",
        WITHOUT_MUTANTS,
        "-m",
        WITHOUT_PROCESSES,
    ]
    if pytest.main([*options, *without, *paths], plugins=[plugin]) == pytest.ExitCode.INTERNAL_ERROR:
        raise RuntimeError("pytest broke off")


def _forked(do: Callable[[], None], output: str = os.devnull) -> int:
    """A process of its own group that does something, quietly, and ends without any cleaning up. Returns its id."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.setsid()
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        do()
        code = 0
    except BaseException as error:
        os.write(2, repr(error).encode())
    finally:
        os._exit(code)


# -- mutants


class _MutantRuns:
    """A plugin of pytest that forks a process for each mutant, which runs its tests until one fails."""

    def __init__(
        self, root: Path, package: str, work: Sequence[tuple[CodeMutant, Sequence[TestCoverage]]],
        on_result: Callable[[MutantResult], None],
    ) -> None:  # fmt: skip
        self._root = root
        self._package = package
        self._work = work
        self._on_result = on_result
        self.not_in_place: list[tuple[CodeMutant, Sequence[TestCoverage]]] = []

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        functions = functions_by_place(self._root, self._package)
        gc.collect()
        gc.freeze()
        for mutant, tests in self._work:
            if (mutant.module, mutant.function, mutant.function_line) not in functions:
                self.not_in_place.append((mutant, tests))
                continue
            put = partial(put_in_place, self._root, mutant, functions)
            result = _result_in_process(mutant, put, tests, items)
            if result is None:
                self.not_in_place.append((mutant, tests))
            else:
                self._on_result(result)
        return True


class _OneMutant:
    """A plugin of pytest for a process that has imported a mutant: runs its tests until one fails."""

    def __init__(self, mutant: CodeMutant, tests: Sequence[TestCoverage], report: Callable[[str], None]) -> None:
        self._mutant = mutant
        self._tests = tests
        self._report = report
        self.ran = False

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.ran = True
        if session.testsfailed:  # a file of tests could not be imported; pytest has left its tests out
            self._report("killed as the tests cannot be imported")
        else:
            _run_until_failure(self._tests, {item.nodeid: item for item in session.items}, self._report)
        return True


def run_mutants(
    root: Path, package: str, paths: Sequence[str],
    work: Sequence[tuple[CodeMutant, Sequence[TestCoverage]]], on_result: Callable[[MutantResult], None],
) -> None:  # fmt: skip
    """Run the tests of each mutant, and report each result as it comes.

    The calling process must not have imported the package.
    """
    with tempfile.TemporaryDirectory() as directory:
        left = Path(directory) / "left.json"
        numbers = {mutant.key: number for number, (mutant, _) in enumerate(work)}
        reader, writer = os.pipe()

        def run_in_place() -> None:
            os.close(reader)

            def send(result: MutantResult) -> None:
                fields = (result.key, result.digest, result.status, result.by, result.duration_s)
                os.write(writer, json.dumps(fields).encode() + b"\n")

            plugin = _MutantRuns(root, package, work, send)
            _run_pytest(root, paths, plugin, directory)
            left.write_text(json.dumps([numbers[mutant.key] for mutant, _ in plugin.not_in_place]))

        pid = _forked(run_in_place)
        os.close(writer)
        with os.fdopen(reader) as lines:
            for line in lines:
                on_result(MutantResult(*json.loads(line)))
        os.waitpid(pid, 0)
        if not left.exists():
            raise RuntimeError(f"pytest did not run the tests of {' '.join(paths)} to their end")
        for number in json.loads(left.read_text()):
            on_result(_result_of_import(root, *work[number]))


def _result_of_import(root: Path, mutant: CodeMutant, tests: Sequence[TestCoverage]) -> MutantResult:
    files = list(dict.fromkeys(test.node_id.split("::")[0] for test in tests))

    def run(report: Callable[[str], None]) -> None:
        signal.setitimer(signal.ITIMER_REAL, 120)
        import_mutated(root, mutant)
        plugin = _OneMutant(mutant, tests, report)
        _run_pytest(root, files, plugin, tempfile.gettempdir())
        if not plugin.ran:
            report("killed as the tests cannot be imported")

    return _result(mutant, run)


def _result_in_process(
    mutant: CodeMutant, put: Callable[[], bool], tests: Sequence[TestCoverage], items: dict[str, pytest.Item]
) -> MutantResult | None:
    def run(report: Callable[[str], None]) -> None:
        if put():
            _run_until_failure(tests, items, report)
        else:
            report("not in place")

    result = _result(mutant, run)
    return None if result.status == "not" else result


def _result(mutant: CodeMutant, run: Callable[[Callable[[str], None]], None]) -> MutantResult:
    """Run in a forked process, with limits of memory, and read what it reports.

    Each report is a status and what it is about. The last one counts.
    """
    start = time.monotonic()
    directory = tempfile.mkdtemp()
    reports = Path(directory) / "reports"  # not a pipe: it would be full after some hundred tests
    reports.touch()

    def report(text: str) -> None:
        with reports.open("a") as file:
            file.write(f"{text}\n")

    def limited() -> None:
        os.environ["PYTEST_DEBUG_TEMPROOT"] = directory
        tempfile.tempdir = directory
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES_MAX, FILE_BYTES_MAX))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        run(report)

    pid = _forked(limited)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # until it is reaped, nobody else gets its id
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    lines = reports.read_text().splitlines()
    shutil.rmtree(directory, ignore_errors=True)
    if not lines:
        raise RuntimeError(f"no test was run for {mutant.key}: has its source changed meanwhile?")
    what, _, by = lines[-1].partition(" ")
    if what == "running":
        what = "time limit" if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM else "crashed"
    return MutantResult(mutant.key, mutant.digest, what, by, round(time.monotonic() - start, 2))


class _Failures:
    """A plugin of pytest that knows whether a test has failed."""

    def __init__(self) -> None:
        self.any = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.any = self.any or report.failed


def _run_until_failure(
    tests: Sequence[TestCoverage], items: dict[str, pytest.Item], report: Callable[[str], None]
) -> None:
    chosen = [(test, items[test.node_id]) for test in tests if test.node_id in items]
    for number, (test, item) in enumerate(chosen):
        report(f"running {test.node_id}")
        signal.setitimer(signal.ITIMER_REAL, LEAST_LIMIT_S + SLOWER_AT_MOST * test.duration_s)
        failures = _Failures()
        item.config.pluginmanager.register(failures)
        following = chosen[number + 1][1] if number + 1 < len(chosen) else None
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        signal.setitimer(signal.ITIMER_REAL, 0)
        item.config.pluginmanager.unregister(failures)
        if failures.any:
            report(f"killed {test.node_id}")
            return
    report("survived")


def covering(mutant: CodeMutant, tests: Sequence[TestCoverage]) -> list[TestCoverage]:
    """The tests that run the mutated code, the quickest first.

    What runs at import may show in a test that runs no line of the module itself, such as one of a default. So there
    all tests of a file count in which one runs the module. All tests count for a module that only declares, of which
    none runs a line.
    """
    sound = [test for test in tests if test.passed]
    if not mutant.function:
        files = {_file(test) for test in sound if test.lines.get(mutant.module)}
        found = [test for test in sound if _file(test) in files] or sound
    else:
        found = _running(mutant.module, range(mutant.lines[0], mutant.lines[1] + 1), sound)
        found = found or _running(mutant.module, range(mutant.statement_line, mutant.statement_line + 1), sound)
    return sorted(found, key=lambda test: test.duration_s)


def _file(test: TestCoverage) -> str:
    return test.node_id.split("::")[0]


def _running(module: str, lines: range, tests: Sequence[TestCoverage]) -> list[TestCoverage]:
    return [test for test in tests if any(line in lines for line in test.lines.get(module, ()))]
