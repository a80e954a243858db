"""What Linux knows of a process, read from /proc; nothing of a process that is gone or another user's."""

from __future__ import annotations

import contextlib
import os
import time

_PAUSED, _ZOMBIE, _DEAD = "T", "Z", "X"
_CPUCLOCK_SCHED = 2
"""In the id of a clock, what Linux calls the processor time of the process of which the id has the complement."""
_RESIDENT_PAGES = 1


def is_paused(pid: int) -> bool:
    """Whether a signal has stopped the process for now (SIGSTOP)."""
    return _stat(pid)[:1] == [_PAUSED]


def is_running(pid: int) -> bool:
    """Whether there is such a process, and it has not ended."""
    return _stat(pid)[:1] not in ([], [_ZOMBIE], [_DEAD])


def process_ids() -> list[int]:
    """The ids of all processes; none where there is no /proc."""
    with contextlib.suppress(FileNotFoundError):
        return sorted(int(name) for name in os.listdir("/proc") if name.isdigit())
    return []


def memory_bytes(pid: int) -> int | None:
    """Resident memory of a process; None when it is gone."""
    fields = _read(pid, "statm").split()
    return int(fields[_RESIDENT_PAGES]) * os.sysconf("SC_PAGE_SIZE") if fields else None


def cpu_seconds(pid: int) -> float | None:
    """Processor time that a process has used so far, in user and system mode; None when it is gone.

    To the nanosecond: /proc tells of ticks of 10 ms only, which is too coarse for short measurements.
    """
    try:
        return time.clock_gettime(~pid << 3 | _CPUCLOCK_SCHED)
    except OSError:
        return None


def command_line(pid: int) -> list[str]:
    """The command with its arguments; empty when the process is gone or has ended."""
    return _strings(_read(pid, "cmdline"))


def environment(pid: int) -> dict[str, str]:
    """The environment that the process was started with."""
    pairs = (entry.partition("=") for entry in _strings(_read(pid, "environ")))
    return {name: value for name, _, value in pairs}


def working_directory(pid: int) -> str:
    """The directory in which the process works. Raises `OSError` when it is gone."""
    return os.readlink(f"/proc/{pid}/cwd")


def lock_holders(path: str) -> list[int]:
    """The ids of the processes that hold an flock on this file, or on one with its number on another file system.

    It asks without taking the lock, which could refuse it to its owner. Nothing where there is no /proc/locks.
    """
    with contextlib.suppress(OSError):
        inode = str(os.stat(path).st_ino)
        with open("/proc/locks", encoding="ascii") as file:  # 1: FLOCK ADVISORY WRITE 4711 08:01:1234 0 EOF
            rows = [line.split() for line in file if " FLOCK " in line and " -> " not in line]
        return [int(row[4]) for row in rows if row[5].rpartition(":")[2] == inode]
    return []


def _stat(pid: int) -> list[str]:
    return _read(pid, "stat").rpartition(b")")[2].decode().split()


def _read(pid: int, name: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:
        return b""


def _strings(data: bytes) -> list[str]:
    return [os.fsdecode(one) for one in data.split(b"\0")[:-1]]
