"""The page of a simulated test that fails."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.testkit.applications.reports import make_reports

from raftwerk.testing import SimCluster, simulate
from raftwerk.testkit.simulation.replay_page import RecordedRun
from raftwerk.testkit.simulation.simulated_run import SimulationOptions, Simulator


def note_of(test: Callable[[], None]) -> str:
    """The report of a test that fails."""
    with pytest.raises(AssertionError) as failed:
        test()
    return "\n".join(failed.value.__notes__)


async def nothing(bootstrap: str) -> None:
    """A program that only waits."""
    await asyncio.sleep(1000.0)


async def two_leaders(cluster: SimCluster) -> None:
    """A test that fails once a leader is killed."""
    await cluster.create_topic("orders")
    cluster.start(nothing, cluster.bootstrap, name="waiting")
    first = await cluster.leader_of("orders")
    await cluster.kill("leader", "orders")
    await cluster.produce("orders", "a record")
    assert await cluster.leader_of("orders") == first, "another leader"


def history_in(page: str) -> dict[str, Any]:
    """The history in a page."""
    found = re.search(r'id="history">(.*?)</script>', page)
    assert found is not None
    history: dict[str, Any] = json.loads(found[1])
    return history


def test_a_failing_seed_says_how_to_watch_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAFTWERK_SIMULATE_HTML", raising=False)
    told = note_of(simulate(seeds=1, faults="")(two_leaders))
    assert "\nWatch: RAFTWERK_SIMULATE_SEED=0 RAFTWERK_SIMULATE_HTML=replay.html PYTHONHASHSEED=" in told


def test_the_page_has_the_nodes_the_application_and_the_failure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    page = tmp_path / "replay.html"
    monkeypatch.setenv("RAFTWERK_SIMULATE_HTML", str(page))
    told = note_of(simulate(seeds=1, faults="")(two_leaders))
    assert told.endswith(f"\nWatch: {page}")
    history = history_in(page.read_text())
    failure = history["facts"]["failure"]
    assert failure["name"] == "AssertionError: another leader"
    assert not failure["is_invariant"]
    assert "RAFTWERK_SIMULATE_SEED=0" in history["facts"]["command"]
    assert history["partitions"][0] == "orders-0"
    assert "waiting" in history["clients"]
    texts = [row[3] for row in history["steps"]]
    assert "killed" in texts
    assert texts[-1].startswith("AssertionError: another leader")


def test_a_page_that_cannot_be_written_is_told_beside_the_failure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RAFTWERK_SIMULATE_HTML", str(tmp_path / "no" / "page.html"))
    assert "\nThe page of this run could not be written: " in note_of(simulate(seeds=1, faults="")(two_leaders))


def test_a_simulated_test_goes_the_same_way_with_a_recorder_and_without() -> None:
    made: list[bytes] = []

    async def reports(cluster: SimCluster) -> None:
        made.clear()
        await cluster.create_topic("wanted", partitions=2)
        cluster.start(lambda: make_reports(cluster.bootstrap, made, blocks=False), name="worker")
        for number in range(10):
            await cluster.produce("wanted", f"report {number}")
            await asyncio.sleep(1.0)
        await cluster.heal()

    options = SimulationOptions(faults=("kill", "cut", "kill-application"), faults_for_s=10.0)
    run = RecordedRun()
    with Simulator() as simulator:
        without = simulator.run(reports, 2, options)
        recorded = simulator.run(reports, 2, options, observe=run.observe)
    assert recorded.digest == without.digest
    assert made
    assert recorded.virtual_s == without.virtual_s
    assert list(recorded.story) == list(without.story)
    history = history_in(run.page(recorded, "reports", "three nodes", "pytest"))
    assert history["facts"]["failure"] is None
    assert len(history["messages"]) > 1000
    assert "worker" in history["clients"]
