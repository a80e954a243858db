"""Time-outs of delayed operations: one timing wheel, and one timer of the event loop for its next deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ...runtime.loop import report_error
from ...runtime.timer_wheel import TimerHandle, TimerWheel


class DelayedOperationTimers:
    """A timing wheel driven by the event loop. Without time-outs it costs nothing."""

    __slots__ = ("_armed", "_armed_ms", "_loop", "_wheel")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._wheel = TimerWheel(self.now_ms())
        self._armed: asyncio.TimerHandle | None = None
        self._armed_ms = 0

    def now_ms(self) -> int:
        """The loop's monotonic clock in milliseconds."""
        return int(self._loop.time() * 1000)

    def add(self, delay_ms: int, callback: Callable[[], None]) -> TimerHandle:
        """Call `callback` once, after `delay_ms`, unless the handle is cancelled."""
        deadline_ms = self.now_ms() + delay_ms
        handle = self._wheel.add(deadline_ms, callback)
        if self._armed is None or deadline_ms < self._armed_ms:
            self._arm(deadline_ms)
        return handle

    def close(self) -> None:
        """Forget all time-outs."""
        if self._armed is not None:
            self._armed.cancel()
            self._armed = None

    def _arm(self, deadline_ms: int) -> None:
        if self._armed is not None:
            self._armed.cancel()
        self._armed_ms = deadline_ms
        self._armed = self._loop.call_at((deadline_ms + 1) / 1000, self._on_time)

    def _on_time(self) -> None:
        self._armed = None
        for callback in self._wheel.advance(self.now_ms()):
            try:
                callback()
            except Exception as error:  # the others that are due are called all the same, and the wheel goes on
                report_error("a time-out failed", error)
        next_ms = self._wheel.next_deadline_ms()
        if next_ms is not None and (self._armed is None or next_ms < self._armed_ms):
            self._arm(max(next_ms, self.now_ms()))
