"""Work in slices, and who held the loop."""

from __future__ import annotations

import asyncio
import time

import pytest

from raftwerk.chaos.sim.kernel.event_loop import ProcessLoop, Scheduler
from raftwerk.runtime.loop import run
from raftwerk.runtime.slices import Slices
from raftwerk.runtime.stall_watch import StallWatch


@pytest.mark.parametrize(("count", "turns"), [(0, 1), (2, 1), (3, 2), (7, 3)])
def test_some_a_turn_and_the_first_at_once(count: int, turns: int) -> None:
    async def main() -> list[int]:
        seen: list[int] = []
        ends: list[int] = []
        slices = Slices(range(count), seen.append, 3, lambda: ends.append(len(seen)))
        sizes = [len(seen)]
        while slices.is_running:
            await asyncio.sleep(0)
            sizes.append(len(seen))
        assert seen == list(range(count)) and ends == [count]
        return sizes

    sizes = ProcessLoop(Scheduler(), "test").run_until_complete(main())
    assert len(sizes) == turns
    assert all(later - earlier <= 3 for earlier, later in zip([0, *sizes], sizes))


def test_a_cancelled_one_stops_where_it_is() -> None:
    async def main() -> list[int]:
        seen: list[int] = []
        slices = Slices(range(10), seen.append, 3, lambda: seen.append(-1))
        slices.cancel()
        await asyncio.sleep(1)
        return seen

    assert ProcessLoop(Scheduler(), "test").run_until_complete(main()) == [0, 1, 2]


def test_who_holds_the_loop_is_named() -> None:
    reports: list[str] = []

    def hold_the_loop() -> None:
        until = time.monotonic() + 0.15
        while time.monotonic() < until:
            pass

    async def main() -> None:
        watch = StallWatch(20, reports.append)
        watch.start()
        for _ in range(20):  # beside others on the machine, the watch may look when it is over
            await asyncio.sleep(0.1)
            hold_the_loop()
            await asyncio.sleep(0.1)
            if any("hold_the_loop" in report for report in reports):
                break
        watch.stop()

    run(main())
    assert any("event loop held for" in report and "hold_the_loop" in report for report in reports), reports
