"""Drawn faults that hit every node, losses of power, and programs that exit: what the simulator makes of them."""

from __future__ import annotations

import asyncio
import gc
import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from raftwerk.broker.coordinators.partition_for import partition_for
from raftwerk.cluster.client.client_errors import ClientError, RefusedError
from raftwerk.testing import SimCluster, simulate
from raftwerk.testkit.simulation.escapes import EscapeError
from raftwerk.testkit.simulation.simulate import NotDeterministicError
from raftwerk.testkit.simulation.simulated_run import SimulationFailed

quiet = simulate(seeds=1, faults="")


async def write_and_read(cluster: SimCluster) -> None:
    await cluster.create_topic("t", partitions=3)
    sent = []
    for number in range(40):
        sent.append(f"v{number}".encode())
        await cluster.produce("t", sent[-1])
        await asyncio.sleep(0.5)
    await cluster.heal()
    assert sorted(filter(None, await cluster.values("t"))) == sorted(sent)


@simulate(seeds=[2, 3, 4, 5], faults="power-loss")
async def test_losses_of_power_lose_no_committed_record(cluster: SimCluster) -> None:
    await write_and_read(cluster)


@simulate(seeds=3, faults="power-loss", nodes=1)
async def test_a_single_node_is_killed_instead(cluster: SimCluster) -> None:
    await write_and_read(cluster)


@simulate(seeds=3, faults="power-loss", nodes=1, settings={"log.flush.interval.messages": 1})
async def test_a_single_node_that_flushes_each_batch_loses_power(cluster: SimCluster) -> None:
    await write_and_read(cluster)


@simulate(seeds=5, faults="kill", nodes=1)
async def test_the_tests_own_client_waits_for_a_single_node(cluster: SimCluster) -> None:
    await write_and_read(cluster)


@quiet
async def test_the_tests_own_client_waits_while_all_nodes_are_down(cluster: SimCluster) -> None:
    await cluster.create_topic("t")
    for node_id in cluster.node_ids:
        await cluster.kill(node_id)
    sending = asyncio.create_task(cluster.produce("t", "a"))
    await asyncio.sleep(20)
    assert not sending.done()
    for node_id in cluster.node_ids:
        await cluster.restart(node_id)
    await sending
    assert await cluster.values("t") == [b"a"]


@quiet
async def test_a_partition_that_does_not_exist_is_refused(cluster: SimCluster) -> None:
    await cluster.create_topic("t", partitions=2)
    for partition in (2, -1):
        with pytest.raises(ClientError, match=f"{partition}"):
            await cluster.produce("t", "a", partition=partition)


@quiet
async def test_a_partition_is_a_number(cluster: SimCluster) -> None:
    await cluster.create_topic("t")
    with pytest.raises(TypeError, match="partition='0'"):
        await cluster.produce("t", "a", partition="0")  # type: ignore[arg-type]


def test_a_seed_that_holds_once_only_fails() -> None:
    runs: list[int] = []

    @quiet
    async def test(cluster: SimCluster) -> None:
        runs.append(1)
        assert len(runs) < 2

    assert "seed 0 held, and failed when it ran again" in failed_with(test, NotDeterministicError)


def test_a_failure_that_does_not_come_again_is_told_as_such() -> None:
    runs: list[int] = []

    @simulate(seeds=1)
    async def test(cluster: SimCluster) -> None:
        runs.append(1)
        assert len(runs) > 1

    told = failed_with(test, AssertionError)
    assert "It did not fail in this way when it ran again" in told
    assert "without which" not in told


def failed_with(test: Callable[[], None], kind: type[BaseException]) -> str:
    with pytest.raises(kind) as failed:
        test()
    return f"{failed.value}\n" + "\n".join(getattr(failed.value, "__notes__", ()))


async def exits(code: int) -> None:
    await asyncio.sleep(1)
    sys.exit(code)


async def exits_in_a_task() -> None:
    task = asyncio.create_task(exits(3))
    await asyncio.sleep(10)
    del task


def test_a_program_that_exits_with_a_code_fails_the_test_and_its_seed_is_told() -> None:
    @quiet
    async def test(cluster: SimCluster) -> None:
        cluster.start(exits, 3, name="app")
        await asyncio.sleep(5)

    told = failed_with(test, SimulationFailed)
    assert "app ended with RuntimeError('the program called sys.exit(3)')" in told
    assert "Replay: RAFTWERK_SIMULATE_SEED=0" in told


@quiet
async def test_a_program_that_exits_with_0_has_ended(cluster: SimCluster) -> None:
    program = cluster.start(exits, 0)
    await program.ended()
    assert not program.is_running


def test_exits_elsewhere_fail_the_test_and_the_seed_is_told() -> None:
    @quiet
    async def in_the_test(cluster: SimCluster) -> None:
        await exits(4)

    @quiet
    async def in_a_task(cluster: SimCluster) -> None:
        cluster.start(exits_in_a_task, name="app")
        await asyncio.sleep(5)

    told = failed_with(in_the_test, SimulationFailed)
    assert "test called sys.exit(4)" in told and "Replay:" in told
    told = failed_with(in_a_task, SimulationFailed)
    assert "app called sys.exit(3)" in told and "Replay:" in told


def test_a_refused_process_names_the_line_of_the_application() -> None:
    @quiet
    async def test(cluster: SimCluster) -> None:
        await asyncio.create_subprocess_exec("true")

    assert f"a process was asked for at {__file__}:" in failed_with(test, EscapeError)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"nodes": "3"}, "nodes='3': a simulated cluster has 1 to 9 nodes"),
        ({"limit_s": "x"}, "limit_s='x': it is a number of virtual seconds"),
        ({"settings": [1]}, r"settings=\[1\]: a dict"),
    ],
)
def test_options_of_wrong_types_are_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        simulate(**options)


def test_what_is_no_function_is_no_test() -> None:
    with pytest.raises(TypeError, match="None: a simulated test is `async def`"):
        quiet(None)  # type: ignore[arg-type]


@quiet
async def test_a_node_by_role_is_waited_for_while_it_is_elected(cluster: SimCluster) -> None:
    first = await cluster.kill("controller")
    second = await cluster.kill("controller")  # two of three are down, so that nobody is elected
    assert second != first
    with pytest.raises(ValueError, match=r"there is no controller, for 60 virtual seconds$"):
        await cluster.kill("controller")
    await cluster.restart(first)
    third = await cluster.pause("controller")
    assert third != second
    await cluster.resume(third)
    with pytest.raises(RefusedError, match=r"the cluster has 3 brokers: start it with nodes=4$"):
        await cluster.create_topic("t", replicas=4)


@quiet
async def test_the_coordinator_of_a_group_is_found(cluster: SimCluster) -> None:
    with pytest.raises(ValueError, match="there is no coordinator yet"):
        await cluster.kill("coordinator", "g")
    await cluster.create_topic("t")
    await cluster.produce("t", "a")
    partitions: dict[str, int] = {}
    for group in ("g0", "g1"):  # __consumer_offsets has two partitions, and these are in different ones
        consumer = AIOKafkaConsumer(
            "t", bootstrap_servers=cluster.bootstrap, group_id=group, auto_offset_reset="earliest"
        )
        async with consumer:
            await consumer.getone()
            coordinator = consumer._coordinator.coordinator_id
        assert await cluster.pause("coordinator", group) == coordinator
        await cluster.resume(coordinator)
        partitions[group] = partition_for(group, 2)
    assert set(partitions.values()) == {0, 1}


def test_a_killed_program_warns_of_nothing_that_it_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)

    async def program(bootstrap: str) -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            await producer.send_and_wait("t", b"a")
            async with AIOKafkaConsumer("t", bootstrap_servers=bootstrap, group_id="g") as consumer:
                async for _ in consumer:
                    pass

    @quiet
    async def test(cluster: SimCluster) -> None:
        await cluster.create_topic("t")
        running = cluster.start(program, cluster.bootstrap)
        await asyncio.sleep(5.0)
        running.kill()

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        test()
        gc.collect()
    assert told == []
    assert [str(each.message) for each in warned if each.category is RuntimeWarning] == []


@quiet
async def test_a_condition_is_a_function(cluster: SimCluster) -> None:
    with pytest.raises(TypeError, match="until\\(\\) takes a function"):
        await cluster.until(True)  # type: ignore[arg-type]
