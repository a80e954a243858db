"""Work for threads that has to wait for its turn, so that what it needs is taken only when it begins."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from .files.open_files import is_out_of_files

Job: TypeAlias = Callable[[], "asyncio.Future[None] | None"]
"""Begins the work, on the loop, and gives what ends with it; None when there was nothing to do.

It may raise `OSError` for want of descriptors: then it is tried again.
"""

_RETRY_S = 0.05


class WorkQueue:
    """Begins jobs in their order, `width` of them at a time."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._waiting: deque[Job] = deque()
        self._running = 0
        self._loop: asyncio.AbstractEventLoop | None = None

    def submit(self, job: Job) -> None:
        """Begin it now, or when others have ended. Jobs of a loop that was left are forgotten."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._running = loop, 0
            self._waiting.clear()
        self._waiting.append(job)
        self._go_on()

    def _go_on(self) -> None:
        while self._running < self._width and self._waiting:
            job = self._waiting.popleft()
            try:
                running = job()
            except OSError as error:
                if not is_out_of_files(error):
                    raise
                self._waiting.appendleft(job)
                asyncio.get_running_loop().call_later(_RETRY_S, self._go_on)
                return
            if running is not None:
                self._running += 1
                running.add_done_callback(self._ended)

    def _ended(self, done: asyncio.Future[None]) -> None:
        if done.get_loop() is self._loop:
            self._running -= 1
            self._go_on()
