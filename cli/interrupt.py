"""Ctrl-C in a command that runs on an event loop."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")


class Interrupt:
    """Takes signals SIGINT that come at once for one: `timeout` sends two, to the command and to its process group.

    The first cancels what runs. One that comes when half a second has passed raises KeyboardInterrupt, as usual, and so
    does the first while nothing runs; with `until_it_runs` it waits for what is about to run.
    """

    AT_ONCE_S = 0.5

    def __init__(self, *, until_it_runs: bool = False) -> None:
        self._came_at: float | None = None
        self._before: Any = None
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._on_signal)
        self._cancel: Callable[[], object] = _wait if until_it_runs else _interrupt

    @property
    def has_come(self) -> bool:
        """Whether the signal has come."""
        return self._came_at is not None

    async def cancels(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The result of the coroutine; CancelledError when the signal came. Afterwards it raises KeyboardInterrupt."""
        task, loop = asyncio.ensure_future(coroutine), asyncio.get_running_loop()
        self._cancel = lambda: loop.call_soon_threadsafe(task.cancel)
        if self.has_come:
            task.cancel()
        try:
            return await task
        finally:
            self._cancel = _interrupt

    def restore(self) -> None:
        """Take the former handler back, unless the signal came: it may be on its way for the second time."""
        if self._before is not None and self._came_at is None:
            signal.signal(signal.SIGINT, self._before)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._came_at is not None and now - self._came_at < self.AT_ONCE_S:
            return
        is_first, self._came_at = self._came_at is None, now
        if not is_first:
            raise KeyboardInterrupt
        self._cancel()


def _wait() -> None:
    pass


def _interrupt() -> None:
    raise KeyboardInterrupt
