"""What a test asks of its simulated cluster by the cluster's own client, whatever fault is at work."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from raftwerk.chaos.sim.faults.fault import Fault, FaultKind
from raftwerk.testing import SimCluster, simulate
from raftwerk.testkit.simulation.simulated_run import SimulatedOutcome, SimulationOptions, Simulator

quiet = simulate(seeds=1, faults="")


def outcome_of(test: Any, *faults: Fault) -> SimulatedOutcome:
    with Simulator() as simulator:
        return simulator.run(test, 0, SimulationOptions(), list(faults))


@quiet
async def test_a_node_is_cut_off_from_programs_that_start_later_until_the_heal(cluster: SimCluster) -> None:
    reached: list[bool] = []

    async def program() -> None:
        host, port = cluster.bootstrap.split(",")[0].rsplit(":", 1)
        try:
            async with asyncio.timeout(10.0):
                await asyncio.get_running_loop().create_connection(asyncio.Protocol, host, int(port))
            reached.append(True)
        except (OSError, TimeoutError):
            reached.append(False)

    await cluster.cut(1)
    await cluster.start(program).ended()
    await cluster.heal()
    await cluster.start(program).ended()
    assert reached == [False, True]


@quiet
async def test_a_leader_is_waited_for(cluster: SimCluster) -> None:
    await cluster.create_topic("t", replicas=1)
    await cluster.produce("t", "a")
    leader = await cluster.kill("leader", "t")

    async def later() -> None:
        await asyncio.sleep(25.0)
        await cluster.restart(leader)

    restarting = asyncio.create_task(later())
    assert await cluster.values("t") == [b"a"]
    await restarting


@pytest.mark.parametrize(("kind", "duration_s"), [(FaultKind.KILL, 3.0), (FaultKind.PAUSE, 15.0)])
def test_a_topic_is_created_and_deleted_whenever_the_broker_that_is_asked_fails(
    kind: FaultKind, duration_s: float
) -> None:
    """A broker that forwards the request and then dies leaves it open whether the controller has decided."""

    async def test(cluster: SimCluster) -> None:
        await asyncio.sleep(30.0 - cluster.now_s)
        await cluster.create_topic("t")
        await asyncio.sleep(60.0 - cluster.now_s)
        await cluster.delete_topic("t")

    for step in range(20):
        faults = [Fault(at_s + step * 0.002, kind, "n1", "n1", duration_s) for at_s in (30.0, 60.0)]
        outcome = outcome_of(test, *faults)
        assert outcome.failure is None, f"n1 fails {step * 2} ms after the question: {outcome.failure!r}"


def test_a_refusal_that_nobody_waits_for_any_more_is_no_bug_of_the_cluster() -> None:
    async def test(cluster: SimCluster) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.0001):
                await cluster.delete_topic("there-is-none")
        application = cluster.start(cluster.delete_topic, "there-is-none")
        await asyncio.sleep(0.0001)
        application.kill()
        await asyncio.sleep(5.0)

    outcome = outcome_of(test)
    assert outcome.failure is None, repr(outcome.failure)
