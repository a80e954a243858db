"""Threads of the simulator: work is done on the loop, at a later moment that the seed decides."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import TypeVar

from ....runtime.ports import complete_with

T = TypeVar("T")

_THREADS = 2
_DURATION_S = (0.0001, 0.02)


class SimComputeThreads:
    """The `ComputeThreads` of one process. The work itself takes no virtual time, its end comes later."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._free_at = [0.0] * _THREADS

    def run_soon(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Do `work` when one of the threads has been free for as long as it takes."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        thread = self._free_at.index(min(self._free_at))
        ends_at = max(loop.time(), self._free_at[thread]) + self._rng.uniform(*_DURATION_S)
        self._free_at[thread] = ends_at
        loop.call_at(ends_at, complete_with, future, work)
        return future
