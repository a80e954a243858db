"""Finds out what blocks the event loop: a thread takes the loop's stack when the loop stalls.

A timer ticks on the loop. When a tick is overdue, the thread takes the stack of the loop's thread, once a stall. The
next tick reports it, with the processor time of the loop's own thread (the rest went to other processes on the machine)
and the part of that which the garbage collector took.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

_logger = logging.getLogger(__name__)
_FRAMES_SHOWN = 12

Report = Callable[[str], None]


class StallWatch:
    """Watches the loop on which it is made and started. It ticks several times in `threshold_ms`, on idle nodes too."""

    def __init__(self, threshold_ms: int, report: Report = _logger.warning) -> None:
        self._threshold_s = threshold_ms / 1000
        self._report = report
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._stopped = threading.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._ticked_at = time.perf_counter()
        self._cpu_at = time.thread_time()
        self._gc_s = 0.0
        self._gc_began = 0.0
        self._stack: list[str] | None = None

    def start(self) -> None:
        """Begin to watch."""
        gc.callbacks.append(self._on_gc)
        self._tick()
        threading.Thread(target=self._watch, name="stall watch", daemon=True).start()

    def stop(self) -> None:
        """End the watch."""
        self._stopped.set()
        if self._timer is not None:
            self._timer.cancel()
        if self._on_gc in gc.callbacks:
            gc.callbacks.remove(self._on_gc)

    def _tick(self) -> None:
        now, cpu = time.perf_counter(), time.thread_time()
        interval_s = self._threshold_s / 4
        held_s, cpu_s = now - self._ticked_at - interval_s, cpu - self._cpu_at
        stack, self._stack = self._stack, None
        if held_s >= self._threshold_s:
            where = "\n".join(stack) if stack else "  (it was over before the stack could be taken)"
            self._report(
                f"event loop held for {held_s * 1000:.0f} ms, cpu {cpu_s * 1000:.0f} ms, "
                f"gc {self._gc_s * 1000:.0f} ms, in:\n{where}"
            )
        self._gc_s = 0.0
        self._ticked_at, self._cpu_at = time.perf_counter(), time.thread_time()
        self._timer = self._loop.call_later(interval_s, self._tick)

    def _on_gc(self, phase: str, info: dict[str, Any]) -> None:
        if threading.get_ident() != self._thread_id:
            return
        if phase == "start":
            self._gc_began = time.perf_counter()
        else:
            self._gc_s += time.perf_counter() - self._gc_began

    def _watch(self) -> None:
        overdue_s = self._threshold_s * 1.25
        while not self._stopped.wait(self._threshold_s / 2):
            if self._stack is None and time.perf_counter() - self._ticked_at > overdue_s:
                frame = sys._current_frames().get(self._thread_id)
                if frame is not None:
                    summary = traceback.extract_stack(frame)[-_FRAMES_SHOWN:]
                    self._stack = [f"  {one.filename}:{one.lineno} {one.name}" for one in summary]
