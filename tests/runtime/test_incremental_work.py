"""Work in steps, run in each of the three ways; and the report of what blocked the event loop."""

from __future__ import annotations

import asyncio
import random
import time

import pytest

from raftwerk.chaos.sim.disk.sim_disk import SimDisk
from raftwerk.chaos.sim.kernel.event_loop import ProcessLoop, Scheduler
from raftwerk.runtime.incremental_work import (
    PLAIN_STEP,
    FileRange,
    IncrementalTask,
    Step,
    Work,
    for_each,
    run_at_once,
    run_in_steps,
)
from raftwerk.runtime.loop import run
from raftwerk.runtime.process.stall_watch import StallWatch


@pytest.mark.parametrize(("count", "iterations"), [(0, 1), (2, 1), (3, 2), (7, 3)])
def test_a_task_does_some_steps_an_iteration_and_the_first_at_once(count: int, iterations: int) -> None:
    async def main() -> list[int]:
        seen: list[int] = []
        ends: list[int] = []
        work = for_each(range(count), seen.append)
        task = IncrementalTask(work, steps_per_slice=3, done=lambda _: ends.append(len(seen)))
        sizes = [len(seen)]
        while task.is_running:
            await asyncio.sleep(0)
            sizes.append(len(seen))
        assert seen == list(range(count)) and ends == [count]
        return sizes

    sizes = ProcessLoop(Scheduler(), "test").run_until_complete(main())
    assert len(sizes) == iterations
    assert all(later - earlier <= 3 for earlier, later in zip([0, *sizes], sizes))


def test_a_task_pauses_between_its_slices() -> None:
    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        seen: list[float] = []
        ended = loop.create_future()
        work = for_each(range(5), lambda _: seen.append(loop.time()))
        IncrementalTask(work, steps_per_slice=2, pause_s=lambda: 0.25, done=ended.set_result)
        await ended
        return seen

    begin, *later = ProcessLoop(Scheduler(), "test").run_until_complete(main())
    assert [one - begin for one in later] == pytest.approx([0, 0.25, 0.25, 0.5])


def test_a_cancelled_task_stops_where_it_is() -> None:
    async def main() -> list[int]:
        seen: list[int] = []
        work = for_each(range(10), seen.append)
        task = IncrementalTask(work, steps_per_slice=3, done=lambda _: seen.append(-1))
        task.cancel()
        assert not task.is_running
        await asyncio.sleep(1)
        return seen

    assert ProcessLoop(Scheduler(), "test").run_until_complete(main()) == [0, 1, 2]


def test_a_task_that_is_cancelled_by_its_own_work_does_no_further_step() -> None:
    async def main() -> list[int]:
        seen: list[int] = []
        tasks: list[IncrementalTask[None]] = []

        def visit(number: int) -> None:
            seen.append(number)
            if number == 4:
                tasks[0].cancel()

        tasks.append(IncrementalTask(for_each(range(10), visit), steps_per_slice=3, done=lambda _: seen.append(-1)))
        await asyncio.sleep(1)
        return seen

    assert ProcessLoop(Scheduler(), "test").run_until_complete(main()) == [0, 1, 2, 3, 4]


def test_an_error_ends_a_task() -> None:
    async def main() -> None:
        def visit(number: int) -> None:
            raise ValueError(number)

        tasks: list[IncrementalTask[None]] = []
        with pytest.raises(ValueError, match="0"):
            tasks.append(IncrementalTask(for_each(range(3), visit)))
        assert not tasks

    ProcessLoop(Scheduler(), "test").run_until_complete(main())


class Change:
    """A change of files that notes how it was made."""

    def __init__(self, notes: list[str]) -> None:
        self.notes = notes

    def soon(self) -> asyncio.Future[None]:
        self.notes.append("change soon")
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    def finish(self) -> None:
        self.notes.append("change")


def job(disk: SimDisk, notes: list[str]) -> Work[str]:
    file = disk.open("/f", create=True)
    file.append([b"abcd"])
    yield Step(4, (file,))
    disk.crash(power_loss=True)
    notes.append("durable" if disk.open("/f").size() == 4 else "lost")
    yield Step(change=Change(notes))
    yield Step(reads=FileRange(disk.open("/f"), 0, 4))
    yield PLAIN_STEP
    return "done"


def test_both_runs_do_what_a_step_asks_for_before_the_next() -> None:
    notes: list[str] = []
    disk = SimDisk(random.Random(1))
    disk.open("/f", create=True).close()
    disk.fsync_dir("/")
    assert run_at_once(job(disk, notes)) == "done"
    assert notes == ["durable", "change"]
    notes.clear()
    pauses: list[Step] = []

    def pause_s(step: Step) -> float | None:
        pauses.append(step)
        return None if step.done_bytes else 0.5

    async def main() -> tuple[str, float]:
        loop = asyncio.get_running_loop()
        disk = SimDisk(random.Random(1))
        disk.open("/f", create=True).close()
        disk.fsync_dir("/")
        began_s = loop.time()
        result = await run_in_steps(job(disk, notes), disk, pause_s)
        return result, loop.time() - began_s

    result, took_s = ProcessLoop(Scheduler(), "test").run_until_complete(main())
    assert result == "done" and notes == ["durable", "change soon"] and len(pauses) == 4
    assert 1.5 <= took_s < 2


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
