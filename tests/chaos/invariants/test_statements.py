"""The statements of what happens sometimes: each stands once, and the documentation says how often it was seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from raftwerk.chaos.sim import statements
from raftwerk.chaos.sim.run import Run
from raftwerk.chaos.sim.scenarios import SCENARIOS
from raftwerk.chaos.sim.seed_runs import Totals

ROOT = Path(__file__).parents[3]


def test_the_documentation_names_each_statement_where_it_stands() -> None:
    rows = (ROOT / "docs/rare-branches.md").read_text().splitlines()
    documented = {
        cells[1].strip(): cells[2].strip().strip("`")
        for cells in (row.split("|") for row in rows if row.startswith("| "))
        if cells[1].strip() != "What happens"
    }
    assert documented == statements.all_statements()


def test_the_common_branches_are_statements_of_scenarios() -> None:
    known = statements.all_statements()
    for line in (ROOT / "tests/chaos/invariants/common_branches.txt").read_text().splitlines():
        if not line.startswith("#"):
            scenario, what = line.split(maxsplit=1)
            assert scenario in SCENARIOS and what in known, line


def test_a_statement_that_stands_twice_or_is_no_literal_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statements, "_PACKAGE", tmp_path)
    code = tmp_path / "raft" / "some.py"
    code.parent.mkdir()
    code.write_text('sometimes(a, "one")\nsometimes(b, "two")\n')
    assert statements.all_statements() == {"one": "raft/some.py", "two": "raft/some.py"}
    code.write_text('sometimes(a, "one")\nsometimes(b, "one")\n')
    with pytest.raises(ValueError, match="'one' is stated twice"):
        statements.all_statements()
    code.write_text("sometimes(a, what)\n")
    with pytest.raises(ValueError, match=r"some\.py:1: a statement is a literal text"):
        statements.all_statements()


def test_runs_confirm_statements_by_scenario() -> None:
    totals = Totals()
    for seed in range(2):
        totals.add(Run(SCENARIOS["kill"], seed).execute(), 1.0)
    confirmed = totals.statements.as_json()
    assert confirmed["a log was recovered after an unclean stop"] == {"kill": 2}
    assert set(totals.statements.never) == {what for what, runs in confirmed.items() if not runs}
    assert 0 < len(totals.statements.never) < len(totals.statements) == len(statements.all_statements())
    assert "| a log was recovered after an unclean stop | `log/recovery/log_recovery.py` | 2 | kill |" in (
        statements.table(confirmed)
    )
