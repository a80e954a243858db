"""The virtual loop: asyncio's tools work on it, in a fixed order, and a process can die or be paused."""

from __future__ import annotations

import asyncio
import gc
import warnings

import pytest

from raftwerk.chaos.sim.kernel.event_loop import ProcessLoop, Scheduler, SimulationError
from raftwerk.runtime.loop import TaskSet


def make(name: str = "a") -> tuple[Scheduler, ProcessLoop]:
    scheduler = Scheduler()
    return scheduler, ProcessLoop(scheduler, name)


def test_an_hour_passes_at_once() -> None:
    scheduler, process = make()

    async def main() -> float:
        await asyncio.sleep(3600)
        return asyncio.get_running_loop().time()

    assert process.run_until_complete(main(), timeout_s=4000) == 3600
    assert scheduler.events_run < 10


def test_asyncio_tools_work() -> None:
    _, process = make()

    async def main() -> list[object]:
        queue: asyncio.Queue[int] = asyncio.Queue()
        event, lock = asyncio.Event(), asyncio.Lock()
        seen: list[object] = []

        async def worker() -> None:
            while True:
                seen.append(await queue.get())
                async with lock:
                    event.set()

        task = asyncio.get_running_loop().create_task(worker())
        queue.put_nowait(1)
        await event.wait()
        with pytest.raises(asyncio.TimeoutError):
            async with asyncio.timeout(0.5):
                await asyncio.get_running_loop().create_future()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.sleep(10), 0.25)
        seen.extend(await asyncio.gather(asyncio.sleep(1, "x"), asyncio.sleep(2, "y")))
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(0.25))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        seen.append(asyncio.get_running_loop().time())
        return seen

    assert process.run_until_complete(main()) == [1, "x", "y", 3.0]


def test_order_is_by_time_and_then_by_age() -> None:
    scheduler, process = make()
    seen: list[str] = []
    process.call_later(1, seen.append, "timer 1")
    process.call_soon(seen.append, "soon 1")
    process.call_later(1, seen.append, "timer 2")
    process.call_later(1, lambda: process.call_soon(seen.append, "soon after the timers"))
    process.call_later(1, seen.append, "timer 3")
    process.call_later(0.5, seen.append, "early")
    process.call_later(0.7, seen.append, "cancelled").cancel()
    scheduler.run_for(2)
    assert seen == ["soon 1", "early", "timer 1", "timer 2", "timer 3", "soon after the timers"]
    assert scheduler.now_s == 2


def test_cancelled_timers_are_swept() -> None:
    scheduler, process = make()
    kept: list[int] = []
    for number in range(20_000):
        handle = process.call_later(30 + number, kept.append, number)
        if number % 100:
            handle.cancel()
    assert len(scheduler._timers) < 5_000
    scheduler.run_for(30_000)
    assert kept == list(range(0, 20_000, 100))


def test_an_error_that_is_not_caught_is_recorded() -> None:
    scheduler, process = make()
    process.call_soon(lambda: 1 // 0)

    async def main() -> None:
        async def fail() -> None:
            raise ValueError("lost")

        TaskSet().spawn(fail())
        await asyncio.sleep(1)

    process.run_until_complete(main())
    assert [type(error.error).__name__ for error in scheduler.errors] == ["ZeroDivisionError", "ValueError"]
    assert "a" in str(scheduler.errors[0])


def test_a_task_whose_error_is_never_retrieved_is_recorded() -> None:
    scheduler, process = make()

    async def main() -> None:
        async def fail() -> None:
            raise ValueError("lost")

        asyncio.get_running_loop().create_task(fail())
        await asyncio.sleep(1)

    process.run_until_complete(main())
    gc.collect()
    assert [str(error.error) for error in scheduler.errors] == ["lost"]


def test_a_killed_process_does_nothing_more() -> None:
    scheduler = Scheduler()
    victim, other = ProcessLoop(scheduler, "victim"), ProcessLoop(scheduler, "other")
    seen: list[str] = []

    async def run(name: str) -> None:
        try:
            while True:
                await asyncio.sleep(1)
                seen.append(name)
        finally:
            seen.append(f"{name} cleans up")
            await asyncio.sleep(1)

    victim.create_task(run("victim"))
    other.create_task(run("other"))
    scheduler.run_for(2.5)
    victim.kill()
    scheduler.run_for(2)
    assert seen == ["victim", "other", "victim", "other", "other", "other"]
    victim.dispose()
    other.dispose()
    gc.collect()
    assert scheduler.errors == []


def test_tasks_that_end_at_the_end_of_a_run_may_start_others() -> None:
    scheduler, process = make()
    tasks, ended = TaskSet(), []

    async def first() -> None:
        try:
            await asyncio.sleep(10)
        finally:
            ended.append("first")
            tasks.spawn(second())

    async def second() -> None:
        ended.append("second")

    process.create_task(first())
    scheduler.run_for(1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        process.dispose()
        gc.collect()
    assert not caught, "RuntimeWarning: coroutine was never awaited"
    assert ended == ["first"]


def test_a_paused_process_catches_up_in_order() -> None:
    scheduler, process = make()
    seen: list[tuple[int, float]] = []
    for number in range(3):
        process.call_later(number, lambda number=number: seen.append((number, scheduler.now_s)))
    scheduler.run_for(0.5)
    process.pause()
    scheduler.run_for(10)
    process.resume()
    scheduler.run_for(1)
    assert seen == [(0, 0.0), (1, 10.5), (2, 10.5)]


def test_a_process_that_an_event_blocks_does_not_go_on_when_a_pause_ends() -> None:
    scheduler, process = make()
    seen: list[float] = []
    process.call_later(1.0, lambda: seen.append(scheduler.now_s))
    process.block()
    process.pause()
    scheduler.run_for(2.0)
    process.resume()
    scheduler.run_for(1.0)
    assert not seen
    process.pause()
    process.unblock()
    scheduler.run_for(1.0)
    assert not seen, "it is paused"
    process.resume()
    scheduler.run_for(1.0)
    assert seen == [4.0]


def test_a_livelock_and_an_endless_task_are_errors() -> None:
    _, process = make()

    async def spin() -> None:
        await asyncio.sleep(0)
        asyncio.get_running_loop().create_task(spin())
        await asyncio.get_running_loop().create_future()

    with pytest.raises(SimulationError, match="livelock"):
        process.run_until_complete(spin())
    process.dispose()

    _, process = make("b")
    with pytest.raises(SimulationError, match="did not end"):
        process.run_until_complete(asyncio.sleep(100), timeout_s=10)
    process.dispose()


def test_the_running_loop_is_the_process_own() -> None:
    scheduler = Scheduler()
    processes = [ProcessLoop(scheduler, name) for name in "abc"]
    seen: list[str] = []
    for process in processes:
        process.call_soon(lambda: seen.append(asyncio.get_running_loop().name))  # type: ignore[attr-defined]
    scheduler.run_for(0)
    assert seen == ["a", "b", "c"]
    with pytest.raises(RuntimeError):
        asyncio.get_running_loop()
