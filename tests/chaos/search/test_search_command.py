"""`raftwerk sim --search`, and forks on the command line."""

from __future__ import annotations

import json
from typing import Any

import click
import pytest
from support.chaos.mutants import MUTANTS

from raftwerk.chaos.sim import seed_runs
from raftwerk.cli.main import cli


def sim(*arguments: str) -> int:
    """`raftwerk sim`; its exit code."""
    code: int = cli.main(["sim", "--jobs", "1", *arguments], standalone_mode=False)
    return code


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--seed", "7~x"), "'7~x' is neither a seed, such as 123, nor a fork of one, such as 123~4.5:77"),
        (("--seed", "-7"), "'-7' is neither a seed"),
        (("--seed", "7~3:1~2:1"), "each fork is later than the one before it"),
        (("--seed", "7~3:1", "--seeds", "2"), "--seed 7~3:1 is one run: --seeds and --search begin at a plain seed"),
        (("--seed", "7~3:1", "--search"), "--seed 7~3:1 is one run"),
        (("--search", "--resume", "3"), "give --search with another --seed, not --resume"),
    ],
)
def test_what_cannot_be_run_is_refused(arguments: tuple[str, ...], said: str) -> None:
    with pytest.raises(click.UsageError) as refused:
        sim(*arguments)
    assert said in refused.value.message


def test_a_search_counts_its_forks(capsys: pytest.CaptureFixture[str]) -> None:
    assert sim("--search", "--scenario", "leader-crash", "--seeds", "8", "--json") == 0
    totals: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert totals["runs"] == 8
    assert 0 < totals["forks"] <= 4
    assert totals["resume"] is None


def in_this_process(tasks: Any, _jobs: int, _while_waiting: object) -> Any:
    """Runs the seeds where the mutant is."""
    return map(seed_runs._run_one, tasks)


def test_a_search_finds_a_mutant_and_says_how_to_run_it_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    next(one for one in MUTANTS if one.name == "a failed fsync is believed").apply(monkeypatch)
    monkeypatch.setattr(seed_runs, "_run_all", in_this_process)
    assert sim("--search", "--scenario", "disk", "--seed", "9000", "--seeds", "60") == 1
    found = capsys.readouterr().out
    again = next(line for line in found.splitlines() if line.startswith("Again: raftwerk sim "))
    assert sim(*again.removeprefix("Again: raftwerk sim ").split()) == 1
    failed = next(line for line in found.splitlines() if line.startswith("FAILED: "))
    assert failed in capsys.readouterr().out.splitlines()
