"""`ComputeThreads` of a real process: few threads, so that little memory is in use at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from threading import Lock
from typing import TypeVar

from .work_queue import TurnQueue

T = TypeVar("T")

THREADS = 2
"""Work in progress has this bound, and so has the memory that it takes; what waits holds what it was given only."""


class RealComputeThreads:
    """Threads of the operating system, started when there is work for them."""

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None
        self._waiting: TurnQueue[Callable[[], None]] = TurnQueue()
        self._lock = Lock()

    def run_soon(self, work: Callable[[], T], owner: object = None) -> asyncio.Future[T]:
        """Do `work` in a thread when it is the turn of `owner`, and of this work among those of `owner`."""
        if self._executor is None:
            self._executor = ThreadPoolExecutor(THREADS, thread_name_prefix="compute")
        future: Future[T] = Future()
        with self._lock:
            self._waiting.add(owner, partial(_complete_with, future, work))
        self._executor.submit(self._run_next)
        return asyncio.wrap_future(future)

    def _run_next(self) -> None:
        with self._lock:
            run = self._waiting.take()
        run()


def _complete_with(future: Future[T], work: Callable[[], T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = work()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)
