"""What an observer of a run is told. It only looks: a run takes the same way with an observer and without one."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from .event_loop import ProcessLoop
    from .transport import Pipe


class ProcessChange(Enum):
    """A change of a host's process. The values are the words of the timeline."""

    START = "start"
    RESTART = "restart"
    READY = "ready"
    PAUSED = "PAUSED"
    RESUMED = "RESUMED"
    STOPPING = "STOPPING"
    STOPPED = "STOPPED"
    ENDED = "ended"
    KILLED = "KILLED"
    POWER_LOSS = "POWER LOSS"


class RunObserver(Protocol):
    """Is called while a run goes on. It must change nothing, draw no randomness and schedule nothing."""

    def on_process(self, host: str, change: ProcessChange, text: str) -> None:
        """The process of a host has changed, or is about to within this event. `text` tells it."""
        ...

    def on_fault(self, what: str, hosts: Sequence[str], duration_s: float) -> None:
        """A fault begins."""
        ...

    def on_heal(self) -> None:
        """All faults end."""
        ...

    def on_link(self, source: str, target: str, state: str) -> None:
        """What is wrong with one direction between two hosts; empty if nothing is.

        `target` is empty for what a host does not get from anybody.
        """
        ...

    def on_sent(self, pipe: Pipe, data: bytes) -> None:
        """A process has written bytes to a connection."""
        ...

    def on_delivered(self, pipe: Pipe, size_bytes: int) -> None:
        """Bytes have arrived at the other end, in their order."""
        ...

    def on_log_line(self, where: str, text: str) -> None:
        """A process has logged a line."""
        ...

    def after_event(self, process: ProcessLoop) -> None:
        """An event of a process has run; its invariants are not checked yet."""
        ...
