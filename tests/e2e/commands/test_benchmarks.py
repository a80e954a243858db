"""The clusters that benchmarks measure, and their rows."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from raftwerk.bench import access_control_lists, peers_before_login, security, transactions
from raftwerk.bench.common.client_workloads import Figure, create_topic
from raftwerk.bench.common.results import Results
from raftwerk.bench.common.systems import System
from raftwerk.bench.comparison.benchmark import main
from raftwerk.bench.comparison.peer import Peer
from raftwerk.bench.comparison.picture import picture


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


def results_of_two() -> Results:
    results = Results(["raftwerk", "kafka"])
    for name, by in (("raftwerk", 2), ("kafka", 1)):
        for turn in (0.5, 1, 7):  # the median is the second
            results.add(name, Figure("commits", 10 * by * turn, "/s"))
            results.add(name, Figure("commit p50", 8 / by * turn, "ms", by - 1, False))
            results.add(name, Figure("lost", -by, "%"))
    results.add("raftwerk", Figure("memory <a node>", 43.25, "MB", 0, False))
    return results


def test_the_table_has_medians_and_says_how_often_the_first_is_better() -> None:
    results = results_of_two()
    assert results.table("RF3, three nodes").splitlines() == [
        "| RF3, three nodes | raftwerk | kafka | better than kafka |",
        "|---|---:|---:|---:|",
        "| commits | 20.0 /s | 10.0 /s | 2.00 x |",
        "| commit p50 | 4.00 ms (3 errors) | 8.00 ms | 2.00 x |",
        "| lost | -2.00 % | -1.00 % |  |",
        "| memory <a node> | 43.2 MB |  |  |",
    ]
    assert results.is_bad


def test_the_picture_has_a_bar_for_each_ratio() -> None:
    root = ElementTree.fromstring(picture(results_of_two()))
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts == ["raftwerk: how many times better than kafka", "commits", "2.00", "commit p50", "2.00"]


def test_a_cluster_that_runs_is_named_by_its_address() -> None:
    peer = Peer.parse("other=a:1,b:2;3,4")
    assert (peer.name, peer.bootstrap, peer.pids) == ("other", "a:1,b:2", (3, 4))
    assert Peer.parse("other=a:1").memory_mb() is None
    for wrong in ("a:1", "=a:1", "other=", "other=a:1;x"):
        with pytest.raises(ValueError):
            Peer.parse(wrong)


@pytest.mark.long
@pytest.mark.process
def test_a_cluster_is_compared_with_one_that_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Figures are not judged, but that there are all of them, without errors, for both."""
    other = System(tmp_path / "other", 3)
    try:
        small = ["--scale", "0.01", "--turns", "1", "--seconds", "0.3", "--parts", "idle,throughput,latency,beside"]
        peer = f"other={other.bootstrap};{','.join(map(str, other.pids()))}"
        assert main([*small, "--only", "raftwerk", "--peer", peer, "--results", str(tmp_path / "results")]) == 0
    finally:
        other.stop()
    written = {path.suffix: path.read_text() for path in (tmp_path / "results").iterdir()}
    rows = json.loads(written[".json"])["rows"]
    assert len(rows) > 50 and all(set(row["figures"]) == {"raftwerk", "other"} for row in rows)
    assert written[".md"].count("\n| ") == len(rows) + 1
    ElementTree.fromstring(written[".svg"])


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
