"""`raftwerk sim --html`: which run the page shows, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import click
import pytest
from support.chaos.mutants import MUTANTS

from raftwerk.chaos.sim.run import Run
from raftwerk.chaos.sim.scenarios import SCENARIOS
from raftwerk.cli.main import cli


def sim(*arguments: str) -> int:
    """`raftwerk sim`; its exit code."""
    code: int = cli.main(["sim", "--jobs", "1", *arguments], standalone_mode=False)
    return code


def history_of(page: Path) -> dict[str, Any]:
    """The history in a page."""
    found = re.search(r'id="history">(.*?)</script>', page.read_text())
    assert found is not None
    history: dict[str, Any] = json.loads(found[1])
    return history


def ack_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that acks a batch before its followers have it."""
    from raftwerk.isr.leader import appends

    monkeypatch.setattr(appends, "ACKS_ALL", -2)


def test_one_run_is_shown_whether_it_fails_or_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "replay.html"
    assert sim("--scenario", "single", "--seed", "3", "--html", str(page)) == 0
    assert f"Replay of scenario single, seed 3: {page}, " in capsys.readouterr().out
    history = history_of(page)
    assert (history["facts"]["scenario"], history["facts"]["seed"]) == ("single", 3)
    assert history["facts"]["failure"] is None
    assert history["from"] == 0
    assert history["to"] == history["facts"]["end_us"]


def test_the_first_of_several_runs_that_fails_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ack_too_early(monkeypatch)
    monkeypatch.setattr("raftwerk.chaos.sim.seed_runs._run_all", in_this_process)
    page = tmp_path / "replay.html"
    arguments = ("--scenario", "single", "--scenario", "kill", "--scenario", "chase", "--seed", "7")
    assert sim(*arguments, "--keep-going", "--html", str(page)) == 1
    facts = history_of(page)["facts"]
    assert facts["scenario"] == "kill"
    assert facts["failure"]["name"] == "an acked record is committed"
    assert "Watch:" not in capsys.readouterr().out


def in_this_process(tasks: Any, _jobs: int, _while_waiting: object) -> Any:
    """Runs the seeds where the mutant is."""
    from raftwerk.chaos.sim import seed_runs

    return map(seed_runs._run_one, tasks)


@pytest.mark.parametrize("others", [(), ("--json",)])
def test_the_page_shows_the_faults_that_a_failure_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: tuple[str, ...]
) -> None:
    mutant = next(each for each in MUTANTS if "KIP-101" in each.name)
    mutant.apply(monkeypatch)
    page = tmp_path / "replay.html"
    assert sim("--scenario", "chase", "--seed", "0", "--shrink", "--html", str(page), *others) == 1
    history = history_of(page)
    assert 0 < len(history["faults"]) < len(Run(SCENARIOS["chase"], 0).faults)
    assert history["facts"]["failure"]["name"] == "each step of a replica is one of its specification"
    assert history["facts"]["command"] == "raftwerk sim --scenario chase --seed 0 --shrink"


def test_a_failure_says_how_to_watch_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    ack_too_early(monkeypatch)
    assert sim("--scenario", "kill", "--seed", "7") == 1
    assert "Watch: raftwerk sim --scenario kill --seed 7 --html replay.html\n" in capsys.readouterr().out


def test_runs_that_hold_leave_no_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("raftwerk.chaos.sim.seed_runs._run_all", in_this_process)
    page = tmp_path / "replay.html"
    assert sim("--scenario", "single", "--seed", "3", "--seeds", "2", "--html", str(page)) == 0
    assert f"No run failed, so {page} is not written" in capsys.readouterr().out
    assert not page.exists()


def test_a_window_begins_with_the_state_before_it(tmp_path: Path) -> None:
    page = tmp_path / "replay.html"
    window = ("--html-from", "1.5", "--html-to", "2")
    assert sim("--scenario", "single", "--seed", "3", "--json", "--html", str(page), *window) == 0
    history = history_of(page)
    assert (history["from"], history["to"]) == (1_500_000, 2_000_000)
    assert history["start"]["n1.role"] == "leader"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--html-to", "2"), "give --html, too"),
        (("--html", "replay.html", "--html-from", "2", "--html-to", "2"), "is not before --html-to"),
        (("--html", "/no/such/replay.html"), "there is no directory /no/such"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: tuple[str, ...], reason: str) -> None:
    with pytest.raises(click.UsageError, match=reason):
        sim("--scenario", "single", *arguments)


def test_a_window_after_the_end_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "replay.html"
    assert sim("--scenario", "single", "--seed", "3", "--html", str(page), "--html-from", "1000") == 1
    assert "Error: the run ends after " in capsys.readouterr().err
    assert not page.exists()


def test_a_page_that_cannot_be_written_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / ("x" * 300)
    assert sim("--scenario", "single", "--seed", "3", "--html", str(page)) == 1
    assert "Error: the replay could not be written: " in capsys.readouterr().err
