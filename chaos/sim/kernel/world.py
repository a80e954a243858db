"""A simulated world: hosts with disks and clocks, a network between them, one seed and one trace.

A host runs at most one process at a time. A process gets a loop of its own and a `Runtime` on the host's disk and
clock. Killing the process drops its loop; a loss of power also loses what the disk had not synced.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine
from typing import Any

from ....runtime.invariants import invariant
from ....runtime.ports import Runtime
from ..disk.sim_disk import SimDisk
from .clock import SimClock
from .compute_threads import SimComputeThreads
from .event_loop import ProcessLoop, Scheduler, UnhandledError
from .network import NetworkConfig, SimNetwork
from .run_observer import ProcessChange, RunObserver
from .trace import LINES_KEPT, Trace

_SYNC_LATENCY_S = (0.0002, 0.002)
_DESCRIPTORS_MAX = (2, 8, 30, 1 << 60)
"""How many files of a host may have a descriptor at a time; one of these is drawn for each host."""

Program = Callable[[Runtime], Coroutine[Any, Any, None]]


class Host:
    """A machine, whose disk and clock outlive its processes."""

    def __init__(self, world: World, name: str) -> None:
        self.name = name
        self.disk = SimDisk(world.rng_for(f"disk {name}"), sync_latency_s=_SYNC_LATENCY_S)
        self.disk.descriptors_max = world.rng_for(f"descriptors {name}").choice(_DESCRIPTORS_MAX)
        self.clock = SimClock(lambda: world.scheduler.now_s)
        self.process: ProcessLoop | None = None
        self.starts = 0
        self._world = world
        self._event_s: Callable[[], float] | None = None

    @property
    def running(self) -> bool:
        """Whether it has a process."""
        return self.process is not None

    def start(self, program: Program) -> ProcessLoop:
        """Turn the power on if it is off, and start a process whose main coroutine is `program(runtime)`."""
        invariant(self.process is None, "a host runs one process at a time")
        world = self._world
        self.starts += 1
        self.disk.interruption = None
        world.network.set_power(self.name, True)
        process = ProcessLoop(world.scheduler, self.name, world.network)
        name = f"{self.name} {self.starts}"
        threads = SimComputeThreads(world.rng_for(f"threads {name}"))
        secret_bytes = world.rng_for(f"secrets {name}").randbytes
        runtime = Runtime(self.disk, self.clock, world.rng_for(f"process {name}"), threads, secret_bytes, lambda: 0.0)
        self.process = process
        process.event_s = self._event_s
        world.processes.append(process)
        world.note_process(self.name, ProcessChange.START if self.starts == 1 else ProcessChange.RESTART)
        process.call_soon(lambda: process.create_task(self._run(program, runtime), name=f"{self.name} main"))
        return process

    async def _run(self, program: Program, runtime: Runtime) -> None:
        try:
            await program(runtime)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            context = {"message": "the process's main coroutine failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)

    def crash(self, *, power_loss: bool) -> None:
        """Kill the process. With `power_loss` the host is off until `start`, and its disk loses unsynced bytes."""
        process, self.process = self.process, None
        if process is None:
            return
        self._world.note_process(self.name, ProcessChange.POWER_LOSS if power_loss else ProcessChange.KILLED)
        process.kill()
        self._world.network.kill_process(process, power_loss=power_loss)
        if power_loss:
            self._world.network.set_power(self.name, False)
        self.disk.crash(power_loss=power_loss)

    def take_time(self, event_s: Callable[[], float] | None) -> None:
        """Let each event of its processes take so long, as on a slow processor; None: no time."""
        self._event_s = event_s
        if self.process is not None:
            self.process.event_s = event_s

    def pause(self) -> None:
        """SIGSTOP."""
        if self.process is not None and not self.process.paused:
            self._world.note_process(self.name, ProcessChange.PAUSED)
            self.process.pause()

    def resume(self) -> None:
        """SIGCONT."""
        if self.process is not None and self.process.paused:
            self._world.note_process(self.name, ProcessChange.RESUMED)
            self.process.resume()


class World:
    """The hosts, the network and the trace of one run. A context manager: it captures the log and ends processes."""

    def __init__(self, seed: int, network: NetworkConfig | None = None, lines_kept: int = LINES_KEPT) -> None:
        self.seed = seed
        self.scheduler = Scheduler()
        self.trace = Trace(lambda: self.scheduler.now_s, lines_kept)
        self.network = SimNetwork(self.scheduler, self.rng_for("network"), self.trace, network)
        self.hosts: dict[str, Host] = {}
        self.processes: list[ProcessLoop] = []
        self.observer: RunObserver | None = None
        self.log = _LogToTimeline(self)

    def __enter__(self) -> World:
        self.log.attach()
        return self

    def __exit__(self, *_: object) -> None:
        self.log.detach()
        self.observe(None)  # what the `finally` blocks of dead processes do is no part of the run
        for process in self.processes:
            process.dispose()

    def observe(self, observer: RunObserver | None) -> None:
        """Tell this observer of all that happens from now on, until the world is left; None: nobody."""
        self.observer = self.scheduler.observer = self.network.observer = observer

    def note_process(self, host: str, change: ProcessChange, text: str = "") -> None:
        """Put a change of a host's process into the trace, in the words `text` or its own, and tell the observer."""
        self.trace.note(host, text or change.value)
        if self.observer is not None:
            self.observer.on_process(host, change, text or change.value.lower())

    def show_line(self, where: str, text: str) -> None:
        """Show a line that a process has logged in the timeline, and tell the observer."""
        self.trace.show(where, text)
        if self.observer is not None:
            self.observer.on_log_line(where, text)

    def rng_for(self, purpose: str) -> random.Random:
        """A random generator for one purpose, so that its draws do not change those for another purpose."""
        return random.Random(f"{self.seed} {purpose}")

    def add_host(self, name: str) -> Host:
        """Add a host; its name is its address."""
        host = self.hosts[name] = Host(self, name)
        self.network.add_host(name)
        return host

    @property
    def now_s(self) -> float:
        """The virtual time since the run began."""
        return self.scheduler.now_s

    @property
    def errors(self) -> list[UnhandledError]:
        """Errors that were not caught, and errors that were logged with an exception."""
        return self.scheduler.errors


class _LogToTimeline(logging.Handler):
    """Shows the nodes' log in the timeline. An exception that is logged at ERROR is an error of the run."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.INFO)
        self._world = world
        self._logger = logging.getLogger("raftwerk")
        self._before = (self._logger.level, self._logger.propagate)

    def attach(self) -> None:
        self._before = (self._logger.level, self._logger.propagate)
        self._logger.setLevel(logging.INFO)
        self._logger.propagate = False
        self._logger.addHandler(self)

    def detach(self) -> None:
        self._logger.removeHandler(self)
        self._logger.setLevel(self._before[0])
        self._logger.propagate = self._before[1]

    def emit(self, record: logging.LogRecord) -> None:
        name = getattr(asyncio._get_running_loop(), "name", "-")
        message = record.getMessage()
        self._world.show_line(name, f"{record.levelname.lower()}: {message}")
        error = record.exc_info[1] if record.exc_info else None
        if record.levelno >= logging.ERROR and error is not None:
            self._world.errors.append(UnhandledError(self._world.now_s, name, message, error))
