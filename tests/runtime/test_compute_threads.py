"""Work in threads: owners take turns, the works of one owner keep their order, errors reach who waits.

At the end, what happens when the system can start no more threads (`pids.max`, `ulimit -u`), and later can again.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import subprocess
import sys
import threading
import time
import weakref
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftwerk.chaos.sim.kernel.event_loop import ProcessLoop, Scheduler
from raftwerk.runtime.blocking.daemon_threads import DaemonThreads
from raftwerk.runtime.blocking.thread_pool import ThreadPool
from raftwerk.runtime.compute_threads import LONG_WORK_CPU_S, LONG_WORK_NICENESS, THREADS, RealComputeThreads
from raftwerk.runtime.files.real_disk import RealDisk
from raftwerk.runtime.work_queue import TurnQueue, WorkQueue


@given(st.lists(st.one_of(st.integers(0, 3), st.none()), max_size=60))
def test_an_item_waits_for_one_of_each_other_owner_at_most(steps: list[int | None]) -> None:
    """Numbers add an item of that owner, None takes one."""
    queue: TurnQueue[tuple[int, int]] = TurnQueue()
    waiting: dict[int, list[int]] = {}
    passed: dict[int, list[int]] = {}
    for number, owner in enumerate([*steps, *[None] * len(steps)]):
        if owner is not None:
            queue.add(owner, (owner, number))
            waiting.setdefault(owner, []).append(number)
            passed.setdefault(owner, [])
        elif waiting:
            taken_of, taken = queue.take()
            assert taken == waiting[taken_of].pop(0)
            if not waiting[taken_of]:
                del waiting[taken_of]
            passed[taken_of] = []
            for other in waiting:
                if other != taken_of:
                    assert taken_of not in passed[other]
                    passed[other].append(taken_of)
    assert not waiting


def test_a_queue_of_work_tries_again_with_one_timer_while_there_are_no_descriptors() -> None:
    process = ProcessLoop(Scheduler(), "a")
    queue, begun = WorkQueue(8), []
    tries, is_out = 0, True

    def begin(number: int) -> None:
        nonlocal tries
        tries += 1
        if is_out:
            raise OSError(errno.EMFILE, "too many open files")
        begun.append(number)

    async def main() -> None:
        nonlocal is_out
        for number in range(500):
            queue.submit(partial(begin, number))
        await asyncio.sleep(1.0)
        assert 10 <= tries <= 25
        is_out = False
        await asyncio.sleep(0.1)
        assert begun == list(range(500))
        queue.submit(partial(begin, 500))
        assert begun[-1] == 500, "it waits no more"

    process.run_until_complete(main())


def test_a_queue_of_work_tries_again_at_once_when_work_has_ended_that_may_have_had_the_descriptor() -> None:
    process = ProcessLoop(Scheduler(), "a")
    queue, begun = WorkQueue(8), []

    async def main() -> None:
        first = asyncio.get_running_loop().create_future()

        def begin() -> None:
            if not first.done():
                raise OSError(errno.EMFILE, "too many open files")
            begun.append(asyncio.get_running_loop().time())

        queue.submit(lambda: first)
        queue.submit(begin)
        queue.submit(begin)
        assert not begun
        await asyncio.sleep(0.01)
        first.set_result(None)
        await asyncio.sleep(0.2)

    process.run_until_complete(main())
    assert begun == [0.01, 0.01]


def test_a_neighbours_work_is_done_after_one_of_each_other_owner() -> None:
    async def main() -> list[str]:
        threads, gate, end = RealComputeThreads(), threading.Event(), threading.Event()
        held = threading.Semaphore(0)
        begun: list[str] = []

        def hold(until: threading.Event) -> None:
            held.release()
            until.wait()

        for _ in range(THREADS - 1):
            threads.run_soon(partial(hold, end), "busy")  # one thread is left: works end in the order of their begin
        works: list[asyncio.Future[Any]] = [threads.run_soon(partial(hold, gate), "busy")]
        for _ in range(THREADS):
            held.acquire()
        works += [threads.run_soon(partial(begun.append, f"a{number}"), "a") for number in range(20)]
        works += [threads.run_soon(partial(begun.append, f"b{number}"), "b") for number in range(20)]
        works.append(threads.run_soon(partial(begun.append, "neighbour"), "neighbour"))
        gate.set()
        await asyncio.gather(*works)
        end.set()
        return begun

    begun = asyncio.run(asyncio.wait_for(main(), 20))
    assert len(begun) == 41
    assert begun.index("neighbour") < 2 + THREADS


def test_an_error_reaches_who_waits_and_the_next_work_is_done() -> None:
    async def main() -> int:
        threads = RealComputeThreads()
        with pytest.raises(ZeroDivisionError):
            await threads.run_soon(lambda: 1 // 0)
        return await threads.run_soon(lambda: 7)

    assert asyncio.run(asyncio.wait_for(main(), 20)) == 7


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no priority of their own")
def test_long_work_goes_on_at_a_lower_priority_and_the_next_work_at_the_ordinary_one() -> None:
    ordinary = os.getpriority(os.PRIO_PROCESS, 0)
    lower = min(ordinary + LONG_WORK_NICENESS, 19)
    in_progress = most_in_progress = 0
    lock = threading.Lock()

    def priority() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    def work(until: int) -> int:
        """Work until the thread has that priority. Returns the priority then."""
        nonlocal in_progress, most_in_progress
        with lock:
            in_progress += 1
            most_in_progress = max(most_in_progress, in_progress)
        deadline = time.monotonic() + 20
        while priority() != until and time.monotonic() < deadline:
            pass
        with lock:
            in_progress -= 1
        return priority()

    async def main() -> list[int]:
        threads = RealComputeThreads()
        kinds = [lower, ordinary, lower, lower, lower, ordinary, ordinary]
        found = [await threads.run_soon(partial(work, kind)) for kind in kinds]
        assert found == kinds, "one at a time"
        found = await asyncio.gather(*(threads.run_soon(partial(work, kind)) for kind in kinds))
        assert found == kinds, "all at once"
        return found

    asyncio.run(asyncio.wait_for(main(), 60))
    assert most_in_progress == THREADS


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no priority of their own")
@pytest.mark.parametrize("niceness", [15, 19])
def test_long_works_are_done_in_a_process_of_low_priority_and_without_privileges(niceness: int) -> None:
    program = f"""
import asyncio, os, time
from raftwerk.runtime.compute_threads import THREADS, RealComputeThreads

def long_work():
    end_s = time.thread_time() + 0.2
    while time.thread_time() < end_s:
        pass
    return 1

async def main():
    threads, done = RealComputeThreads(), 0
    for _ in range(THREADS + 2):
        done += await asyncio.wait_for(threads.run_soon(long_work), 15)
    print(done == THREADS + 2, flush=True)

os.nice(max(0, {niceness} - os.nice(0)))
if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no priority of their own")
def test_long_works_are_done_where_the_system_allows_no_change_of_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    def long_work() -> int:
        end_s = time.thread_time() + 5 * LONG_WORK_CPU_S
        while time.thread_time() < end_s:
            pass
        return 1

    async def main() -> None:
        threads = RealComputeThreads()
        for _ in range(THREADS + 2):
            assert await asyncio.wait_for(threads.run_soon(long_work), 15) == 1

    monkeypatch.setattr(os, "setpriority", refuse)
    asyncio.run(main())


def test_threads_end_when_their_owner_is_closed_and_new_ones_do_later_work() -> None:
    def is_computing() -> bool:
        return any(thread.name == "compute" for thread in started if thread.is_alive())

    started: set[threading.Thread] = set()

    async def main() -> None:
        threads, gate = RealComputeThreads(), threading.Event()
        before = set(threading.enumerate())
        works = [threads.run_soon(gate.wait, "busy") for _ in range(THREADS)]
        works += [threads.run_soon(lambda: True, number) for number in range(10)]
        started.update(set(threading.enumerate()) - before)
        assert is_computing()
        threads.close()
        gate.set()
        assert all(await asyncio.gather(*works)), "what they were given before is done"
        for thread in started:
            thread.join(10)
        assert not is_computing()
        assert await threads.run_soon(lambda: 7) == 7
        started.update(set(threading.enumerate()) - before)
        threads.close()
        for thread in started:
            thread.join(10)
        assert not is_computing()

    asyncio.run(asyncio.wait_for(main(), 20))


def test_closed_threads_are_kept_by_nothing() -> None:
    async def main() -> None:
        before, threads = set(threading.enumerate()), RealComputeThreads()
        await threads.run_soon(int)
        running = set(threading.enumerate()) - before
        threads.close()
        for thread in running:
            thread.join(10)
        kept.append(weakref.ref(threads))

    kept: list[weakref.ref[RealComputeThreads]] = []
    asyncio.run(main())
    gc.collect()
    assert kept[0]() is None


def test_a_process_ends_after_work_in_progress_and_leaves_what_waits() -> None:
    program = """
import asyncio, sys, threading, time
from raftwerk.runtime.blocking.daemon_threads import DaemonThreads
from raftwerk.runtime.blocking.thread_pool import ThreadPool
from raftwerk.runtime.compute_threads import THREADS, RealComputeThreads

async def main():
    threads, begun = RealComputeThreads(), threading.Semaphore(0)
    def work():
        begun.release()
        time.sleep(0.2)
        sys.stdout.write("done\\n")
    for _ in range(THREADS + 5):
        threads.run_soon(work)
    for _ in range(THREADS):
        begun.acquire()

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False, text=True, timeout=20)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "done\n" * THREADS


class System:
    """Starts threads, at most `free` of them from now on; None: as many as are asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, free: int | None = 0) -> None:
        self.free = free
        start = threading.Thread.start

        def start_one(thread: threading.Thread) -> None:
            if self.free == 0:
                raise RuntimeError("can't start new thread")
            if self.free is not None:
                self.free -= 1
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", start_one)


def test_work_is_done_again_when_threads_can_be_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[int] = []

    async def main() -> None:
        system, threads = System(monkeypatch), RealComputeThreads()
        for _ in range(THREADS):
            with pytest.raises(RuntimeError, match="can't start"):
                threads.run_soon(lambda: done.append(1))
        system.free = None
        await asyncio.wait_for(threads.run_soon(lambda: done.append(2)), 10)
        assert done == [2], "what was refused is not done later"

    asyncio.run(main())


def test_one_thread_does_the_work_of_all_where_the_system_has_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        System(monkeypatch, free=1)
        threads = RealComputeThreads()
        works = [threads.run_soon(lambda number=number: number) for number in range(10)]  # type: ignore[misc]
        assert await asyncio.wait_for(asyncio.gather(*works), 10) == list(range(10))

    asyncio.run(main())


def test_logins_go_on_when_threads_can_be_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        system, threads = System(monkeypatch), DaemonThreads(2)
        for _ in range(2):
            with pytest.raises(RuntimeError):
                await threads.run(lambda: 1)
        system.free = None
        assert await asyncio.wait_for(threads.run(lambda: 2), 10) == 2

    asyncio.run(main())


@pytest.mark.parametrize("ending", [SystemExit, KeyboardInterrupt, asyncio.CancelledError, StopIteration])
def test_logins_go_on_after_work_that_ended_its_thread(ending: type[BaseException]) -> None:
    def end_the_thread() -> None:
        raise ending

    async def main() -> None:
        threads = DaemonThreads(2)
        for _ in range(2):
            with pytest.raises(RuntimeError, match=ending.__name__):
                await asyncio.wait_for(threads.run(end_the_thread), 10)
        assert await asyncio.wait_for(threads.run(lambda: 2), 10) == 2

    asyncio.run(main())


def test_what_is_to_be_synced_waits_for_a_thread(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def main() -> None:
        system, disk = System(monkeypatch), RealDisk()
        file = disk.open(str(tmp_path / "f"), create=True)
        file.append([b"x"])
        syncs = [disk.fsync_soon(file), disk.fsync_dir_soon(str(tmp_path)), disk.warm_soon(file, 0, 1)]
        for refused in (disk.remove_soon, lambda path: disk.write_atomic_soon(path, b"")):
            with pytest.raises(OSError, match="no thread can be started"):
                refused(str(tmp_path / "g"))
        with pytest.raises(OSError, match="no thread can be started"):
            disk.rename_in_order_soon(str(tmp_path), [])
        system.free = None
        await asyncio.wait_for(asyncio.gather(*syncs, disk.fsync_soon(file)), 10)
        await asyncio.wait_for(disk.write_atomic_soon(str(tmp_path / "g"), b"y"), 10)

    asyncio.run(main())


def test_a_pool_does_what_it_took_once_with_the_threads_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """A descriptor that is closed twice is that of another file the second time."""
    System(monkeypatch, free=1)
    pool, gate = ThreadPool(4, "few"), threading.Event()
    done: list[int] = []
    works: list[Any] = [pool.submit(gate.wait, 10), *(pool.submit(done.append, number) for number in range(3))]
    gate.set()
    for work in works:
        work.result(10)
    assert done == [0, 1, 2]
    pool.shutdown()
