"""Whole nodes under seeded faults: no acked record is lost, doubled or reordered, and no invariant is ever broken.

A failing seed is replayed with `raftwerk sim --scenario NAME --seed N`, and then belongs in regressions.txt.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
from support.chaos.mutants import MUTANTS

from raftwerk.chaos.sim import run as sim_run
from raftwerk.chaos.sim import seed_runs
from raftwerk.chaos.sim.faults.fault import Fault, FaultKind
from raftwerk.chaos.sim.minimize_faults import shrink
from raftwerk.chaos.sim.run import Outcome, Run
from raftwerk.chaos.sim.scenarios import SCENARIOS
from raftwerk.chaos.sim.workloads.partition_changes import ThrottledReassignments
from raftwerk.cli.main import cli
from raftwerk.wire.errors import ErrorCode
from raftwerk.wire.records import CorruptBatchError

CHUNK = 5
"""The first seeds of each scenario are in each run, the others in the long one."""
_ENOUGH = 5
"""So many runs reach every branch that is common in their scenario."""
SEEDS = {
    "leader-crash": 100,
    "kill": 10,
    "chase": 10,
    "failover": 10,
    "few-alive": 5,
    "stop": 10,
    "pause": 20,
    "network": 20,
    "mixed": 20,
    "power": 20,
    "disk": 20,
    "lost-disk": 15,
    "dirs": 5,
    "lost-dir": 5,
    "sendfile": 5,
    "rot": 10,
    "clocks": 15,
    "roles": 20,
    "isolation": 10,
    "cuts": 20,
    "clients": 10,
    "churn": 10,
    "moves": 5,
    "throttled": 5,
    "elections": 10,
    "groups": 10,
    "classic-groups": 10,
    "migrations": 10,
    "transactions": 5,
    "transaction-failover": 5,
    "coordinator-elections": 5,
    "late-requests": 5,
    "late-transactions": 5,
    "late-batches": 5,
    "leaderless": 4,
    "exactly-once": 5,
    "exactly-once-group": 5,
    "cut-off-coordinators": 4,
    "two-phase": 5,
    "transaction-versions": 5,
    "storm": 5,
    "shapes": 10,
    "voters": 10,
    "upgrades": 5,
    "upgrades-apart": 5,
    "elr": 5,
    "sessions": 15,
    "min-isr": 10,
    "pipelined-producers": 5,
    "trims": 5,
    "quotas": 10,
    "acls": 5,
    "compaction": 3,
    "single": 20,
    "five": 10,
    "late-commits": 5,
    "stalled-metadata": 3,
    "kept-metadata": 3,
    "parted-quorum": 5,
    "skipped-metadata": 5,
    "unclean": 3,
    "retention": 4,
    "lying-disk": 3,
    "dirs-power": 5,
    "interrupted": 5,
    "full-disks": 5,
    "votes": 5,
    "hasty-voters": 5,
    "failing-moves": 5,
    "rotting-state": 3,
    "slow-compaction": 5,
    "passing-topics": 3,
    "short-files": 3,
    "small-isrs": 5,
    "moving-transactions": 3,
    "careless-producers": 3,
    "lost-proposals": 5,
    "returning-controllers": 3,
    "eligible-replicas": 5,
    "cancelled-moves": 5,
    "unregistered": 5,
    "decisions-in-steps": 3,
    "requests-in-steps": 3,
    "alike-partitions": 5,
    "lone-coordinators": 5,
    "loading-coordinators": 5,
    "removed-markers": 3,
    "static-members": 5,
    "slow-assignments": 5,
    "careless-members": 3,
    "subscriptions": 3,
    "administered-groups": 3,
    "slow-rebalances": 3,
    "expiring-producers": 5,
    "repeated-requests": 5,
    "used-up-producer-ids": 5,
    "hanging-transactions": 5,
    "contested-ids": 3,
    "wrapping-sequences": 3,
    "cleaned-transactions": 3,
    "near-replicas": 3,
    "moving-racks": 3,
    "stamped-topics": 3,
    "kept-keys": 3,
    "follower-sessions": 3,
    "times-at-new-leaders": 3,
}
"""How many seeds of each scenario; more of those that are cheap."""
CHUNKS = [(name, first) for name, count in SEEDS.items() for first in range(0, count, CHUNK)]
COMMON_BRANCHES: dict[str, set[str]] = {}
"""By scenario, the rare branches that nearly each of its runs reaches."""
for _line in (Path(__file__).parent / "invariants" / "common_branches.txt").read_text().splitlines():
    if not _line.startswith("#"):
        _scenario, _what = _line.split(maxsplit=1)
        COMMON_BRANCHES.setdefault(_scenario, set()).add(_what)
REGRESSIONS = [
    (name, int(seed))
    for name, seed, _ in (
        line.split(maxsplit=2)
        for line in (Path(__file__).parent / "regressions.txt").read_text().splitlines()
        if line and not line.startswith("#")
    )
]


def run(scenario: str, seed: int) -> Outcome:
    outcome = Run(SCENARIOS[scenario], seed).execute()
    if outcome.failure is not None:
        timeline = "\n".join(outcome.timeline[-60:])
        pytest.fail(
            f"{outcome.failure}\nraftwerk sim --scenario {scenario} --seed {seed}\n{timeline}",
            pytrace=False,
        )
    return outcome


@pytest.mark.parametrize(
    ("scenario", "first"),
    [pytest.param(*one, marks=[pytest.mark.long] * (one[1] > 0)) for one in CHUNKS],
    ids=[f"{name}-{first}" for name, first in CHUNKS],
)
def test_seeds(scenario: str, first: int) -> None:
    seeds = range(first, min(first + CHUNK, SEEDS[scenario]))
    reached: set[str] = set()
    for seed in seeds:
        outcome = run(scenario, seed)
        assert outcome.acked > 0
        reached.update(outcome.seen)
    if len(seeds) >= _ENOUGH:
        assert not COMMON_BRANCHES.get(scenario, set()) - reached, "no run of these came there"


@pytest.mark.parametrize(("scenario", "seed"), REGRESSIONS)
def test_seeds_that_once_failed(scenario: str, seed: int) -> None:
    run(scenario, seed)


def test_without_faults_the_cluster_starts_fast_and_acks_steadily() -> None:
    outcome = Run(SCENARIOS["kill"], 5, faults=[]).execute()
    assert outcome.failure is None
    assert outcome.longest_ack_gap_s < 0.2


def test_replicas_in_sync_do_not_notice_a_throttle_of_rate_zero() -> None:
    class Nothing(ThrottledReassignments):
        rates = (0,)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sim_run, "ThrottledReassignments", Nothing)
        outcome = Run(replace(SCENARIOS["throttled"], faults_s=3.0), 5, faults=[]).execute()
    assert outcome.failure is None
    assert outcome.longest_ack_gap_s < 0.5


@pytest.mark.parametrize("target", ["leader", "controller"])
def test_writes_resume_within_a_second_of_a_kill(target: str) -> None:
    for seed in range(6):
        faults = [Fault(0.5, FaultKind.KILL, target, target, 1.5)]
        outcome = Run(replace(SCENARIOS["kill"], faults_s=2.0), seed, faults=faults).execute()
        assert outcome.failure is None
        assert outcome.longest_ack_gap_s < 1.0, f"seed {seed}"


def test_a_seed_gives_one_trace_whatever_the_hash_seed() -> None:
    script = (
        "from raftwerk.chaos.sim.run import Run\n"
        "from raftwerk.chaos.sim.scenarios import SCENARIOS\n"
        "for name in ('mixed', 'leader-crash', 'disk', 'clients', 'churn', 'moves', 'elections', 'shapes', 'acls'):\n"
        "    print(name, Run(SCENARIOS[name], 11).execute().digest)\n"
    )
    digests = [
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert digests[0] == digests[1] != ""


def test_every_scenario_is_run() -> None:
    assert list(SEEDS) == list(SCENARIOS)
    assert sum(SEEDS.values()) >= 500


def test_seeds_differ() -> None:
    assert run("kill", 1).digest != run("kill", 2).digest


def ack_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that acks a batch before its followers have it."""
    from raftwerk.isr.leader import appends

    monkeypatch.setattr(appends, "ACKS_ALL", -2)


def sim_command(arguments: list[str]) -> int:
    """`raftwerk sim`; its exit code."""
    code: int = cli.main(["sim", *arguments], standalone_mode=False)
    return code


def test_a_failing_seed_is_reported_with_its_number_and_its_timeline(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ack_too_early(monkeypatch)
    assert sim_command(["--scenario", "kill", "--seed", "7", "--jobs", "1", "--shrink"]) == 1
    shown = capsys.readouterr().out
    assert "FAILED: scenario kill, seed 7: an acked record is committed" in shown
    assert "Again: raftwerk sim --scenario kill --seed 7" in shown
    assert "leads t-0 epoch 0" in shown
    assert "0 of " in shown


def test_an_error_in_a_check_is_a_failure_of_its_seed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Raised in a worker it left the command waiting for ever, since it cannot be pickled."""

    def check(history: object) -> None:
        raise CorruptBatchError(ErrorCode.CORRUPT_MESSAGE, "no batch")

    monkeypatch.setattr(sim_run, "check_history", check)
    assert sim_command(["--scenario", "single", "--seed", "1"]) == 1
    shown = capsys.readouterr().out
    assert "FAILED: scenario single, seed 1: CorruptBatchError in a check or a workload: no batch" in shown
    assert 'raise CorruptBatchError(ErrorCode.CORRUPT_MESSAGE, "no batch")' in shown


def test_the_command_line_reports_success(capsys: pytest.CaptureFixture[str]) -> None:
    assert sim_command(["--scenario", "single", "--seeds", "2", "--jobs", "1", "-v"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("single") == 2
    assert "2 runs, " in shown and " simulated seconds, " in shown
    assert seed_runs.simulated_time(7200) == "2.0 simulated hours"
    assert seed_runs.simulated_time(150) == "2.5 simulated minutes"
    assert "0 failed" in shown


def test_totals_are_printed_as_json_with_the_next_seed(capsys: pytest.CaptureFixture[str]) -> None:
    assert sim_command(["--scenario", "single", "--seeds", "2", "--resume", "10", "--jobs", "1", "--json"]) == 0
    totals = json.loads(capsys.readouterr().out)
    assert totals["runs"] == 2
    assert totals["scenarios"] == {"single": 2}
    assert totals["failed"] == []
    assert totals["resume"] == 12
    assert totals["events"] > 1000
    assert totals["simulated_hours"] > 0
    assert totals["seeds_per_core_minute"] > 0


def test_an_interrupted_run_prints_its_totals(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    results: list[tuple[Outcome, float]] = []
    next_of = seed_runs._next_of

    def interrupt(*arguments: Any) -> tuple[Outcome, float]:
        if results:
            raise KeyboardInterrupt
        results.append(next_of(*arguments))
        return results[0]

    monkeypatch.setattr(seed_runs, "_next_of", interrupt)
    assert sim_command(["--scenario", "single", "--seeds", "5", "--jobs", "1"]) == 130
    shown = capsys.readouterr().out
    assert shown.startswith("1 run, ")
    assert "--resume 1" in shown


@pytest.mark.parametrize("number", ["0", "-3"])
@pytest.mark.parametrize("option", ["--seeds", "--jobs"])
def test_numbers_that_mean_nothing_are_refused(option: str, number: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a whole number of 1 or more"):
        sim_command([option, number])


def test_shrinking_leaves_out_the_faults_that_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    mutant = next(each for each in MUTANTS if "KIP-101" in each.name)
    mutant.apply(monkeypatch)
    all_faults = Run(SCENARIOS["chase"], 0).faults
    faults, outcome = shrink(SCENARIOS["chase"], 0)
    assert outcome.broken == "each step of a replica is one of its specification"
    assert 0 < len(faults) < len(all_faults)
    assert all(fault in all_faults for fault in faults)
    for i in range(len(faults)):
        without = Run(SCENARIOS["chase"], 0, [*faults[:i], *faults[i + 1 :]]).execute()
        assert without.broken != outcome.broken, "each that is left is needed"


def test_a_run_that_holds_is_not_made_smaller() -> None:
    outcome = Run(SCENARIOS["kill"], 3).execute()
    assert outcome.failure is None
    assert shrink(SCENARIOS["kill"], 3)[1].failure is None


def test_to_go_on_and_to_begin_at_a_seed_are_two_things() -> None:
    with pytest.raises(click.UsageError, match="give one"):
        sim_command(["--seed", "7", "--resume", "3"])
