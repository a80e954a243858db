"""Processes of a simulated application: how the test and drawn faults start, stop, pause and kill them."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import Any

import pytest

from raftwerk.chaos.sim.faults.fault import Fault, FaultKind
from raftwerk.testing import SimCluster, simulate
from raftwerk.testkit.simulation.simulated_run import SimulatedOutcome, SimulationOptions, Simulator

quiet = simulate(seeds=1, faults="", limit_s=120.0)


def outcome_of(test: Any, *faults: Fault) -> SimulatedOutcome:
    """What becomes of a test with these faults and no others. The cluster has started some seconds before 30 s."""
    with Simulator() as simulator:
        return simulator.run(test, 0, SimulationOptions(), list(faults))


def kill_of(target: str, at_s: float, duration_s: float) -> Fault:
    return Fault(at_s, FaultKind.KILL, target, target, duration_s)


async def until(cluster: SimCluster, at_s: float) -> None:
    await asyncio.sleep(at_s - cluster.now_s)


async def forever() -> None:
    await asyncio.get_running_loop().create_future()


# -- time.sleep


@quiet
async def test_a_process_that_is_killed_while_it_sleeps_does_nothing_more(cluster: SimCluster) -> None:
    steps: list[str] = []

    async def program() -> None:
        steps.append("before")
        try:
            time.sleep(5.0)  # noqa: ASYNC251
        except Exception:
            steps.append("error")
        steps.append("after")
        await forever()

    application = cluster.start(program)
    await asyncio.sleep(2.0)
    application.kill()
    application.start()
    await asyncio.sleep(4.0)
    assert steps == ["before", "before"], "the first process is dead, the second one sleeps"
    await asyncio.sleep(4.0)
    assert steps == ["before", "before", "after"]


@quiet
async def test_a_heal_does_not_end_the_sleep_of_a_process(cluster: SimCluster) -> None:
    ticks: list[float] = []

    async def program() -> None:
        async def tick() -> None:
            while True:
                ticks.append(time.monotonic())
                await asyncio.sleep(1.0)

        ticking = asyncio.create_task(tick())
        await asyncio.sleep(2.5)
        time.sleep(30.0)  # noqa: ASYNC251
        await asyncio.sleep(2.5)
        ticking.cancel()

    application = cluster.start(program)
    await asyncio.sleep(5.0)
    await cluster.heal()
    await application.ended()
    assert max(later - earlier for earlier, later in itertools.pairwise(ticks)) >= 29.0


@quiet
async def test_a_process_that_is_paused_while_it_sleeps_goes_on_when_it_is_resumed(cluster: SimCluster) -> None:
    woken: list[float] = []

    async def program() -> None:
        began_s = time.monotonic()
        time.sleep(5.0)  # noqa: ASYNC251
        woken.append(time.monotonic() - began_s)

    for pause_s, slept_s in ((1.0, 5.0), (20.0, 22.0)):
        application = cluster.start(program)
        await asyncio.sleep(2.0)
        application.pause()
        await asyncio.sleep(pause_s)
        application.resume()
        await application.ended()
        assert woken.pop() == pytest.approx(slept_s, abs=0.01)


@pytest.mark.parametrize("asleep_from_s", [29.0, 32.0])
def test_faults_begin_and_end_at_their_times_while_a_process_sleeps(asleep_from_s: float) -> None:
    down: list[float] = []

    async def test(cluster: SimCluster) -> None:
        async def watch() -> None:
            while True:
                if not cluster._world.hosts["n1"].running:
                    down.append(cluster.now_s)
                await asyncio.sleep(0.1)

        async def blocked() -> None:
            await until(cluster, asleep_from_s)
            time.sleep(20.0)  # noqa: ASYNC251

        cluster.start(watch)
        await cluster.start(blocked).ended()

    outcome = outcome_of(test, kill_of("n1", 31.0, 3.0))
    assert outcome.failure is None
    assert min(down) == pytest.approx(31.0, abs=0.2)
    assert max(down) == pytest.approx(34.0, abs=0.2)
