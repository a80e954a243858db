"""The time-outs of delayed operations on a running loop."""

from __future__ import annotations

import asyncio
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
