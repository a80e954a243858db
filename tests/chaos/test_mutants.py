"""A check of the checkers: known bugs of replicated logs, put back in one at a time, must each be caught."""

from __future__ import annotations

import pytest
from support.chaos.mutants import SEEDS, Mutant, runs_until_caught
from support.chaos.promise_mutants import ALL_MUTANTS


@pytest.mark.long
@pytest.mark.parametrize("mutant", ALL_MUTANTS, ids=[mutant.name for mutant in ALL_MUTANTS])
def test_caught(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.apply(monkeypatch)
    assert runs_until_caught(mutant, (mutant.known, *SEEDS)) is not None
