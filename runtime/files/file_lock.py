"""An exclusive lock on a file, which others may look at: they hold it for a moment to see whether it is free."""

from __future__ import annotations

import fcntl
import time
from typing import IO, Any

_PAUSE_S = 0.02


def lock_within(file: IO[Any], limit_s: float) -> None:
    """Take the lock (`flock`), which is tried again for so many seconds. Raises `BlockingIOError` if it stays held."""
    deadline = time.monotonic() + limit_s
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise
        time.sleep(_PAUSE_S)
