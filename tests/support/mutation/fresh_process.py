"""Runs of tests with mutants from a process without other threads.

A child that is forked while another thread runs may wait for ever for a lock which that thread held.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from pathlib import Path

from support.mutation.mutant_runs import MutantResult, TestCoverage, measured_coverage, run_mutants
from support.mutation.mutants import CodeMutant

Work = Sequence[tuple[CodeMutant, Sequence[TestCoverage]]]


def measured(root: Path, package: str, paths: Sequence[str]) -> list[TestCoverage]:
    """As `measured_coverage`."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(measured_coverage, (root, package, paths))


def results_of(root: Path, package: str, paths: Sequence[str], work: Work) -> list[MutantResult]:
    """The results of `run_mutants`."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_results, (root, package, paths, work))


def _results(root: Path, package: str, paths: Sequence[str], work: Work) -> list[MutantResult]:
    results: list[MutantResult] = []
    run_mutants(root, package, paths, work, results.append)
    return results
