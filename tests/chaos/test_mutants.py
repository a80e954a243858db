"""A check of the checkers: known bugs of replicated logs, put back in one at a time, must each be caught."""

from __future__ import annotations

import pytest
from support.chaos.mutants import Mutant, first_to_catch, remembered_runs, runs_from_the_beginning
from support.chaos.promise_mutants import ALL_MUTANTS

REMEMBERED = remembered_runs()


@pytest.mark.long
@pytest.mark.parametrize("mutant", ALL_MUTANTS, ids=[mutant.name for mutant in ALL_MUTANTS])
def test_caught(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.apply(monkeypatch)
    first = [REMEMBERED[mutant.name]] if mutant.name in REMEMBERED else []
    assert first_to_catch(mutant, (*first, *runs_from_the_beginning(mutant))) is not None
