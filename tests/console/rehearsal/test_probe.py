"""The probe's load against a cluster in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from raftwerk import testing
from raftwerk.cluster.client.cluster_client import ClusterClient
from raftwerk.console.rehearsal import probe as probe_module
from raftwerk.console.rehearsal.probe import PARTITIONS, TOPIC, Probe
from raftwerk.runtime.clock import SystemClock


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(600):
        if holds():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("not within half a minute")


async def run_until_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe_module, "UNWATCHED_MAX_S", 0.5)
    async with testing.cluster(nodes=1) as cluster, ClusterClient(cluster.bootstrap) as client:
        is_watched = True
        probe = Probe(client, SystemClock(), lambda: is_watched)
        await asyncio.gather(probe.start(), probe.start())  # as from two tabs: the second one has no effect
        await probe.start()  # nor has a third one
        await until(lambda: probe.acked >= 10 * PARTITIONS and bool(probe.points))
        assert probe.is_running
        row = probe.as_row(0)
        assert len(row["points"]) == probe.number > 0
        assert sum(acks for _, _, acks in row["points"]) <= probe.acked
        assert probe.as_row(probe.number)["points"] == []
        is_watched = False
        await until(lambda: not probe.is_running)
        await until(lambda: not any("Probe." in str(task.get_coro()) for task in asyncio.all_tasks()))
        view = await client.metadata([TOPIC])
        assert len(view.topic(TOPIC).partitions) == PARTITIONS


def test_a_probe_that_nobody_watches_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    asyncio.run(run_until_it_ends(monkeypatch))
