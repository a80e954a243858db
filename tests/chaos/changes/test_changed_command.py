"""`raftwerk sim --changed`."""

from __future__ import annotations

import json
import re

import click
import pytest

from raftwerk.chaos.sim import seed_runs
from raftwerk.cli.main import cli


def sim(*arguments: str) -> int:
    """`raftwerk sim`; its exit code."""
    code: int = cli.main(["sim", "--jobs", "1", *arguments], standalone_mode=False)
    return code


def change(monkeypatch: pytest.MonkeyPatch, *functions: str) -> list[str]:
    """Let these be what has changed; the commits that are asked for."""
    asked: list[str] = []

    def changed(_directory: str, revision: str) -> set[str]:
        asked.append(revision)
        return set(functions)

    monkeypatch.setattr(seed_runs, "changed_functions", changed)
    return asked


def test_a_change_chooses_the_scenarios(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked = change(monkeypatch, "raft/voters/voter_change_handler.py:", "raft/quorum/quorum.py:")
    chosen = seed_runs._chosen(seed_runs.SeedOptions(seeds=200, changed="main", resume=5))
    assert asked == ["main"]
    assert [seed for _, seed in chosen.tasks] == list(range(5, 205))
    assert sum(scenario in ("voters", "hasty-voters") for scenario, _ in chosen.tasks) > 50
    assert re.match(r"Scenarios by what has changed since main: hasty-voters \d+%, voters \d+%, ", chosen.told)
    assert sim("--changed", "--scenario", "single", "--seeds", "2", "--resume", "3") == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Scenarios by what has changed since HEAD: single 100%\n2 runs, ")
    assert shown.endswith("To go on: --resume 5\n")
    assert sim("--changed", "--scenario", "single", "--seeds", "1", "--json") == 0
    assert json.loads(capsys.readouterr().out)["scenarios"] == {"single": 1}


def test_what_cannot_be_chosen_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    change(monkeypatch, "docs/conf.py:f")
    with pytest.raises(click.ClickException, match="no scenario is known to run what has changed since HEAD: leave"):
        sim("--changed")
    change(monkeypatch)
    with pytest.raises(click.ClickException, match="no code of the nodes has changed since HEAD: leave"):
        sim("--changed")
    with pytest.raises(click.UsageError, match="--changed draws a scenario for each seed, and --seed runs all"):
        sim("--changed", "--seed", "7")
