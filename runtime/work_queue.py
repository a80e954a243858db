"""Queues of work for threads: one that limits how much is done at a time, and one in which owners take turns."""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeAlias, TypeVar

from .files.open_files import is_out_of_files

T = TypeVar("T")
Job: TypeAlias = Callable[[], "asyncio.Future[None] | None"]
"""Begins the work, on the loop, and returns a future that ends with it; None when there was nothing to do.

An `OSError` because there are no more descriptors or threads makes the queue try it again later.
"""

_RETRY_S = 0.05


class WorkQueue:
    """Begins jobs in their order, `width` of them at a time. A job takes what it needs, such as a descriptor, then."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._waiting: deque[Job] = deque()
        self._running = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._retry: asyncio.TimerHandle | None = None
        """The next try, while there are no descriptors or threads for the job that is first."""

    def submit(self, job: Job) -> None:
        """Begin a job now, or when others have ended. Jobs of a former event loop are dropped."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._running = loop, 0
            self._waiting.clear()
            self._forget_retry()
        self._waiting.append(job)
        if self._retry is None:
            self._begin_jobs()

    def _forget_retry(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    def _begin_jobs(self) -> None:
        self._forget_retry()
        while self._running < self._width and self._waiting:
            job = self._waiting.popleft()
            try:
                running = job()
            except OSError as error:
                if not is_out_of_files(error) and error.errno != errno.EAGAIN:
                    raise
                self._waiting.appendleft(job)
                self._retry = asyncio.get_running_loop().call_later(_RETRY_S, self._begin_jobs)
                return
            if running is not None:
                self._running += 1
                running.add_done_callback(self._on_ended)

    def _on_ended(self, done: asyncio.Future[None]) -> None:
        if done.get_loop() is self._loop:
            self._running -= 1
            self._begin_jobs()


class TurnQueue(Generic[T]):
    """Items of owners that take turns, one item a turn. The items of one owner leave in their order."""

    def __init__(self) -> None:
        self._by_owner: dict[object, deque[T]] = {}
        self._turns: deque[object] = deque()
        """The owners that have items, each of them once."""

    def __bool__(self) -> bool:
        """Whether an item waits."""
        return bool(self._turns)

    def add(self, owner: object, item: T) -> None:
        """Add an item. An owner that had none waits for one turn of each other owner at most."""
        items = self._by_owner.get(owner)
        if items is None:
            items = self._by_owner[owner] = deque()
            self._turns.append(owner)
        items.append(item)

    def take(self) -> T:
        """Remove the next item. There must be one."""
        owner = self._turns.popleft()
        items = self._by_owner[owner]
        item = items.popleft()
        if items:
            self._turns.append(owner)
        else:
            del self._by_owner[owner]
        return item
