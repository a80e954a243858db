"""Threads of the simulator: work is done on the loop, at a later moment that the seed decides."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from ....runtime.ports import complete_with
from ....runtime.work_queue import TurnQueue

T = TypeVar("T")

_THREADS = 2
_DURATION_S = (0.0001, 0.02)


class SimComputeThreads:
    """The `ComputeThreads` of one process. The work itself takes no virtual time, its end comes later."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._free_at = [0.0] * _THREADS
        self._waiting: TurnQueue[Callable[[], None]] = TurnQueue()

    def run_soon(self, work: Callable[[], T], owner: object = None) -> asyncio.Future[T]:
        """Do the work of the owner whose turn it is when one of the threads has been free for as long as it takes."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        thread = self._free_at.index(min(self._free_at))
        ends_at = max(loop.time(), self._free_at[thread]) + self._rng.uniform(*_DURATION_S)
        self._free_at[thread] = ends_at
        self._waiting.add(owner, partial(complete_with, future, work))
        loop.call_at(ends_at, self._run_next)
        return future

    def close(self) -> None:
        """Nothing: there are no threads."""

    def _run_next(self) -> None:
        self._waiting.take()()
