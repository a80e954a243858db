"""A check of the checkers: known bugs of replicated logs, put back in one at a time, must each be caught."""

from __future__ import annotations

import pytest
from support.chaos.mutants import Mutant, first_to_catch, remembered_runs, runs_to_try
from support.chaos.promise_mutants import ALL_MUTANTS

REMEMBERED = remembered_runs()


@pytest.mark.long
@pytest.mark.parametrize("mutant", ALL_MUTANTS, ids=[mutant.name for mutant in ALL_MUTANTS])
def test_caught(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.apply(monkeypatch)
    assert first_to_catch(mutant, runs_to_try(mutant, REMEMBERED.get(mutant.name))) is not None
