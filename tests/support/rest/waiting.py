"""Waits for what a broker shows a little after it was changed."""

from __future__ import annotations

import time
from collections.abc import Callable

_TIMEOUT_S = 60
_PAUSE_S = 0.05


def until(holds: Callable[[], bool]) -> None:
    """Return when it holds; fail after a minute."""
    deadline = time.monotonic() + _TIMEOUT_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(_PAUSE_S)
