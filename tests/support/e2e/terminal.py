"""A command on a terminal of its own: what it shows, keys that are pressed, Ctrl-C."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable

CTRL_C = b"\x03"
CTRL_D = b"\x04"


class Terminal:
    """Runs `raftwerk` on a pseudo-terminal of 160 columns; a context manager that ends the command."""

    def __init__(self, *arguments: str) -> None:
        self._main, side = pty.openpty()
        command = [sys.executable, "-c", _LEAD_TERMINAL, sys.executable, "-m", "raftwerk", *arguments]
        environment = {**os.environ, "COLUMNS": "160", "LINES": "50", "TERM": "xterm"}
        self.process = subprocess.Popen(
            command, stdin=side, stdout=side, stderr=side, env=environment, start_new_session=True
        )
        os.close(side)
        self._is_closed = False
        self.shown = ""

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                if self._is_closed:
                    self.process.wait(30)
                else:
                    self.wait(30)
            except (AssertionError, subprocess.TimeoutExpired):
                self.process.kill()
                self.process.wait()
        if not self._is_closed:
            os.close(self._main)

    def close(self) -> None:
        """Close the terminal's window: the command gets SIGHUP, and what it writes from now on fails."""
        self._is_closed = True
        os.close(self._main)

    def press(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self._main, keys)

    def resize(self, columns: int) -> None:
        """Change the width; the kernel tells the command."""
        fcntl.ioctl(self._main, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))

    def read_until(self, text: str | Callable[[str], bool], timeout_s: float = 30) -> str:
        """Read until `text` is shown, or until it says so of all that was shown; fails after the time-out."""
        deadline = time.monotonic() + timeout_s
        is_there = (lambda shown: text in shown) if isinstance(text, str) else text
        while not is_there(self.shown):
            assert time.monotonic() < deadline, self.shown
            assert self._read(0.1) or self.process.poll() is None, self.shown
        return self.shown

    def wait(self, timeout_s: float = 30) -> int:
        """Read to the end; returns the exit code."""
        deadline = time.monotonic() + timeout_s
        while self._read(0.1) or self.process.poll() is None:
            assert time.monotonic() < deadline, self.shown
        return self.process.wait()

    def _read(self, timeout_s: float) -> bool:
        if not select.select([self._main], [], [], timeout_s)[0]:
            return False
        try:
            data = os.read(self._main, 65536)
        except OSError:  # the command has closed its side
            return False
        self.shown += data.decode(errors="replace")
        return bool(data)


_LEAD_TERMINAL = """
import fcntl, os, signal, sys, termios
signal.signal(signal.SIGHUP, signal.SIG_DFL)
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Makes the terminal the session's own, so that Ctrl-C becomes SIGINT, and runs the command.

The tests may run under nohup, whose children ignore SIGHUP.
"""
