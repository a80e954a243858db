"""Files and directories that are deleted already, and removed when their time has come (`file.delete.delay.ms`)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from ...runtime.ports import Disk

_logger = logging.getLogger(__name__)


class Trash:
    """Paths by the time of the loop, in seconds, from which on nobody may read them any more."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._paths: list[tuple[float, str]] = []

    def add(self, paths: Iterable[str], delay_ms: float) -> None:
        """Remove them some time after `delay_ms`."""
        due_s = now_s() + delay_ms / 1000 if delay_ms else 0.0
        self._paths.extend((due_s, path) for path in paths)

    def take_due(self, *, all_now: bool = False) -> list[str]:
        """Those whose time has come; they are the caller's to `remove`."""
        at_s = now_s()
        due = [path for due_s, path in self._paths if all_now or due_s <= at_s]
        if due:
            self._paths = [(due_s, path) for due_s, path in self._paths if not all_now and due_s > at_s]
        return due

    def remove_soon(self, path: str) -> None:
        """Without blocking the loop. A disk that refuses keeps it."""

        def on_done(done: asyncio.Future[None]) -> None:
            error = None if done.cancelled() else done.exception()
            if error is not None:
                _logger.warning("%s was deleted and cannot be removed: %s", path, error)

        self._disk.remove_soon(path).add_done_callback(on_done)

    def remove(self, path: str) -> None:
        """Now. A disk that refuses keeps it."""
        try:
            if self._disk.is_dir(path):
                self._disk.remove_tree(path)
            elif self._disk.exists(path):
                self._disk.remove(path)
        except OSError as error:
            _logger.warning("%s was deleted and cannot be removed: %s", path, error)


def now_s() -> float:
    """The time of the running loop, 0 where there is none."""
    try:
        return asyncio.get_running_loop().time()
    except RuntimeError:
        return 0.0
