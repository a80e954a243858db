"""Ties a process to its parent, so that it does not outlive the run, even if it stands still or the parent is killed.

`python -m raftwerk.chaos.live.load.child_process COMMAND...` becomes the command, with that tie.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Let the kernel send SIGKILL when the parent ends (Linux)."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def tied(command: Sequence[str]) -> list[str]:
    """The command as one that ends with the process that starts it."""
    return [sys.executable, "-P", "-m", __name__, *command]


if __name__ == "__main__":
    die_with_parent()
    os.execvp(sys.argv[1], sys.argv[1:])
