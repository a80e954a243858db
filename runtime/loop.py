"""The event loop of a real process: uvloop, signals, unhandled errors, background tasks."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import resource
import signal
import socket
import sys
from collections.abc import Coroutine
from typing import Any, NoReturn, Protocol, TypeVar

import uvloop

from .clock import SystemClock
from .compute_threads import RealComputeThreads
from .files.real_disk import RealDisk
from .invariants import InvariantViolation
from .log_lines import flush_logs
from .ports import Runtime

T = TypeVar("T")

EXIT_BROKEN_INVARIANT = 70

_logger = logging.getLogger(__name__)


def real_runtime(seed: int | None = None) -> Runtime:
    """Real files, the machine's clock, and randomness from the operating system or from `seed`."""
    return Runtime(RealDisk(), SystemClock(), random.Random(seed), RealComputeThreads())


def raise_file_limit() -> None:
    """Raise the limit of open files as far as the system allows: every partition and every client needs some."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (ValueError, OSError) as error:
        _logger.debug("the limit of open files stays at %d: %s", soft, error)


def files_left_after(fileno: int) -> int:
    """How many more files the process can open at most; `sys.maxsize` where that is not known.

    The system gives every file the lowest free descriptor, so that of the newest connection, `fileno`, shows it.
    """
    soft_limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return sys.maxsize if soft_limit < 0 else soft_limit - 1 - fileno


def host_to_listen_on(host: str | None) -> str | None:
    """The host to give to the loop: None, which is every address, for an empty one and for `::`.

    By itself the loop takes only IPv6 at `::`. In Java, from where our settings are known, it takes IPv4 there, too.
    """
    return None if host in ("", "::") else host


class ListeningSocket(Protocol):
    """What is needed of a listening socket, which may be a simulated one."""

    def setsockopt(self, level: int, option: int, value: int, /) -> None:
        """Set an option. See `socket.socket.setsockopt`."""


def set_buffers(listening: ListeningSocket, send_bytes: int, receive_bytes: int) -> None:
    """Limit the buffers that the system has for each accepted connection; -1 leaves one to the system."""
    for option, size_bytes in ((socket.SO_SNDBUF, send_bytes), (socket.SO_RCVBUF, receive_bytes)):
        if size_bytes >= 0:
            listening.setsockopt(socket.SOL_SOCKET, option, size_bytes)


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` to its end on a new uvloop. A broken invariant ends the process at once."""
    raise_file_limit()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.get_loop().set_exception_handler(_on_unhandled)
        try:
            return runner.run(main)
        except InvariantViolation as violation:
            _die(violation)


def stop_event_on_signals(*signals: signal.Signals) -> asyncio.Event:
    """An event that the first of `signals` (SIGINT and SIGTERM by default) sets.

    A SIGINT after that ends the process at once. Other signals have no further effect: they may be sent
    twice to nodes that are stopped together.
    """
    loop = asyncio.get_running_loop()
    event = asyncio.Event()

    def on_signal(received: signal.Signals) -> None:
        if event.is_set() and received == signal.SIGINT:
            _end_at_once(128 + received)
        event.set()

    for each in signals or (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, on_signal, each)
    return event


class TaskSet:
    """Background tasks of one owner, which keeps them until they end and cancels them together."""

    def __init__(self) -> None:
        self._tasks: dict[int, asyncio.Task[Any]] = {}
        self._started = 0

    def __len__(self) -> int:
        return len(self._tasks)

    def spawn(self, coroutine: Coroutine[Any, Any, T], name: str | None = None) -> asyncio.Task[T]:
        """Start a task. An error that ends it goes to the loop's exception handler."""
        loop = asyncio.get_running_loop()
        task = loop.create_task(coroutine, name=name)
        self._started += 1
        number = self._started
        self._tasks[number] = task

        def forget(done: asyncio.Task[T]) -> None:
            self._tasks.pop(number, None)
            if not done.cancelled() and (error := done.exception()) is not None:
                context = {"message": f"task {done.get_name()} failed", "exception": error, "task": done}
                loop.call_exception_handler(context)

        task.add_done_callback(forget)
        return task

    def cancel_soon(self) -> None:
        """Cancel every task without waiting for its end."""
        for task in self._tasks.values():
            task.cancel()

    async def cancel_all(self) -> None:
        """Cancel every task and wait until all have ended."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        for task in tasks:
            try:
                await asyncio.shield(task)
            except asyncio.CancelledError:
                if not task.done():
                    raise
            except Exception:
                _logger.debug("task %s failed while it was cancelled", task.get_name(), exc_info=True)


def _on_unhandled(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    error = context.get("exception")
    _logger.error("%s", context.get("message", "unhandled error"), exc_info=error)
    if isinstance(error, InvariantViolation):
        _die(error)


def _die(violation: InvariantViolation) -> NoReturn:
    _end_at_once(EXIT_BROKEN_INVARIANT, f"FATAL broken invariant: {violation}\n")


def _end_at_once(code: int, last_words: str = "") -> NoReturn:
    """End the process, also where nothing can be written to stderr."""
    try:
        flush_logs()
        sys.stderr.write(last_words)
        sys.stderr.flush()
    finally:
        os._exit(code)
