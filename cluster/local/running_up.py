"""The process that stays with a local cluster, `raftwerk up` or a test's: at most one at a time; others can find it.

The console that `raftwerk up --console` starts is found in the same way.

It holds a lock on a file with its process id, so a number that is left there after a crash misleads nobody.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from ...runtime.files.file_lock import lock_within

UP_PID, TEST_PID, CONSOLE_PID = "up.pid", "test.pid", "console.pid"
_LOOK_S = 0.4
"""The longest for which `running_up` holds the lock."""


class AnotherUpError(Exception):
    """Another `raftwerk up` stays with the cluster; `pid` is its process."""

    def __init__(self, directory: str, pid: int) -> None:
        self.pid = pid
        super().__init__(f"raftwerk up runs with {directory} already (process {pid})")


@contextmanager
def staying_with(directory: str, name: str = UP_PID) -> Iterator[None]:
    """Be the `raftwerk up` of this directory for as long as the context lasts. Raises `AnotherUpError`.

    `name` is the file that is locked.
    """
    path = os.path.join(directory, name)
    with open(os.open(path, os.O_RDWR | os.O_CREAT, 0o644), "r+", encoding="ascii") as file:
        try:
            lock_within(file, _LOOK_S)
        except BlockingIOError:
            raise AnotherUpError(directory, _number(file.read())) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)


def running_up(directory: str, name: str = UP_PID) -> int | None:
    """The process of the `raftwerk up` that stays with the cluster in this directory; None when there is none."""
    try:
        with open(os.path.join(directory, name), encoding="ascii") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        with open(os.path.join(directory, name), encoding="ascii") as file:
            return _number(file.read()) or None
    except (FileNotFoundError, NotADirectoryError):
        pass
    return None


def _number(text: str) -> int:
    return int(text) if text.strip().isdigit() else 0
