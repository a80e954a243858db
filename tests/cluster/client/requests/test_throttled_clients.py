"""What our clients do and say while a quota throttles them."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest
from support.e2e.command import raftwerk

from raftwerk.chaos.sim.kernel.event_loop import ProcessLoop, Scheduler
from raftwerk.cluster.client.cluster_client import ClusterClient
from raftwerk.cluster.client.requests.throttling import Throttling
from raftwerk.testkit.process_cluster import TestCluster

TOLD = "a quota throttles this client at localhost:9092, for another {} s; raftwerk quotas list shows the quotas"


def test_a_limit_ends_later_by_the_time_of_throttling_and_once_for_several_brokers() -> None:
    async def run() -> float:
        loop = asyncio.get_running_loop()
        throttling = Throttling(is_silent=True)
        began = loop.time()
        with pytest.raises(TimeoutError):
            async with throttling.limit_until(began + 0.1):
                throttling.on_throttled("a:9092", began + 0.2)
                throttling.on_throttled("b:9092", began + 0.3)
                throttling.on_throttled("a:9092", began + 0.25)
                await asyncio.sleep(30)
        assert throttling.seconds == pytest.approx(0.3, abs=0.05)
        assert not throttling.left_s
        return loop.time() - began

    assert 0.39 < asyncio.run(run()) < 5


def test_a_limit_that_begins_while_the_client_is_throttled_ends_later_by_what_is_left_of_that() -> None:
    """As that of a batch which is sent after one whose answer told of the throttle time."""

    async def run() -> float:
        loop = asyncio.get_running_loop()
        throttling = Throttling(is_silent=True)
        throttling.on_throttled("a:9092", loop.time() + 0.2)
        await asyncio.sleep(0.1)
        began = loop.time()
        with pytest.raises(TimeoutError):
            async with throttling.limit_until(began + 0.1):
                throttling.on_throttled("a:9092", began + 0.3)
                await asyncio.sleep(30)
        return loop.time() - began

    assert 0.39 < asyncio.run(run()) < 5


def test_a_limit_that_has_no_end_keeps_none() -> None:
    async def run() -> None:
        throttling = Throttling(is_silent=True)
        async with throttling.limit_until(None):
            throttling.on_throttled("a:9092", asyncio.get_running_loop().time() + 30)
            await asyncio.sleep(0)
        assert throttling.left_s
        assert throttling.seconds < 1

    asyncio.run(run())


@pytest.mark.parametrize(
    ("is_silent", "until_s", "told"),
    [
        (False, [4], ["1.0 s: 3.0"]),
        (False, [4, 8], ["1.0 s: 3.0"]),
        (False, [4, 8, 15], ["1.0 s: 3.0", "11.0 s: 4.0"]),
        (False, [25], ["1.0 s: 24.0", "11.0 s: 14.0", "21.0 s: 4.0"]),
        (False, [0.4], []),
        (True, [4], []),
    ],
)
def test_it_is_said_once_it_has_lasted_a_second_and_again_after_ten_more(
    *, is_silent: bool, until_s: list[float], told: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """The client hears of the next throttle time when the one before it ends."""
    seen: list[str] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        throttling = Throttling(is_silent=is_silent)
        began, before = loop.time(), 0.0
        for end in until_s:
            throttling.on_throttled("localhost:9092", began + end)
            while loop.time() < began + end:
                await asyncio.sleep(0.5)
                at = f"{loop.time() - began:.1f} s"
                seen.extend(f"{at}: {record.getMessage()}" for record in caplog.records[len(seen) :])
            before = end
        assert throttling.seconds == pytest.approx(before)

    with caplog.at_level(logging.WARNING):
        ProcessLoop(Scheduler(), "client").run_until_complete(run())
    assert seen == [f"{at} s: {TOLD.format(left)}" for at, left in (one.split(" s: ") for one in told)]


def test_nothing_is_said_of_a_throttle_time_that_nobody_waits_for(caplog: pytest.LogCaptureFixture) -> None:
    """A command that has its answers ends at once."""

    async def run() -> None:
        async with ClusterClient("localhost:9092") as client:
            client.throttling.on_throttled("localhost:9092", asyncio.get_running_loop().time() + 30)
        await asyncio.sleep(40)

    with caplog.at_level(logging.WARNING):
        ProcessLoop(Scheduler(), "client").run_until_complete(run())
    assert not caplog.records


@pytest.mark.process
def test_producers_and_consumers_beyond_a_quota_wait_and_say_so() -> None:
    with TestCluster.start(1) as cluster:
        at = ("-b", cluster.bootstrap_servers)
        cluster.create_topic("q", partitions=2)
        settings = ("producer_byte_rate=8000", "consumer_byte_rate=30000")
        assert raftwerk("quotas", "set", "--default-client-id", *settings, *at).returncode == 0
        done = raftwerk("perf", "produce", "q", "-n", "1500", "--json", *at, timeout=120)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout.splitlines()[-1])
        assert found["records"] == 1500
        assert found["retries"] == 0
        assert "not answered" not in done.stderr
        consumed = raftwerk("perf", "consume", "q", *at, timeout=120)
        assert consumed.stdout.startswith("1,500 records in "), consumed.stdout
