"""Waits for nodes that start or stop, however long that takes, as long as they make progress.

A node that has many partitions opens or closes their logs for longer than any fixed limit, and one that is killed
meanwhile has to check all of them at its next start. So a node writes what it is doing into a file, and a limit counts
from the last time when something new was there.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

NO_PROGRESS_LIMIT_S = 30.0
"""How long a node that starts or stops may show no progress."""
_POLL_S = 0.02
_TELL_EVERY_S = 5.0

Tell = Callable[[str], None]


def silent(_sentence: str) -> None:
    """Tells nobody what is waited for."""


class Progress:
    """What several nodes have written of their starts or stops, and when that was new.

    Every five seconds, `tell` gets a sentence with what is waited for.
    """

    def __init__(self, files: Mapping[int, str], tell: Tell = silent) -> None:
        now = time.monotonic()
        self._files = files
        self._tell = tell
        self._seen = dict.fromkeys(files, "")
        self._changed_at = dict.fromkeys(files, now)
        self._tell_at = now + _TELL_EVERY_S

    def begin_anew(self) -> None:
        """Count the time without progress from now on: what the nodes may have waited for has happened."""
        self._changed_at = dict.fromkeys(self._changed_at, time.monotonic())

    def look(self, waiting: Iterable[int]) -> dict[int, float]:
        """Read the files of the nodes that are waited for; how many seconds each has shown nothing new."""
        now = time.monotonic()
        silent_s = {}
        for node_id in waiting:
            seen = _read(self._files[node_id])
            if seen != self._seen[node_id]:
                self._seen[node_id], self._changed_at[node_id] = seen, now
            silent_s[node_id] = now - self._changed_at[node_id]
        if now >= self._tell_at and silent_s:
            nodes = (f"node {one}{', which ' if self._seen[one] else ''}{self._seen[one]}" for one in silent_s)
            self._tell(f"waiting for {'; '.join(nodes)}")
            self._tell_at = now + _TELL_EVERY_S
        return silent_s


@dataclass(frozen=True, slots=True)
class StoppingNode:
    """A node that was asked to stop."""

    node_id: int
    progress_file: str
    is_running: Callable[[], bool]
    kill: Callable[[], None]


def wait_stopped(nodes: Sequence[StoppingNode], limit_s: float = NO_PROGRESS_LIMIT_S, tell: Tell = silent) -> list[int]:
    """Wait until the nodes have ended. One without progress for `limit_s` is killed.

    Returns the ids of those that were killed.
    """
    progress = Progress({node.node_id: node.progress_file for node in nodes}, tell)
    killed = []
    while left := {node.node_id: node for node in nodes if node.is_running()}:
        for node_id, silent_s in progress.look(left).items():
            if silent_s >= limit_s and node_id not in killed:
                left[node_id].kill()
                killed.append(node_id)
        time.sleep(_POLL_S)
    for node in nodes:
        forget_progress(node.progress_file)
    return killed


def forget_progress(path: str) -> None:
    """Remove the file of a node, at its start and after its end; nothing happens where that is not allowed."""
    with contextlib.suppress(FileNotFoundError, PermissionError):
        os.remove(path)


def killed_sentence(killed: Sequence[int], limit_s: float) -> str:
    """What to say of the nodes that had to be killed."""
    ids = ", ".join(map(str, killed))
    who = f"Node {ids} made" if len(killed) == 1 else f"Nodes {ids} made"
    was, their = ("was", "its") if len(killed) == 1 else ("were", "their")
    return f"{who} no progress for {limit_s:g} s and {was} killed: {their} logs are checked at the next start."


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""
