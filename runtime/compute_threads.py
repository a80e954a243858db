"""`ComputeThreads` of a real process: few threads, so that little memory is in use at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

THREADS = 2
"""Work in progress has this bound, and so has the memory that it takes; what waits holds what it was given only."""


class RealComputeThreads:
    """Threads of the operating system, started when there is work for them."""

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None

    def run_soon(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Do `work` in a thread; works begin in the order in which they came."""
        if self._executor is None:
            self._executor = ThreadPoolExecutor(THREADS, thread_name_prefix="compute")
        return asyncio.get_running_loop().run_in_executor(self._executor, work)
