"""What is read of processes in /proc."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from raftwerk.cluster.local import processes


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_process_from_its_start_to_its_end(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()", "a) b", ""]
    environment = {**os.environ, "WHERE": "here=there"}
    with subprocess.Popen(
        command, env=environment, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None and child.stdout.readline() == b"\n"
        pid = child.pid
        assert processes.command_line(pid) == command
        assert processes.environment(pid)["WHERE"] == "here=there"
        assert processes.working_directory(pid) == str(tmp_path)
        assert 1e6 < (processes.memory_bytes(pid) or 0) < 1e9
        assert 0 <= (processes.cpu_seconds(pid) or 0) < 10
        assert processes.is_running(pid) and not processes.is_paused(pid)
        child.send_signal(signal.SIGSTOP)
        until(lambda: processes.is_paused(pid))
        child.kill()
        until(lambda: not processes.is_running(pid))  # a zombie: nobody has waited for it
        assert processes.command_line(pid) == []
    assert (processes.memory_bytes(pid), processes.cpu_seconds(pid)) == (None, None)
    assert not processes.is_running(pid) and not processes.is_paused(pid)
