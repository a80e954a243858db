"""How much work of clients is started in one iteration of the event loop, and who starts it.

Work is counted in units; one unit is about as much as a Produce request with one record. When the units of an iteration
are used up, connections with unread requests and long requests that are answered in steps wait in one queue. Each
iteration serves the queue from its head, and each that has more to do goes to its end. So timers, the quorum and
heartbeats have their turn in every iteration, and a connection waits for one share of each other connection at most.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Generic, NamedTuple, TypeVar

from ...runtime.incremental_work import ITEMS_PER_STEP, Work

T = TypeVar("T")

UNITS_PER_ITERATION = 256
"""Of all connections and long requests together; about ten milliseconds of processor time."""
MANY_WAITING = 4
UNITS_WITH_MANY_WAITING = 64
"""Of an iteration that begins with `MANY_WAITING` or more in the queue. Who sends little waits for the end of the
iteration, often several times for one record (produce, fetch, answer), so iterations are short while many send much.
They are not always that short, since what is appended in one iteration is replicated together."""
UNITS_PER_SHARE = 16
"""Of one connection or long request while others wait."""
UNITS_ALONE = 192
"""Of an iteration, those that one connection may use while nobody waits; the rest is there for who comes then."""
UNITS_PER_STEP = 16
"""Of work that is done in steps."""
ITEMS_PER_UNIT = ITEMS_PER_STEP // UNITS_PER_STEP
"""Of cheap items that are not handled in steps."""
UNITS_PER_WAKE_UP = 2
"""Of a connection that begins to read again in the middle of a large request."""
BYTES_PER_UNIT = 16 * 1024
READ_BYTES_PER_UNIT = 64 * 1024
"""Bytes of a large request that are read before all of it is there."""
FREED_BYTES_PER_UNIT = 512 * 1024
"""Bytes of a large request that are given back to the system."""


class Finished(NamedTuple, Generic[T]):
    """Work that is done, and its result."""

    result: T


class LoopBudget:
    """Shared by the servers of one role of a node. It is used on one event loop."""

    __slots__ = ("_is_scheduled", "_waiting", "iteration", "units_left")

    def __init__(self) -> None:
        self.iteration = 0
        """Grows whenever the budget is full again."""
        self.units_left = UNITS_PER_ITERATION
        """Of this iteration. Each share is taken from it; the last one may make it negative."""
        self._waiting: deque[Callable[[], object]] = deque()
        self._is_scheduled = False

    def begin_share(self) -> int:
        """Somebody begins to take units from `units_left`. Returns the iteration, in which the share must be used."""
        if not self._is_scheduled:
            self._schedule()
        return self.iteration

    def granted(self, share_left: int) -> int:
        """How many units may be taken now by one that has so many left of its share."""
        units = share_left
        if not self._waiting:
            units = max(units, self.units_left - (UNITS_PER_ITERATION - UNITS_ALONE))
        return max(0, min(units, self.units_left))

    def wait(self, resume: Callable[[], object]) -> None:
        """Call `resume` once in a later iteration, after those that wait already."""
        self._waiting.append(resume)
        if not self._is_scheduled:
            self._schedule()

    def begin(self, work: Work[T]) -> Finished[T] | asyncio.Future[T]:
        """Do a share of the work now, and the rest as `run` does. An error in the first share is raised."""
        return self._do_share(work) or self.run(work)

    def run(self, work: Work[T]) -> asyncio.Future[T]:
        """Do work whose steps ask for nothing, some steps in each share. Cancelling the future ends it."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.wait(partial(self._go_on, work, future))
        return future

    def _go_on(self, work: Work[T], future: asyncio.Future[T]) -> None:
        """Do the next share.

        A closure that refers to itself would do as well, but would be a reference cycle: what a request was decoded to
        would stay in memory until the garbage collector finds it.
        """
        if future.done():
            work.close()
            return
        try:
            finished = self._do_share(work)
        except Exception as error:
            future.set_exception(error)
            del work, future  # the error's traceback has this frame, and the future has the error
            return
        if finished is None:
            self.wait(partial(self._go_on, work, future))
        else:
            future.set_result(finished.result)

    def _do_share(self, work: Work[T]) -> Finished[T] | None:
        self.begin_share()
        try:
            for _ in range(UNITS_PER_SHARE // UNITS_PER_STEP):
                next(work)
                self.units_left -= UNITS_PER_STEP
                if self.units_left <= 0:
                    break
        except StopIteration as end:
            return Finished(end.value)
        return None

    def _schedule(self) -> None:
        self._is_scheduled = True
        asyncio.get_running_loop().call_soon(self._begin_iteration)

    def _begin_iteration(self) -> None:
        self._is_scheduled = False
        self.iteration += 1
        waiting = self._waiting
        self.units_left = UNITS_PER_ITERATION if len(waiting) < MANY_WAITING else UNITS_WITH_MANY_WAITING
        for _ in range(len(waiting)):
            if self.units_left <= 0:
                break
            waiting.popleft()()
        if waiting and not self._is_scheduled:
            self._schedule()
