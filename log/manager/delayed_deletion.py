"""Files and directories that are deleted already, and removed some time later (`file.delete.delay.ms`)."""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Iterable

from ...runtime.ports import Disk

_logger = logging.getLogger(__name__)


class DelayedDeletion:
    """Paths that are to be removed, each with the time of the loop, in seconds, from which on nobody reads it."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._paths: list[tuple[float, str]] = []
        """A heap: rounds come often, and thousands of paths may not be due yet."""

    def add(self, paths: Iterable[str], delay_ms: float) -> None:
        """Remove these paths some time after `delay_ms`."""
        due_s = _now_s() + delay_ms / 1000 if delay_ms else 0.0
        for path in paths:
            heapq.heappush(self._paths, (due_s, path))

    def take_due(self) -> list[str]:
        """The paths that may be removed now; the caller calls `remove_soon` for each."""
        at_s = _now_s()
        due = []
        while self._paths and self._paths[0][0] <= at_s:
            due.append(heapq.heappop(self._paths)[1])
        return due

    def remove_soon(self, path: str) -> None:
        """Remove a file or directory without blocking the loop. If the disk refuses, it stays."""

        def on_done(done: asyncio.Future[None]) -> None:
            error = None if done.cancelled() else done.exception()
            if error is not None:
                _logger.warning("%s was deleted and cannot be removed: %s", path, error)

        self._disk.remove_soon(path).add_done_callback(on_done)


def _now_s() -> float:
    """The time of the running loop, 0 where there is none."""
    try:
        return asyncio.get_running_loop().time()
    except RuntimeError:
        return 0.0
