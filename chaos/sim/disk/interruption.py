"""The end of a process between two operations on its disk, by SIGKILL or a loss of power in the midst of an event."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum


class ProcessEnded(BaseException):
    """Unwinds the event in which the process ended; nothing may catch it and go on."""


class Operation(IntEnum):
    """What changes a disk. The later ones are rarer, and come in sequences that belong together."""

    DATA = 0
    """A write, a truncation, or the fsync of a file."""
    NAMES = 1
    """A file or directory is made, removed or replaced, or a directory is fsynced."""
    RENAME = 2


class Interruption:
    """Ends a process before one of the next operations on its disk, and refuses all later ones.

    `operations` of the kind `least`, or of a later one, come before.
    """

    def __init__(self, operations: int, least: Operation, end_process: Callable[[], None]) -> None:
        self.path: str | None = None
        """The path of the operation that was not carried out; None while the end is still to come."""
        self._left = operations
        self._least = least
        self._end_process = end_process

    def before_operation(self, path: str, operation: Operation) -> None:
        """The process is about to change its disk. Raises `ProcessEnded`."""
        if self.path is None:
            if operation < self._least:
                return
            self._left -= 1
            if self._left >= 0:
                return
            self.path = path
            self._end_process()
        raise ProcessEnded
