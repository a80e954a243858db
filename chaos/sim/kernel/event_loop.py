"""Virtual time, and an asyncio event loop for each simulated process.

All processes share one `Scheduler`. It runs handles in the order of (time, sequence). When nothing is ready, it moves
the clock to the next timer, so a simulated minute costs only the events in it. Each process has a loop of its own,
which is a facade on the scheduler: `asyncio.get_running_loop()` in node code returns the process's loop. So a crash can
drop everything that the process has scheduled, and a pause can delay it, while the other processes continue.

Nothing here uses real time, threads, `id()` or hash order: the same seed gives the same run.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from .network import SimNetwork
    from .run_observer import RunObserver

T = TypeVar("T")
_copy_context = contextvars.copy_context

_EVENTS_AT_ONE_TIME_MAX = 200_000
_CANCELLED_TO_SWEEP = 2_000


class SimulationError(Exception):
    """The simulated program failed: an unhandled error, a livelock, or no end within its time limit."""


@dataclass(frozen=True, slots=True)
class UnhandledError:
    """An error that a process did not catch."""

    time_s: float
    process: str
    message: str
    error: BaseException | None

    def __str__(self) -> str:
        return f"{self.time_s:.6f} {self.process}: {self.message}: {self.error!r}"


class ScheduledHandle(asyncio.TimerHandle):
    """A callback and its time; ordered by time, then by sequence. See `asyncio.TimerHandle`."""

    __slots__ = ("process", "sequence", "when_s")

    def __init__(  # does not call the base class, which would read debug mode and the stack
        self,
        process: ProcessLoop,
        when_s: float,
        sequence: int,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context | None,
    ) -> None:
        self.process = process
        self.when_s = when_s
        self.sequence = sequence
        self._callback: Callable[..., object] | None = callback
        self._args: tuple[Any, ...] | None = args  # type: ignore[assignment]
        self._context = _copy_context() if context is None else context
        self._cancelled = False

    def cancel(self) -> None:
        """See `asyncio.TimerHandle`."""
        if not self._cancelled:
            self._cancelled = True
            self._callback = None
            self._args = None
            self.process.scheduler.on_cancelled(self)

    def cancelled(self) -> bool:
        """See `asyncio.TimerHandle`."""
        return self._cancelled

    def when(self) -> float:
        """See `asyncio.TimerHandle`."""
        return self.when_s

    def run(self) -> None:
        """Call the callback; an error goes to the process's exception handler."""
        callback, args = self._callback, self._args
        if callback is None or args is None:
            return
        try:
            self._context.run(callback, *args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            context = {"message": f"{_describe(callback)} failed", "exception": error}
            self.process.call_exception_handler(context)

    def __repr__(self) -> str:
        return f"<{_describe(self._callback)} at {self.when_s:.6f}>"

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, ScheduledHandle):
            return NotImplemented
        return (self.when_s, self.sequence) < (other.when_s, other.sequence)


class Scheduler:
    """The queue of all scheduled callbacks, and the virtual clock."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.events_run = 0
        self.errors: list[UnhandledError] = []
        self.stop_at_first_error = False
        self.after_event: Callable[[ProcessLoop], None] | None = None
        self.around_event: Callable[[ProcessLoop, Callable[[], object]], None] | None = None
        """Runs each event, where it is set; events of the network run within others."""
        self.observer: RunObserver | None = None
        self._kernel = KernelLoop(self, "processors")
        self._sequence = 0
        self._events_before_now = 0
        self._ready: deque[ScheduledHandle] = deque()
        self._timers: list[tuple[float, int, ScheduledHandle]] = []
        self._cancelled_timers = 0

    def schedule(
        self,
        process: ProcessLoop,
        when_s: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context | None = None,
    ) -> ScheduledHandle:
        """Run `callback(*args)` in `process` at `when_s`, or now if that time has passed."""
        self._sequence += 1
        handle = ScheduledHandle(process, when_s, self._sequence, callback, args, context)
        if when_s <= self.now_s:
            self._ready.append(handle)
        else:
            heapq.heappush(self._timers, (when_s, self._sequence, handle))
        return handle

    def reschedule(self, handle: ScheduledHandle) -> None:
        """Run a handle that a pause delayed, after what is ready now."""
        self._sequence += 1
        handle.sequence = self._sequence
        self._ready.append(handle)

    def on_cancelled(self, handle: ScheduledHandle) -> None:
        """Remove cancelled timers when there are many: most timers are time-outs that never fire."""
        self._cancelled_timers += 1
        if self._cancelled_timers > _CANCELLED_TO_SWEEP and self._cancelled_timers * 2 > len(self._timers):
            self._timers = [entry for entry in self._timers if not entry[2].cancelled()]
            heapq.heapify(self._timers)
            self._cancelled_timers = 0

    def run_until(self, condition: Callable[[], bool] | None, timeout_s: float) -> bool:
        """Run until the condition holds, which is checked after each event; False after the virtual time-out."""
        deadline_s = self.now_s + timeout_s
        try:
            while condition is None or not condition():
                handle = self._next(deadline_s)
                if handle is None:
                    return False
                process = handle.process
                asyncio._set_running_loop(process.as_asyncio)
                if self.around_event is None:
                    handle.run()
                else:
                    self.around_event(process, handle.run)
                self._ran(process)
        finally:
            asyncio._set_running_loop(None)
        return True

    def run_for(self, duration_s: float) -> None:
        """Run for a virtual duration."""
        self.run_until(None, duration_s)

    def run_now(self, process: ProcessLoop, callback: Callable[[], object]) -> None:
        """Run an event of `process` within an event of the network: a packet that arrives is read at once."""
        asyncio._set_running_loop(process.as_asyncio)
        try:
            if self.around_event is None:
                callback()
            else:
                self.around_event(process, callback)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            process.call_exception_handler({"message": f"{_describe(callback)} failed", "exception": error})
        self._ran(process)

    def _next(self, deadline_s: float) -> ScheduledHandle | None:
        while True:
            ready, timers = self._ready, self._timers
            if ready and not (timers and timers[0][0] <= self.now_s and timers[0][1] < ready[0].sequence):
                handle = ready.popleft()
            elif timers and timers[0][0] <= deadline_s:
                when_s, _, handle = heapq.heappop(timers)
                if handle._cancelled:
                    self._cancelled_timers = max(0, self._cancelled_timers - 1)
                    continue
                if when_s > self.now_s:
                    self.now_s = when_s
                    self._events_before_now = self.events_run
            else:
                self.now_s = max(self.now_s, deadline_s)
                return None
            process = handle.process
            if handle._cancelled or process.dead:
                continue
            if process.paused or process.blocked:
                process.stalled.append(handle)
                continue
            return handle

    def _ran(self, process: ProcessLoop) -> None:
        """Check errors and invariants after an event."""
        self.events_run += 1
        if process.event_s is not None and not process.dead:
            process.block()
            self._kernel.call_later(process.event_s(), process.unblock)
        if self.observer is not None:
            self.observer.after_event(process)
        if self.errors and self.stop_at_first_error:
            raise SimulationError(str(self.errors[0]))
        if self.after_event is not None:
            self.after_event(process)
        if self.events_run - self._events_before_now > _EVENTS_AT_ONE_TIME_MAX:
            raise SimulationError(f"livelock at {self.now_s:.6f} in {process.name}")


class ProcessLoop:
    """The event loop of one simulated process, from its start to its end; a restart gets a new one.

    It has the part of `asyncio.AbstractEventLoop` that nodes use. Threads, signals and subprocesses are missing on
    purpose: node code must not use them.
    """

    def __init__(self, scheduler: Scheduler, name: str, network: SimNetwork | None = None) -> None:
        self.scheduler = scheduler
        self.name = name
        self.network = network
        self.dead = False
        self.paused = False
        self.blocked = False
        self.event_s: Callable[[], float] | None = None
        """Draws how long the next event takes; None: events take no time."""
        self.stalled: list[ScheduledHandle] = []
        self.as_asyncio = cast(asyncio.AbstractEventLoop, self)
        """This loop, for asyncio's types."""
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._tasks_started = 0
        self._exception_handler: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None = None

    # -- faults

    def kill(self) -> None:
        """Run nothing of this process again."""
        self.dead = True
        self.stalled.clear()

    def pause(self) -> None:
        """Delay all callbacks, as SIGSTOP does, while time passes."""
        self.paused = True

    def resume(self) -> None:
        """End a pause: the delayed callbacks run in their order, unless an event of the process blocks it."""
        self.paused = False
        self._go_on()

    def block(self) -> None:
        """Delay all callbacks, as an event does that blocks its process, while time passes."""
        self.blocked = True

    def unblock(self) -> None:
        """The event that blocked the process goes on; the delayed callbacks run afterwards, unless it is paused."""
        self.blocked = False
        self._go_on()

    def _go_on(self) -> None:
        if self.paused or self.blocked:
            return
        stalled, self.stalled = self.stalled, []
        for handle in stalled:
            self.scheduler.reschedule(handle)

    def _close(self, coroutine: Any) -> None:
        """Close the coroutine of a task of this process, which has died."""
        close_quietly(coroutine)

    def dispose(self) -> None:
        """Close the coroutines of a dead process; their `finally` blocks cannot affect living processes."""
        self.dead = True
        was_running = asyncio._get_running_loop()
        asyncio._set_running_loop(self.as_asyncio)  # a `finally` block may ask for it, to start more tasks
        try:
            while self._tasks:
                task = next(iter(self._tasks))
                del self._tasks[task]
                coroutine = task.get_coro()
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                if coroutine is not None:
                    self._close(coroutine)
        finally:
            asyncio._set_running_loop(was_running)

    # -- asyncio: time and callbacks

    def time(self) -> float:
        """See `asyncio.AbstractEventLoop`."""
        return self.scheduler.now_s

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """See `asyncio.AbstractEventLoop`."""
        return self.scheduler.schedule(self, self.scheduler.now_s, callback, args, context)

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """See `asyncio.AbstractEventLoop`."""
        return self.scheduler.schedule(self, self.scheduler.now_s + delay, callback, args, context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """See `asyncio.AbstractEventLoop`."""
        return self.scheduler.schedule(self, when, callback, args, context)

    def create_future(self) -> asyncio.Future[Any]:
        """See `asyncio.AbstractEventLoop`."""
        return asyncio.Future(loop=self.as_asyncio)

    def create_task(
        self,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[T]:
        """See `asyncio.AbstractEventLoop`."""
        self._tasks_started += 1
        number = self._tasks_started
        task = asyncio.Task(coro, loop=self.as_asyncio, name=name or f"{self.name}-task-{number}", context=context)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task

    def run_until_complete(self, future: Coroutine[Any, Any, T], timeout_s: float = 60.0) -> T:
        """Run the whole simulation until this coroutine, in this process, has ended."""
        task = self.create_task(future)
        if not self.scheduler.run_until(task.done, timeout_s):
            raise SimulationError(f"{self.name}: {task.get_name()} did not end within {timeout_s} virtual seconds")
        return task.result()

    def is_running(self) -> bool:
        """See `asyncio.AbstractEventLoop`."""
        return not self.dead

    def is_closed(self) -> bool:
        """See `asyncio.AbstractEventLoop`."""
        return False

    def get_debug(self) -> bool:
        """See `asyncio.AbstractEventLoop`."""
        return False

    def set_exception_handler(
        self, handler: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None
    ) -> None:
        """See `asyncio.AbstractEventLoop`."""
        self._exception_handler = handler

    def get_exception_handler(self) -> Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None:
        """See `asyncio.AbstractEventLoop`."""
        return self._exception_handler

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """See `asyncio.AbstractEventLoop`."""
        return

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Record an error that was not caught, which fails the run. Errors of a dead process are ignored."""
        if self.dead:
            return
        error = UnhandledError(
            self.scheduler.now_s, self.name, str(context.get("message", "")), context.get("exception")
        )
        self.scheduler.errors.append(error)
        if self._exception_handler is not None:
            self._exception_handler(self.as_asyncio, context)

    # -- asyncio: the network

    async def create_connection(
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int | None = None,
        **_options: Any,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """See `asyncio.AbstractEventLoop`."""
        if self.network is None or host is None or port is None:
            raise ValueError("a connection needs a network, a host and a port")
        return await self.network.connect(self, protocol_factory, host, port)

    async def create_server(
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int | None = None,
        **_options: Any,
    ) -> asyncio.AbstractServer:
        """See `asyncio.AbstractEventLoop`."""
        if self.network is None:
            raise ValueError("a server needs a network")
        return self.network.listen(self, protocol_factory, port or 0)


class KernelLoop(ProcessLoop):
    """The loop of the network. An error here is one of the simulator, or a broken invariant: it ends the run."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Raise the error."""
        raise cast(BaseException, context["exception"])


def _describe(callback: object) -> str:
    """The name of a callback, without its address, which differs from run to run."""
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return f"task {owner.get_name()} {getattr(owner.get_coro(), '__qualname__', '')}"
    return str(getattr(callback, "__qualname__", type(callback).__name__))


def close_quietly(coroutine: Any) -> None:
    """Close a coroutine, whatever its `finally` blocks do."""
    for _ in range(100):
        try:
            coroutine.close()
        except RuntimeError:
            continue  # it awaited something on its way out
        except BaseException:
            return
        return
