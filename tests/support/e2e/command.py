"""`raftwerk` as a process of its own, as scripts call it."""

from __future__ import annotations

import signal
import subprocess
import sys


def raftwerk(*arguments: str, text: str | None = None, timeout: float = 40) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    command = [sys.executable, "-m", "raftwerk", *arguments]
    return subprocess.run(command, input=text, capture_output=True, check=False, text=True, timeout=timeout)


def ok(*arguments: str, text: str | None = None) -> str:
    """What the command prints. It has to succeed."""
    done = raftwerk(*arguments, text=text)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def fails(code: int, *arguments: str) -> str:
    """The one sentence with which the command fails."""
    done = raftwerk(*arguments)
    assert done.returncode == code, done.stdout + done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith(("raftwerk:", "Error:", "Usage:"))]
    assert len(lines) == 1, done.stderr
    assert "Traceback" not in done.stderr
    return lines[0]


def fails_usage(*arguments: str) -> str:
    """What the command says to arguments that are wrong."""
    done = raftwerk(*arguments)
    assert done.returncode == 2
    return done.stderr


def undo_nohup() -> None:
    """Let SIGHUP end a child again, before it runs its program: the tests themselves may run under nohup."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
