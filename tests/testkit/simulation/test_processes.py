"""Processes of a simulated application: how the test and drawn faults start, stop, pause and kill them."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import Any

import pytest

from raftwerk.chaos.sim.faults.fault import Fault, FaultKind
from raftwerk.testing import SimApplication, SimCluster, simulate
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


# -- stop


@quiet
async def test_a_process_that_has_just_been_started_is_stopped(cluster: SimCluster) -> None:
    application = cluster.start(forever)
    await application.stop()
    assert not application.is_running
    application.start()
    await asyncio.sleep(1.0)
    application.kill()
    application.start()
    await application.stop()
    assert not application.is_running


# -- drawn kills


def test_a_process_that_the_test_stops_after_a_drawn_kill_stays_so() -> None:
    async def test(cluster: SimCluster) -> None:
        stopped, killed = (cluster.start(forever, name=name) for name in ("stopped", "killed"))
        await until(cluster, 31.0)
        assert not (stopped.is_running or killed.is_running)
        await stopped.stop()
        killed.kill()
        await until(cluster, 40.0)
        await cluster.heal()
        assert not (stopped.is_running or killed.is_running)

    outcome = outcome_of(test, *[kill_of("application", at_s, 3.0) for at_s in (30.0, 30.1)])
    assert outcome.failure is None, repr(outcome.failure)


def test_a_process_is_started_again_after_a_drawn_kill() -> None:
    async def test(cluster: SimCluster) -> None:
        application = cluster.start(forever, name="app")
        await until(cluster, 31.0)
        assert not application.is_running
        await until(cluster, 34.0)
        assert application.is_running
        await until(cluster, 41.0)
        assert not application.is_running
        await cluster.heal()
        assert application.is_running

    outcome = outcome_of(test, kill_of("application", 30.0, 3.0), kill_of("application", 40.0, 100.0))
    assert outcome.failure is None, repr(outcome.failure)


def test_a_program_that_has_done_its_work_since_a_drawn_kill_is_not_run_once_more() -> None:
    async def test(cluster: SimCluster) -> None:
        done: list[float] = []

        async def program() -> None:
            await asyncio.sleep(1.0)
            await until(cluster, max(31.0, cluster.now_s))
            done.append(cluster.now_s)

        application = cluster.start(program, name="app")
        await until(cluster, 30.2)
        assert not application.is_running
        application.start()  # the test is its supervisor
        await application.ended()
        await until(cluster, 40.0)
        assert len(done) == 1, f"it ran once more: {done}"

    outcome = outcome_of(test, kill_of("application", 30.0, 5.0))
    assert outcome.failure is None, repr(outcome.failure)


def test_an_error_of_a_program_since_a_drawn_kill_is_not_forgotten() -> None:
    async def test(cluster: SimCluster) -> None:
        async def program() -> None:
            await asyncio.sleep(1.0)
            if 30.5 < cluster.now_s < 32.0:
                raise KeyError("gone")
            await forever()

        application = cluster.start(program, name="app")
        await until(cluster, 30.2)
        application.start()
        await until(cluster, 40.0)

    outcome = outcome_of(test, kill_of("application", 30.0, 5.0))
    assert str(outcome.failure) == "app ended with KeyError('gone'); `await ended()` expects an error"


@pytest.mark.parametrize("count", [2, 3, 4])
def test_drawn_kills_hit_all_processes_of_the_application_in_turn(count: int) -> None:
    applications: list[SimApplication] = []

    async def test(cluster: SimCluster) -> None:
        applications.extend(cluster.start(forever, name=f"app{number}") for number in range(count))
        await until(cluster, 60.0)

    outcome = outcome_of(test, *[kill_of("application", 30.0 + 2 * number, 0.5) for number in range(12)])
    assert outcome.failure is None
    assert [each.starts for each in applications] == [1 + 12 // count] * count


def test_kills_by_their_name_hit_both_processes() -> None:
    starts: list[list[int]] = []

    @simulate(seeds=3, faults="kill-application", faults_for_s=60.0)
    async def test(cluster: SimCluster) -> None:
        applications = [cluster.start(forever) for _ in range(2)]
        await asyncio.sleep(70.0)
        starts.append([each.starts for each in applications])

    test()
    assert all(min(counts) > 1 for counts in starts), starts
