"""Ties a process to its parent, so that it does not outlive the run, even if it stands still or the parent is killed.

`python -m raftwerk.chaos.live.load.child_process PARENT COMMAND...` becomes the command, with that tie.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

_PR_SET_PDEATHSIG = 1


def tied(command: Sequence[str]) -> list[str]:
    """The command as one that ends with the thread that starts it, which is the main thread of this process."""
    return [sys.executable, "-P", "-m", __name__, str(os.getpid()), *command]


def become(parent: int, command: Sequence[str]) -> None:
    """Become the command, which gets SIGKILL from the kernel when the parent ends (Linux), or has ended already."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(f"the parent, process {parent}, has ended")
    os.execvp(command[0], list(command))


if __name__ == "__main__":
    become(int(sys.argv[1]), sys.argv[2:])
