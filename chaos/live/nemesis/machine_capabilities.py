"""What this machine can do. Each fault names its needs; a need that is not met has a reason in words."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence

_TIMEOUT_S = 20.0


class CommandFailed(Exception):
    """A command failed; the message holds the command and its output."""


def run_tool(command: Sequence[str], *, check: bool = True) -> str:
    """Run a command and return its output. `CommandFailed` if it fails.

    It has a session of its own, so that what a terminal sends to the run does not end it half-way.
    """
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False, start_new_session=True
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CommandFailed(f"{' '.join(command)}: {error}") from None
    if check and done.returncode:
        raise CommandFailed(f"{' '.join(command)}: {done.stderr.strip() or f'exit code {done.returncode}'}")
    return done.stdout


def probe_namespace(pid: int) -> str:
    """The network namespace in which a process tries what the machine can do."""
    return f"rwprobe{pid}"


def unmet_needs(needs: Iterable[str]) -> list[str]:
    """The reasons why these needs are not met; empty if all are."""
    reasons = [_missing(need) or _PROBES[need]() for need in needs]
    return [reason for reason in dict.fromkeys(reasons) if reason is not None]


def missing_tools(needs: Iterable[str]) -> list[str]:
    """The reasons why these needs cannot be met by what is installed. Nothing is tried, so this is quick."""
    return [reason for reason in dict.fromkeys(_missing(need) for need in needs) if reason is not None]


@functools.cache
def _root() -> str | None:
    return None if os.geteuid() == 0 else "needs root"


@functools.cache
def _network() -> str | None:
    """Network namespaces joined by a bridge."""
    reason = _root()
    name = probe_namespace(os.getpid())
    return reason or _tries(
        [["ip", "netns", "add", name], ["ip", "-n", name, "link", "add", "b0", "type", "bridge"]],
        [["ip", "netns", "del", name]],
    )


def _in_probe(*command: str) -> str | None:
    name = probe_namespace(os.getpid())
    inside = ["ip", "netns", "exec", name, *command]
    return _network() or _tries([["ip", "netns", "add", name], inside], [["ip", "netns", "del", name]])


@functools.cache
def _iptables() -> str | None:
    return _in_probe("iptables", "-A", "INPUT", "-s", "10.0.0.1", "-j", "DROP")


@functools.cache
def _iptables_loss() -> str | None:
    rule = ["-m", "statistic", "--mode", "random", "--probability", "0.1", "-j", "DROP"]
    return _in_probe("iptables", "-A", "INPUT", "-s", "10.0.0.1", *rule)


@functools.cache
def _iptables_reset() -> str | None:
    rule = ["-p", "tcp", "-j", "REJECT", "--reject-with", "tcp-reset"]
    return _in_probe("iptables", "-A", "INPUT", "-s", "10.0.0.1", *rule)


@functools.cache
def _bandwidth() -> str | None:
    return _in_probe(
        "tc", "qdisc", "add", "dev", "lo", "root", "tbf", "rate", "1mbit", "burst", "32kb", "latency", "1s"
    )


@functools.cache
def _tmpfs() -> str | None:
    with tempfile.TemporaryDirectory() as at:
        mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "raftwerk", at]
        return _root() or _tries([mount], [["umount", at]])


@functools.cache
def _loop_device() -> str | None:
    reason = _root()
    if reason is not None:
        return reason
    with tempfile.TemporaryDirectory() as at:
        image, inside = os.path.join(at, "image"), os.path.join(at, "m")
        os.mkdir(inside)
        with open(image, "wb") as file:
            file.truncate(8 << 20)
        mount = [["mkfs.ext4", "-q", "-F", image], ["mount", "-o", "loop", image, inside]]
        return _tries(mount, [["umount", inside]])


@functools.cache
def _strace() -> str | None:
    return _tries([["strace", "-o", "/dev/null", "-e", "inject=fsync:error=EIO", "true"]], [])


def _missing(need: str) -> str | None:
    missing = [name for name in _TOOLS[need] if shutil.which(name) is None]
    return f"there is no {' and no '.join(missing)}" if missing else None


def _tries(commands: Sequence[Sequence[str]], undo: Sequence[Sequence[str]]) -> str | None:
    try:
        for command in commands:
            run_tool(command)
    except CommandFailed as error:
        return str(error)
    finally:
        for command in undo:
            with contextlib.suppress(CommandFailed):
                run_tool(command, check=False)
    return None


_TOOLS = {
    "network": ("ip",),
    "iptables": ("ip", "iptables"),
    "iptables-loss": ("ip", "iptables"),
    "iptables-reset": ("ip", "iptables"),
    "bandwidth": ("ip", "tc"),
    "tmpfs": ("mount", "umount"),
    "loop-device": ("mkfs.ext4", "losetup", "mount", "umount"),
    "strace": ("strace",),
}
_PROBES: dict[str, Callable[[], str | None]] = {
    "network": _network,
    "iptables": _iptables,
    "iptables-loss": _iptables_loss,
    "iptables-reset": _iptables_reset,
    "bandwidth": _bandwidth,
    "tmpfs": _tmpfs,
    "loop-device": _loop_device,
    "strace": _strace,
}
