"""What is known of mutants: the results of earlier runs, the coverage of the tests, the mutants that are equivalent."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from support.mutation.mutant_runs import MutantResult, TestCoverage, measured_coverage
from support.mutation.mutants import CodeMutant

EQUIVALENT_MUTANTS = Path(__file__).parent / "equivalent_mutants.txt"


class Ledger:
    """The results of all runs, a line of JSON each, in one file. The last result of a mutant counts."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._path = directory / "results.jsonl"
        self._results: dict[tuple[str, str], MutantResult] = {}
        if self._path.exists():
            for line in self._path.read_text().splitlines():
                self._know(MutantResult(**json.loads(line)))

    def _know(self, result: MutantResult) -> None:
        self._results[result.key, result.digest] = result

    def result_of(self, mutant: CodeMutant) -> MutantResult | None:
        """The last result of the mutant; None if there is none since its function was changed."""
        return self._results.get((mutant.key, mutant.digest))

    def add(self, result: MutantResult) -> None:
        """Keep a result."""
        self._know(result)
        with self._path.open("a") as file:
            file.write(json.dumps(asdict(result)) + "\n")


def equivalent_mutants(path: Path = EQUIVALENT_MUTANTS) -> dict[str, str]:
    """The mutants that no test can kill, by key, each with the reason.

    In the file a mutant is a line, and the reason is the indented line below it.
    """
    reasons: dict[str, str] = {}
    key = ""
    for line in path.read_text().splitlines():
        if line.startswith("#") or not line.strip():
            continue
        if line.startswith(" "):
            reasons[key] = line.strip()
        else:
            key = line.strip()
            reasons[key] = ""
    return reasons


def coverage_of(root: Path, package: str, paths: Sequence[str], directory: Path) -> list[TestCoverage]:
    """What each test of the paths runs of the package. Only files that are new or have changed are measured again."""
    sources = _digest_of(sorted((root / package).rglob("*.py")))
    cache = directory / f"coverage-{package.replace('/', '-')}.json"
    known: dict[str, dict[str, object]] = json.loads(cache.read_text()) if cache.exists() else {}
    files = [str(file.relative_to(root)) for path in paths for file in _test_files(root / path)]
    digests = {file: _digest_of([root / file]) + sources for file in files}
    stale = [file for file in files if known.get(file, {}).get("digest") != digests[file]]
    if stale:
        print(f"measuring what {len(stale)} files of tests run of {package}/", flush=True)
        measured = measured_coverage(root, package, stale)
        for file in stale:
            own = [asdict(test) for test in measured if test.node_id.split("::")[0] == file]
            known[file] = {"digest": digests[file], "tests": own}
        cache.write_text(json.dumps(known))
    found: list[TestCoverage] = []
    for file in files:
        tests = known[file]["tests"]
        if isinstance(tests, list):
            found.extend(TestCoverage(**test) for test in tests)
    return found


def _test_files(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(path.rglob("test_*.py"))


def _digest_of(files: Sequence[Path]) -> str:
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]
