"""Which changes of the code do the tests not notice? `PYTHONPATH=tests python -m support.mutation --package raft`.

The mutants of a package, of several of its folders, or of one module are put into an order that follows from `--seed`,
and the first `--sample` of them are tried: by the unit tests that run the mutated lines, then, with `--seeds`, by fixed
seeds of the simulator. Without `--tests`, the unit tests are those of the same folders below tests/. The results are
kept in a directory, so that a later run goes on where this one ends. `--retry` tries all survivors of earlier runs
again, once there are tests for them. The summary is of all tried so far.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

from support.mutation.ledger import Ledger, coverage_of, equivalent_mutants
from support.mutation.mutant_runs import KILLED, MutantResult, TestCoverage, covering, run_mutants
from support.mutation.mutants import CodeMutant, mutants_of

ROOT = Path(__file__).resolve().parents[3]
SEEDS = "tests/support/mutation/simulator_seeds.py"


def main(arguments: Sequence[str]) -> int:
    """Try mutants, and print what became of them. Returns 1 if some survived that are not known to be equivalent."""
    options = _options(arguments)
    directory = Path(options.directory)
    ledger, equivalent = Ledger(directory), equivalent_mutants()
    ordered = in_order(
        [
            mutant
            for module in modules_of(ROOT, options.package, options.module, options.without)
            for mutant in mutants_of(ROOT, module)
        ],
        options.seed,
    )
    folder, tests = common_folder(options.package), options.tests or [f"tests/{path}" for path in options.package]
    sample = ordered[: options.sample]
    to_try = [mutant for mutant in sample if mutant.key not in equivalent and ledger.result_of(mutant) is None]
    if options.retry:
        to_try += [mutant for mutant in ordered if mutant.key not in equivalent and _survived(ledger.result_of(mutant))]
    if to_try:
        _try(to_try, tests, folder, directory, ledger, options.seconds)
    if options.seeds:
        left = [mutant for mutant in ordered if mutant.key not in equivalent and _needs_seeds(ledger.result_of(mutant))]
        _try(left, [SEEDS], folder, directory, ledger)
    summary = summary_of(ordered, {mutant.key: ledger.result_of(mutant) for mutant in ordered}, equivalent)
    if options.json:
        print(json.dumps(summary, indent=1))
    else:
        _print(summary)
    return 1 if summary["survivors"] else 0


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m support.mutation", description=__doc__)
    parser.add_argument("--package", nargs="+", required=True, help="folders of one package, such as raft or log/state")
    parser.add_argument("--without", nargs="+", default=(), help="folders of these that are left out")
    parser.add_argument("--module", help="only modules whose path ends with this")
    parser.add_argument("--tests", nargs="+", help="files or folders of tests; else tests/PACKAGE")
    parser.add_argument("--sample", type=int, help="how many mutants to try; else all")
    parser.add_argument("--seed", type=int, default=1, help="what the order of the mutants follows from")
    parser.add_argument("--seeds", action="store_true", help="run seeds of the simulator for what the tests let live")
    parser.add_argument(
        "--seconds", type=float, help="try only the quickest tests of a mutant, which took so long; else all"
    )
    parser.add_argument("--retry", action="store_true", help="try survivors of earlier runs again")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    parser.add_argument("--directory", default=".mutation", help="where results and coverage are kept")
    return parser.parse_args(arguments)


def modules_of(root: Path, packages: Sequence[str], module: str | None, without: Sequence[str] = ()) -> list[str]:
    """The paths of the modules of the packages. Raises ValueError if there are none: a name is misspelt."""
    found = {path.relative_to(root) for package in packages for path in (root / package).rglob("*.py")}
    left = [path for path in sorted(found) if not any(path.is_relative_to(other) for other in without)]
    paths = [str(path) for path in left if module is None or str(path).endswith(module)]
    if not paths:
        raise ValueError(f"there is no module in {' '.join(packages)}")
    return paths


def common_folder(packages: Sequence[str]) -> str:
    """The deepest folder that all packages are in. Raises ValueError if that is the root: they share no tests then."""
    folder = os.path.commonpath(packages)
    if not folder:
        raise ValueError(f"{' '.join(packages)} are not in one package: measure them one after the other")
    return folder


def in_order(mutants: Sequence[CodeMutant], seed: int) -> list[CodeMutant]:
    """The order in which they are tried. A change of the code adds mutants and removes some, and moves no others."""
    return sorted(mutants, key=lambda mutant: hashlib.sha256(f"{seed} {mutant.key}".encode()).digest())


def _survived(result: MutantResult | None) -> bool:
    return result is not None and result.status not in KILLED


def _needs_seeds(result: MutantResult | None) -> bool:
    return result is not None and result.status not in KILLED and not result.by


def _try(
    mutants: Sequence[CodeMutant],
    tests: Sequence[str],
    package: str,
    directory: Path,
    ledger: Ledger,
    seconds: float | None = None,
) -> None:
    coverage = coverage_of(ROOT, package, tests, directory)
    for test in coverage:
        if not test.passed:
            print(f"left out, since it fails without any mutant: {test.node_id}", flush=True)
    by_seeds = list(tests) == [SEEDS]
    work: list[tuple[CodeMutant, Sequence[TestCoverage]]] = []
    for mutant in mutants:
        found = quickest(covering(mutant, coverage), seconds)
        if found:
            work.append((mutant, found))
        elif not by_seeds:
            ledger.add(MutantResult(mutant.key, mutant.digest, "not covered", "", 0.0))
    progress = Counter[str]()

    def on_result(result: MutantResult) -> None:
        if by_seeds and result.status == "survived":
            result = MutantResult(result.key, result.digest, "survived", "seeds, too", result.duration_s)
        ledger.add(result)
        progress[result.status] += 1
        done = sum(progress.values())
        print(f"{done}/{len(work)} {result.status} {result.duration_s:.1f} s: {result.key}", flush=True)

    files = list(dict.fromkeys(test.node_id.split("::")[0] for test in coverage))
    if work:
        run_mutants(ROOT, package, files, work, on_result)


def quickest(tests: Sequence[TestCoverage], seconds: float | None) -> Sequence[TestCoverage]:
    """Those at the front, at least one, that took at most so long in all. What they let live another test may kill."""
    ends = accumulate(test.duration_s for test in tests)
    return (
        tests
        if seconds is None
        else [test for at, (test, end) in enumerate(zip(tests, ends)) if not at or end <= seconds]
    )


def summary_of(
    mutants: Sequence[CodeMutant], results: dict[str, MutantResult | None], equivalent: dict[str, str]
) -> dict[str, object]:
    """Of all mutants that were tried: how many, what became of them, and the survivors with their places."""
    counts = Counter[str]()
    survivors = []
    for mutant in mutants:
        result = results[mutant.key]
        if result is None:
            continue
        if mutant.key in equivalent:
            counts["equivalent"] += 1
        else:
            counts[result.status] += 1
            if result.status in KILLED and "simulator_seeds" in result.by:
                counts["killed by seeds"] += 1
            if result.status not in KILLED:
                survivors.append(f"{mutant.module}:{mutant.lines[0]} [{result.status}] {mutant.name}")
    killed = sum(counts[status] for status in KILLED)
    tried = killed + counts["survived"] + counts["not covered"]
    share = round(100 * killed / tried, 1) if tried else None
    return {
        "mutants": len(mutants),
        "tried": tried + counts["equivalent"],
        "killed_percent": share,
        **counts,
        "survivors": sorted(survivors),
    }


def _print(summary: dict[str, object]) -> None:
    survivors = summary["survivors"]
    if isinstance(survivors, list):
        print("\n".join(["", "survivors:", *survivors] if survivors else ["", "no survivors"]))
    print(", ".join(f"{name} {value}" for name, value in summary.items() if name != "survivors"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
