"""The time-outs of delayed operations on a running loop."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from raftwerk.chaos.sim.kernel.event_loop import ProcessLoop, Scheduler
from raftwerk.isr.purgatory.delayed_operation_timers import DelayedOperationTimers


def test_nothing_times_out_after_close() -> None:
    fired: list[str] = []

    async def main() -> None:
        timers = DelayedOperationTimers(asyncio.get_running_loop())
        timers.add(10, lambda: fired.append("late"))
        timers.close()
        await asyncio.sleep(1)

    ProcessLoop(Scheduler(), "test").run_until_complete(main(), 10.0)
    assert fired == []


def test_a_time_out_that_raises_stops_no_other() -> None:
    fired: list[str] = []
    failures: list[Any] = []

    def fail() -> None:
        raise ValueError("hostile")

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: failures.append(context["exception"]))
        timers = DelayedOperationTimers(loop)
        timers.add(10, fail)
        timers.add(10, lambda: fired.append("at the same time"))
        timers.add(500, lambda: fired.append("later"))
        await asyncio.sleep(1)

    ProcessLoop(Scheduler(), "test").run_until_complete(main(), 10.0)
    assert fired == ["at the same time", "later"]
    assert [str(error) for error in failures] == ["hostile"]


def test_time_outs_fire_in_their_order_whatever_the_order_in_which_they_were_set() -> None:
    fired: list[tuple[int, float]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(3.0)
        timers, began = DelayedOperationTimers(loop), loop.time()

        def note(delay_ms: int) -> None:
            fired.append((delay_ms, loop.time() - began))

        for delay_ms in (500, 10, 3_000, 10, 200):
            timers.add(delay_ms, partial(note, delay_ms))
        timers.add(100, partial(note, 100)).cancel()
        await asyncio.sleep(10)

    ProcessLoop(Scheduler(), "test").run_until_complete(main(), 60.0)
    assert [delay_ms for delay_ms, _ in fired] == [10, 10, 200, 500, 3_000]
    for delay_ms, after_s in fired:
        assert 0 <= after_s - delay_ms / 1000 <= 0.002, "not too early, and no later than the wheel turns"


def test_a_time_out_may_set_another_one() -> None:
    fired: list[str] = []

    async def main() -> None:
        timers = DelayedOperationTimers(asyncio.get_running_loop())

        def first() -> None:
            fired.append("first")
            timers.add(5, partial(fired.append, "second"))

        timers.add(10, first)
        await asyncio.sleep(0.020)

    ProcessLoop(Scheduler(), "test").run_until_complete(main(), 60.0)
    assert fired == ["first", "second"]
