"""An application in a simulated process of its own, which can crash, hang and start again."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable

from ...chaos.sim.kernel.run_observer import ProcessChange
from ...chaos.sim.kernel.world import Host, World
from .application_loop import ApplicationLoop


class SimApplication:
    """A program of the test, started by `SimCluster.start`. What it keeps in Python's memory outlives a crash."""

    def __init__(
        self,
        world: World,
        host: Host,
        make_loop: Callable[[str], ApplicationLoop],
        program: Callable[[], Awaitable[object]],
    ) -> None:
        self.name = host.name
        """The name of its host, which stands in the story."""
        self.error: BaseException | None = None
        """The error with which it ended by itself, if it did."""
        self.starts = 0
        """How many times it was started."""
        self.was_killed_by_fault = False
        """Whether a drawn fault has killed it and will start it again, if the test does nothing with it before."""
        self._world = world
        self._host = host
        self._make_loop = make_loop
        self._program = program
        self._waiting: list[asyncio.Future[None]] = []
        self._main: asyncio.Task[object] | None = None
        self._loop: ApplicationLoop | None = None

    @property
    def is_running(self) -> bool:
        """Whether its process exists; a paused one does."""
        return self._loop is not None

    @property
    def loop(self) -> ApplicationLoop | None:
        """The event loop of its process, while it runs."""
        return self._loop

    def start(self) -> None:
        """Start the program from its beginning, in a new process. Raises `RuntimeError` while it runs."""
        if self._loop is not None:
            raise RuntimeError(f"{self.name} runs already: kill() or stop() ends it")
        self.starts += 1
        self.error = None
        self.was_killed_by_fault = False
        loop = self._loop = self._make_loop(self.name)
        self._host.process = loop
        self._world.processes.append(loop)
        self._world.note_process(self.name, ProcessChange.START if self.starts == 1 else ProcessChange.RESTART)
        self._main = loop.create_task(self._run(), name="main")
        self._main.add_done_callback(self._on_end)

    async def _run(self) -> object:
        running: object = self._program()
        if not inspect.isawaitable(running):
            raise TypeError(f"start() takes an `async def`; this function has returned {running!r}")
        try:
            return await running
        except SystemExit as end:
            if end.code in (None, 0):
                return None
            raise RuntimeError(f"the program called sys.exit({end.code!r})") from end

    def _on_end(self, main: asyncio.Task[object]) -> None:
        if not main.cancelled():
            self.error = main.exception()
        told = "ended" if self.error is None else f"ENDED with {type(self.error).__name__}: {self.error}"
        self._world.note_process(self.name, ProcessChange.ENDED, " ".join(told.split()))
        self._leave(power_loss=False)

    def kill(self) -> None:
        """End the process at once, as SIGKILL does: nothing of it runs again, no `finally`, no `close()`.

        In a program that `time.sleep` blocks at that time the `finally` blocks around it run, as Python leaves them.
        """
        self.was_killed_by_fault = False
        if self._loop is not None:
            self._world.note_process(self.name, ProcessChange.KILLED)
            self._leave(power_loss=False)

    def pause(self) -> None:
        """Stop the process as SIGSTOP does, until `resume`."""
        self._host.pause()

    def resume(self) -> None:
        """Let a paused process go on."""
        self._host.resume()

    async def stop(self) -> None:
        """Cancel the program's main task, as asyncio does on Ctrl-C, and wait until it has ended."""
        self.was_killed_by_fault = False
        if self._loop is not None and self._main is not None:
            self._loop.call_soon(self._main.cancel)
        await self.ended()

    async def ended(self) -> None:
        """Wait until the process has ended. Raises the error with which the program ended."""
        if self._loop is not None:
            waiting = asyncio.get_running_loop().create_future()
            self._waiting.append(waiting)
            await waiting
        if self.error is not None:
            error, self.error = self.error, None
            raise error

    def _leave(self, *, power_loss: bool) -> None:
        loop, self._loop = self._loop, None
        self._host.process = None
        if loop is not None:
            loop.kill()
            self._world.network.kill_process(loop, power_loss=power_loss)
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            future.get_loop().call_soon(_end, future)


def _end(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
