"""Threads for calls that may wait for ever, such as for another server. They do not hold up the end of the process."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def in_daemon_thread(work: Callable[[], T]) -> asyncio.Future[T]:
    """The result of a function that may wait for ever. Unlike `asyncio.to_thread`, it does not hold up Ctrl-C.

    Raises `RuntimeError` when the system can start no thread. The future has one where the function ends its thread, as
    by `SystemExit`.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(set_outcome: Callable[[Any], None], outcome: object) -> None:
        if not future.done():
            set_outcome(outcome)

    def run() -> None:
        try:
            outcome: tuple[Callable[[Any], None], object] = (future.set_result, work())
        except BaseException as error:
            outcome = (future.set_exception, _for_a_future(error))
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(settle, *outcome)

    threading.Thread(target=run, daemon=True).start()
    return future


def _for_a_future(error: BaseException) -> Exception:
    """The error, or a `RuntimeError` in its place.

    No future takes `StopIteration`. What is no `Exception`, such as `SystemExit`, would end more than who awaits it.
    """
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    return RuntimeError(type(error).__name__).with_traceback(error.__traceback__)


class DaemonThreads:
    """At most `limit` such threads at a time. Work of which nobody awaits the result any more still counts."""

    def __init__(self, limit: int) -> None:
        self._free = asyncio.Semaphore(limit)

    async def run(self, work: Callable[[], T]) -> T:
        """Do `work` in a thread when one is free. Raises what `work` raises, and `RuntimeError` when none can start."""
        await self._free.acquire()
        try:
            future = in_daemon_thread(work)
        except RuntimeError:
            self._free.release()
            raise
        future.add_done_callback(self._on_done)
        return await asyncio.shield(future)

    def _on_done(self, future: asyncio.Future[Any]) -> None:
        self._free.release()
        if not future.cancelled():
            future.exception()  # somebody who is gone does not retrieve it
