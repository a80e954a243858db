"""The clusters that benchmarks measure, and their rows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from raftwerk.bench import access_control_lists, peers_before_login, security, transactions
from raftwerk.bench.common.client_workloads import Figure, create_topic
from raftwerk.bench.common.side_by_side import table
from raftwerk.bench.common.systems import System


def test_transactions_are_measured_on_a_cluster(tmp_path: Path) -> None:
    system = System(tmp_path / "of-a-benchmark", 3)
    try:
        assert len(system.memory_mb()) == 3
        topic = create_topic(system.bootstrap, "committed", 3)
        figures = list(transactions.one_producer(system.bootstrap, topic, 10, 0.5))
    finally:
        system.stop()
    assert [figure.unit for figure in figures] == ["/s", "ms", "ms"]
    assert all(figure.value > 0 and not figure.bad for figure in figures)


def test_logins_are_measured_on_a_cluster(tmp_path: Path) -> None:
    system = security.SecuredRaftwerk(tmp_path / "of-a-benchmark", 3)
    try:
        figures = [*security.connection_figures(system, 0.3)]
    finally:
        system.stop()
    assert [figure.unit for figure in figures] == ["/s", "/s"]
    assert all(figure.value > 0 and not figure.bad for figure in figures)


class Ended(System):
    """A system whose process ends at once."""

    def launch(self) -> list[subprocess.Popen[bytes]]:
        with (self.directory.parent / "up.log").open("wb") as log:
            return [subprocess.Popen([sys.executable, "-c", "raise SystemExit('no start')"], stderr=log)]


def test_a_system_that_ends_instead_of_starting_is_not_waited_for(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="raftwerk ended with exit code 1: no start"):
        Ended(tmp_path, 1)


def test_the_table_of_two_systems_says_how_often_the_first_is_better() -> None:
    results = {
        name: [Figure("commits", 10 * by, "/s"), Figure("commit p50", 8 / by, "ms", 0, False), Figure("lost", -by, "%")]
        for name, by in (("raftwerk", 2), ("kafka", 1))
    }
    assert table(results).splitlines() == [
        "| RF3, three nodes | raftwerk | kafka | better by |",
        "|---|---:|---:|---:|",
        "| commits | 20.0 /s | 10.0 /s | 2.00 x |",
        "| commit p50 | 4.0 ms | 8.0 ms | 2.00 x |",
        "| lost | -2.0 % | -1.0 % |  |",
    ]


@pytest.mark.long
@pytest.mark.process
def test_a_client_is_served_beside_peers_that_do_not_log_in(capsys: pytest.CaptureFixture[str]) -> None:
    """Times are not judged: this machine does other things as well."""
    unjudged = ["--factor", "1000", "--floor-ms", "30000"]
    assert peers_before_login.main(["--peers", "150", "--seconds", "1", "--growth-mb", "100", *unjudged]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:2]] == ["SASL_PLAINTEXT", "SASL_SSL"]
    assert lines[2:] == ["nothing is wrong"]


@pytest.mark.long
@pytest.mark.process
def test_the_cost_of_access_control_lists_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert access_control_lists.main(["--acls", "20", "--starts", "2", "--rounds", "2", "--requests", "2000"]) == 0
    assert "loss of processor time: " in capsys.readouterr().out
