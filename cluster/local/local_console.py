"""The console that `raftwerk up --console` runs beside a local cluster, as a process of its own.

The process holds a lock on a file for as long as it runs, so `raftwerk down` finds it (`running_up.py`). It writes its
URL to a pipe when it listens.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time

from .processes import is_running
from .progress import NO_PROGRESS_LIMIT_S
from .running_up import CONSOLE_PID, running_up
from .supervisor import LocalNodeError, ask_to_stop, last_line, send_signal, spawn

CONSOLE_HOST, CONSOLE_PORT = "127.0.0.1", 8080
"""The page has the rights of the user who started the cluster, so it is for this machine only."""
CONSOLE_LOG = "console.log"
_ENDS_S = 10.0
_URL_MAX = 200


class LocalConsole:
    """The console's process beside the cluster in `directory`. With `detach` it outlives this process."""

    def __init__(self, directory: str, port: int, *, detach: bool) -> None:
        self._directory = directory
        self._port = port
        self._detach = detach
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> tuple[str, int]:
        """The host and port to listen on; port 0 is a free one."""
        return CONSOLE_HOST, self._port

    @property
    def log_file(self) -> str:
        """What the console says."""
        return os.path.join(self._directory, CONSOLE_LOG)

    @property
    def exit_code(self) -> int | None:
        """How the process ended; None while it runs, and before it was started."""
        return None if self._process is None else self._process.poll()

    def start(self) -> str:
        """Start the process, and return its URL when it listens. Raises `LocalNodeError`."""
        process, ready_pipe, log_start = spawn(self._command, self.log_file, detach=self._detach)
        self._process = process
        try:
            readable, _, _ = select.select([ready_pipe], [], [], NO_PROGRESS_LIMIT_S)
            url = os.read(ready_pipe, _URL_MAX).decode().strip() if readable else ""
        finally:
            os.close(ready_pipe)
        if not url:
            process.kill()
            process.wait()
            why = last_line(self.log_file, log_start) or "it logged nothing"
            raise LocalNodeError(f"the console did not start: {why}")
        return url

    def _command(self, ready_fd: int) -> list[str]:
        command = [sys.executable, "-P", "-m", "raftwerk", "console", "--dir", self._directory]
        command += ["--host", CONSOLE_HOST, "--port", str(self._port), "--ready-fd", str(ready_fd)]
        return command if self._detach else [*command, "--stop-at-eof"]


def stop_console(directory: str) -> int | None:
    """Stop the console that `raftwerk up --console` has started beside this cluster; its process id, None if none runs.

    One that does not end within ten seconds is killed.
    """
    pid = running_up(directory, CONSOLE_PID)
    if pid is None:
        return None
    ask_to_stop(pid)
    deadline = time.monotonic() + _ENDS_S
    while (is_locked := running_up(directory, CONSOLE_PID) == pid) or is_running(pid):
        if time.monotonic() > deadline:
            if not is_locked:
                break  # it has ended, and another process may have its number
            send_signal(pid, signal.SIGKILL)
            deadline += _ENDS_S
        time.sleep(0.02)
    return pid
