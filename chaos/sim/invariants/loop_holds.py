"""The invariant that no event holds the loop of a node: neither what clients send, nor what follows from it.

An event's processor time is compared with a limit. Both depend on the machine, so the caller says what the limit is and
how time is taken; the watch changes nothing in a run but its verdict. Events of other nodes within it are not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from ..kernel.event_loop import ProcessLoop, Scheduler
from .invariant_broken import InvariantBroken


class LoopHoldChecker:
    """Watches all events of a scheduler, except those of the processes `exempt`.

    `cpu_s` is processor time in seconds.
    """

    def __init__(
        self, scheduler: Scheduler, cpu_s: Callable[[], float], limit_s: float, exempt: Collection[str]
    ) -> None:
        self._cpu_s = cpu_s
        self._limit_s = limit_s
        self._exempt = exempt
        self._inner_s = 0.0  # of events within the present one
        self.longest_s = 0.0
        scheduler.around_event = self._run

    def _run(self, process: ProcessLoop, event: Callable[[], object]) -> None:
        outer_inner_s, self._inner_s = self._inner_s, 0.0
        began = self._cpu_s()
        try:
            event()
        finally:
            took_s = self._cpu_s() - began
            held_s = took_s - self._inner_s
            self._inner_s = outer_inner_s + took_s
        if process.name in self._exempt:
            return
        self.longest_s = max(self.longest_s, held_s)
        if held_s > self._limit_s:
            detail = (
                f"{process.name} for {held_s * 1000:.0f} ms of processor time, the limit is {self._limit_s * 1000:.0f}"
            )
            raise InvariantBroken("no event holds the loop of a node", detail)
