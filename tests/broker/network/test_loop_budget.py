"""The budget of an iteration of the loop: a flood of requests of some connections does not hold the others."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator
from functools import partial

import pytest
from support.broker.broker_harness import FakeTransport, Harness, correlation_ids, run, settle

from raftwerk.broker.network.connection import ConnectionLimits
from raftwerk.broker.network.dispatch import DECODED_UNITS
from raftwerk.broker.network.loop_budget import (
    UNITS_ALONE,
    UNITS_PER_ITERATION,
    UNITS_PER_SHARE,
    UNITS_WITH_MANY_WAITING,
    LoopBudget,
)
from raftwerk.runtime.incremental_work import PLAIN_STEP, Work
from raftwerk.wire.api_keys import ApiKey
from raftwerk.wire.errors import ErrorCode, ProtocolError

SHARE = UNITS_PER_SHARE // DECODED_UNITS
"""ApiVersions requests of one connection in one iteration."""
ALONE = UNITS_ALONE // DECODED_UNITS
"""The same while nobody waits."""
ITERATION = UNITS_PER_ITERATION // DECODED_UNITS
"""ApiVersions requests of all connections in one iteration."""
CROWDED = UNITS_WITH_MANY_WAITING // DECODED_UNITS
"""The same in iterations that begin with many waiting."""
FLOOD = 16_000


def api_versions(harness: Harness, count: int = 1) -> bytes:
    return b"".join(harness.frame(ApiKey.API_VERSIONS, 0, {}) for _ in range(count))


def answers(transport: FakeTransport) -> int:
    return len(transport.frames())


@pytest.mark.parametrize("ordered_start", [True, False])
def test_a_flood_on_one_connection_leaves_units_for_a_neighbour(ordered_start: bool) -> None:
    async def main() -> None:
        harness = Harness(ConnectionLimits(ordered_start=ordered_start))
        attacker, neighbour = harness.connect(), harness.connect()
        attacker.deliver(api_versions(harness, FLOOD))
        assert SHARE < answers(attacker) <= ALONE
        neighbour.deliver(api_versions(harness))
        assert answers(neighbour) == 1
        assert not attacker.reading

    run(main(), timeout_s=60)


def test_each_iteration_of_the_loop_answers_a_bounded_number_of_requests_of_a_flood() -> None:
    async def main() -> None:
        harness = Harness()
        flood = api_versions(harness, 1_000)
        attackers = [harness.connect() for _ in range(20)]
        for attacker in attackers:
            attacker.deliver(flood)
        counts = [sum(map(answers, attackers))]
        for _ in range(20):
            await asyncio.sleep(0)
            counts.append(sum(map(answers, attackers)))
        steps = [after - before for before, after in zip([0, *counts], counts)]
        assert max(steps) <= ITERATION
        assert max(steps[2:]) <= CROWDED
        assert min(steps) >= CROWDED // 2, "the flood goes on in every iteration"

    run(main(), timeout_s=60)


def test_a_neighbour_of_many_floods_waits_for_one_share_of_each() -> None:
    async def main() -> None:
        harness = Harness()
        flood = api_versions(harness, 1_000)
        attackers = [harness.connect() for _ in range(20)]
        for attacker in attackers:
            attacker.deliver(flood)
        await settle(8)
        before = [answers(attacker) for attacker in attackers]
        neighbour = harness.connect()
        neighbour.deliver(api_versions(harness))
        for _ in range(20 * SHARE):
            if answers(neighbour):
                break
            await asyncio.sleep(0)
        assert answers(neighbour) == 1
        assert max(answers(attacker) - count for attacker, count in zip(attackers, before)) <= 2 * SHARE

    run(main(), timeout_s=60)


def test_a_flood_is_answered_whole_and_in_order() -> None:
    async def main() -> None:
        harness = Harness()
        attacker = harness.connect()
        attacker.deliver(api_versions(harness, 1_000))
        await settle(1_000 // SHARE + 10)
        assert correlation_ids(attacker) == list(range(1, 1_001))
        assert attacker.reading

    run(main(), timeout_s=60)


def test_the_rest_of_a_flood_is_answered_after_the_end_of_the_stream() -> None:
    async def main() -> None:
        harness = Harness()
        attacker = harness.connect()
        attacker.deliver(api_versions(harness, 3 * ALONE))
        assert attacker.protocol.eof_received()
        await settle()
        assert answers(attacker) == 3 * ALONE
        assert attacker.closing

    run(main(), timeout_s=60)


def test_a_connection_that_is_lost_during_its_flood_is_forgotten() -> None:
    async def main() -> None:
        harness = Harness()
        attacker = harness.connect()
        attacker.deliver(api_versions(harness, 3 * ALONE))
        attacker.abort()
        await settle()
        assert answers(attacker) == ALONE

    run(main(), timeout_s=60)


def test_an_iteration_is_short_when_many_wait() -> None:
    async def main() -> None:
        budget = LoopBudget()
        served: list[int] = []

        def take() -> None:
            budget.begin_share()
            budget.units_left -= UNITS_PER_SHARE
            served.append(budget.iteration)

        for _ in range(100):
            budget.wait(take)
        await settle()
        first = UNITS_WITH_MANY_WAITING // UNITS_PER_SHARE
        assert served[:first] == [1] * first
        assert served[first] == 2

    run(main(), timeout_s=60)


def test_who_waits_is_served_in_order_until_the_units_are_used_up() -> None:
    async def main() -> None:
        budget = LoopBudget()
        served: list[str] = []

        def take(name: str) -> None:
            budget.begin_share()
            budget.units_left -= UNITS_PER_ITERATION // 2
            served.append(name)

        for name in "abc":
            budget.wait(partial(take, name))
        await asyncio.sleep(0)
        assert served == ["a", "b"]
        await asyncio.sleep(0)
        assert served == ["a", "b", "c"]

    run(main(), timeout_s=60)


class Decoded:
    """What a request is decoded to."""


@pytest.fixture
def no_collections() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("end", ["answered", "refused", "cancelled"])
def test_a_request_that_is_answered_in_steps_leaves_no_cycles(end: str, no_collections: None) -> None:
    """Cycles are not collected for an hour if they were alive when the collector froze what it had found."""

    async def test() -> None:
        seen: list[weakref.ref[Decoded]] = []

        def work() -> Work[int]:
            decoded = Decoded()
            seen.append(weakref.ref(decoded))
            for _ in range(3):
                yield PLAIN_STEP
            if end == "refused":
                raise ProtocolError(ErrorCode.INVALID_REQUEST)
            return 7

        running = LoopBudget().run(work())
        await asyncio.sleep(0)
        if end == "cancelled":
            running.cancel()
        for _ in range(10):
            await asyncio.sleep(0)
        assert running.done()
        (decoded,) = seen
        if end == "refused":
            assert isinstance(running.exception(), ProtocolError)
        del running
        assert decoded() is None

    asyncio.run(test())
