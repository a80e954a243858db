"""`ComputeThreads` of a real process: few threads, so that little memory is in use at a time."""

from __future__ import annotations

import asyncio
import atexit
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from .work_queue import TurnQueue

T = TypeVar("T")

THREADS = 2
"""Work in progress has this bound, and so has the memory that it takes; what waits holds what it was given only."""
LONG_WORK_CPU_S = 0.03
"""Clients that behave send work of some milliseconds; what inflates to a hundred megabytes takes hundreds of them."""
LONG_WORK_NICENESS = 10
"""Added to the niceness of the event loop: an absolute one might be a higher priority, which takes a privilege."""
_NICENESS_MAX = 19


@dataclass(frozen=True, slots=True)
class _Work:
    """What a thread does since its clock of processor time showed `began_s`."""

    clock: int
    began_s: float

    def cpu_seconds(self) -> float:
        return time.clock_gettime(self.clock) - self.began_s


class RealComputeThreads:
    """Threads of the operating system, started when there is work for them; `close` ends them.

    The process ends after their present work.

    On Linux, work that takes long goes on at a lower priority, so that the event loop keeps its processor. No thread
    gets its priority back without a privilege, so it ends after that work, and another one takes its place.
    """

    def __init__(self) -> None:
        self._waiting: TurnQueue[Callable[[], None]] = TurnQueue()
        self._changed = threading.Condition()
        """Guards all fields. Threads that may go on are notified."""
        self._working_count = 0
        self._threads = 0
        """Those of ordinary priority."""
        self._work: dict[int, _Work] = {}
        """What the threads of ordinary priority do now, by the thread's native id."""
        self._is_watched = False
        self._is_closed = True
        """Whether threads end that have nothing to do."""
        self._is_ending = False

    def run_soon(self, work: Callable[[], T], owner: object = None) -> asyncio.Future[T]:
        """Do `work` in a thread when it is the turn of `owner`, and of this work among those of `owner`.

        Raises `RuntimeError`, and does not do it, when there is no thread and the system can start none.
        """
        future: Future[T] = Future()
        with self._changed:
            if self._is_closed:
                self._is_closed = False
                atexit.register(self._end)
            self._start_threads()
            self._waiting.add(owner, partial(_complete_with, future, work))
            self._changed.notify()
            self._watch(asyncio.get_running_loop())
        return asyncio.wrap_future(future)

    def close(self) -> None:
        """End the threads, once they have done what they were given; work that comes later gets new ones."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            self._unregister_when_done()

    def _unregister_when_done(self) -> None:
        """Let nothing of this object be kept for the end of the process, unless work goes on that it must wait for."""
        if self._can_end() and not self._working_count:
            atexit.unregister(self._end)

    def _start_threads(self) -> None:
        """Called on the loop only, as a thread has the priority of the one that starts it.

        Raises `RuntimeError` when there is none in the end. Those that are missing are started with the next work.
        """
        while self._threads < THREADS:
            try:
                threading.Thread(target=self._run, name="compute", daemon=True).start()
            except RuntimeError:
                if not self._threads:
                    raise
                return
            self._threads += 1

    def _run(self) -> None:
        thread, clock, is_slow = threading.get_native_id(), _own_clock(), False
        while not is_slow:
            with self._changed:
                self._changed.wait_for(lambda: self._can_begin() or self._can_end())
                if not self._can_begin():
                    self._threads -= 1
                    return
                self._working_count += 1
                run = self._waiting.take()
                self._work[thread] = _Work(clock, time.clock_gettime(clock))
            run()
            del run  # it holds what it was given
            with self._changed:
                self._working_count -= 1
                is_slow = self._work.pop(thread, None) is None
                if is_slow or self._is_ending or self._is_closed:
                    self._changed.notify_all()
                self._unregister_when_done()

    def _can_begin(self) -> bool:
        return bool(self._waiting) and self._working_count < THREADS and not self._is_ending

    def _can_end(self) -> bool:
        return self._is_closed and not self._waiting

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        if sys.platform == "linux" and not self._is_watched:  # elsewhere a thread has no priority of its own
            self._is_watched = True
            loop.call_later(LONG_WORK_CPU_S, self._slow_down_long_work, loop)

    def _slow_down_long_work(self, loop: asyncio.AbstractEventLoop) -> None:
        lower = min(os.getpriority(os.PRIO_PROCESS, 0) + LONG_WORK_NICENESS, _NICENESS_MAX)
        with self._changed:
            self._is_watched = False
            for thread in [thread for thread, work in self._work.items() if work.cpu_seconds() > LONG_WORK_CPU_S]:
                with suppress(PermissionError):  # a sandbox allows none: the work goes on as it is
                    os.setpriority(os.PRIO_PROCESS, thread, lower)
                    del self._work[thread]
                    self._threads -= 1
            with suppress(RuntimeError):  # what waits is looked at again
                self._start_threads()
            if self._work or self._waiting:
                self._watch(loop)

    def _end(self) -> None:
        """Wait for work in progress: a thread that ends within a library's code may abort the process."""
        with self._changed:
            self._is_ending = True
            self._changed.wait_for(lambda: not self._working_count)


def _own_clock() -> int:
    """The clock of this thread's processor time, where there is one."""
    if sys.platform == "linux":
        return time.pthread_getcpuclockid(threading.get_ident())
    return time.CLOCK_MONOTONIC


def _complete_with(future: Future[T], work: Callable[[], T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = work()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)
