"""The event loop of a simulated process that runs an application: asyncio's loop, as far as clients of Kafka use it."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import socket
import warnings
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

from ...chaos.sim.kernel.event_loop import ProcessLoop, Scheduler, close_quietly
from ...chaos.sim.kernel.network import SimNetwork

T = TypeVar("T")
_THREAD_S = 0.0001
_TICK_S = 1e-6
_TASKS_SHOWN = 8
_WITHOUT = {"subprocess_exec": "a process", "subprocess_shell": "a process"}
"""What methods of loops are for which there is nothing in the simulator, in the words of `escapes`."""


class _OrderedFuture(asyncio.Future[Any]):
    """A future whose place in a set follows from its number, and not from its address, which differs between runs."""

    number = 0

    def __hash__(self) -> int:
        return self.number


class _OrderedTask(asyncio.Task[Any]):
    """A task whose place in a set follows from its number."""

    number = 0

    def __hash__(self) -> int:
        return self.number


class ApplicationLoop(ProcessLoop):
    """The loop of one process of an application.

    Functions for other threads run in the loop's thread, one at a time. Signal handlers are taken and never called.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        name: str,
        network: SimNetwork,
        on_uncaught: Callable[[str, str], None],
        refusal: Callable[[str], Exception],
    ) -> None:
        """`on_uncaught(process, text)` hears of errors that nobody caught, which asyncio would log.

        `refusal(what)` makes the error for what would leave the simulation.
        """
        super().__init__(scheduler, name, network)
        self.slept_s: float | None = None
        """How long a function for another thread has slept; None while none runs."""
        self._on_uncaught = on_uncaught
        self._refusal = refusal
        self._numbers = 0

    # -- asyncio

    def create_future(self) -> asyncio.Future[Any]:
        """See `asyncio.AbstractEventLoop`."""
        future = _OrderedFuture(loop=self.as_asyncio)
        self._numbers += 1
        future.number = self._numbers
        return future

    def create_task(
        self,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
        **_: Any,
    ) -> asyncio.Task[T]:
        """See `asyncio.AbstractEventLoop`."""
        self._numbers += 1
        number = self._numbers
        _OrderedTask.number = number  # its constructor puts it into a set
        task = _OrderedTask(coro, loop=self.as_asyncio, name=name or f"Task-{number}", context=context)
        task.number = number
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """See `asyncio.AbstractEventLoop`."""
        return self.call_at(self.scheduler.now_s + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """See `asyncio.AbstractEventLoop`. A timer takes a little while at least, as clocks have ticks.

        Without that, a task that sleeps for the rest of a time-out, when the rest is less than the clock can tell
        apart, would never see the time-out end.
        """
        return super().call_at(max(when, self.scheduler.now_s + _TICK_S), callback, *args, context=context)

    def call_soon_threadsafe(
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """See `asyncio.AbstractEventLoop`."""
        return self.call_soon(callback, *args, context=context)

    def run_in_executor(self, _executor: object, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        """Run the function in this thread a little later; what it sleeps delays its result and blocks nobody."""
        future: asyncio.Future[Any] = self.create_future()

        def run() -> None:
            self.slept_s = 0.0
            try:
                result, error = func(*args), None
            except BaseException as raised:
                result, error = None, raised
            took_s, self.slept_s = self.slept_s, None
            self.call_later(took_s, finish, result, error)

        def finish(result: Any, error: BaseException | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        self.call_later(_THREAD_S, run)
        return future

    async def getaddrinfo(self, host: str, port: int, **_: Any) -> list[tuple[Any, ...]]:
        """See `asyncio.AbstractEventLoop`; a simulated host's address is its name."""
        if self.network is None or not self.network.has_host(host):
            raise socket.gaierror(socket.EAI_NONAME, f"there is no simulated host {host!r}")
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))]

    async def create_connection(
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int | None = None,
        **options: Any,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """See `asyncio.AbstractEventLoop`. Raises `NotImplementedError` for TLS, which the simulator has not."""
        if options.get("ssl"):
            raise NotImplementedError("a simulated cluster has no TLS: use security_protocol PLAINTEXT")
        return await super().create_connection(protocol_factory, host, port)

    def __getattr__(self, name: str) -> Callable[..., object]:
        """Refuse a method of asyncio's loops that this one has not."""
        if name.startswith("_") or not hasattr(asyncio.AbstractEventLoop, name):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

        def refuse(*_: object, **__: object) -> object:
            raise self._refusal(_WITHOUT.get(name, f"loop.{name}()"))

        return refuse

    def add_signal_handler(self, _signal: int, _callback: Callable[..., object], *_args: Any) -> None:
        """See `asyncio.AbstractEventLoop`; the handler is never called."""

    def remove_signal_handler(self, _signal: int) -> bool:
        """See `asyncio.AbstractEventLoop`."""
        return False

    async def shutdown_asyncgens(self) -> None:
        """See `asyncio.AbstractEventLoop`."""

    async def shutdown_default_executor(self, _timeout: float | None = None) -> None:
        """See `asyncio.AbstractEventLoop`."""

    def set_debug(self, _enabled: bool) -> None:
        """See `asyncio.AbstractEventLoop`; there is no debug mode."""

    def get_task_factory(self) -> None:
        """See `asyncio.AbstractEventLoop`."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Tell of an error that nobody caught; the process goes on, as with asyncio."""
        if self.dead:
            return
        error = context.get("exception")
        self._on_uncaught(self.name, f"{context.get('message', 'error')}: {error!r}")
        if self._exception_handler is not None:
            self._exception_handler(self.as_asyncio, context)

    def _close(self, coroutine: Any) -> None:
        """Close the innermost coroutine first: one whose `finally` awaits would outlive those that await it."""
        waiting = []
        while inspect.iscoroutine(coroutine):
            waiting.append(coroutine)
            coroutine = coroutine.cr_await
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of coroutines that `finally` blocks make
            for each in reversed(waiting):
                close_quietly(each)

    # -- for reports

    def waiting_tasks(self) -> list[str]:
        """Where tasks wait that have not ended: the innermost line of each, which is not asyncio's."""
        lines = [f"{task.get_name()} {where}" for task in self._tasks if (where := _place_of(task)) is not None]
        more = len(lines) - _TASKS_SHOWN
        return lines[:_TASKS_SHOWN] + ([f"and {more} more"] if more > 0 else [])


def _place_of(task: asyncio.Task[Any]) -> str | None:
    place = None
    coroutine: Any = task.get_coro()
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None)
        if frame is None:
            break
        if "/asyncio/" not in frame.f_code.co_filename or place is None:
            place = f"waits at {frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
        coroutine = getattr(coroutine, "cr_await", None)
    return place
