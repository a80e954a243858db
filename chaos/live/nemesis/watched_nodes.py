"""Nodes of which every end is accounted for: a fault of the run ended them, or it is reported."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

from ....cluster.local.supervisor import LocalNodeError
from ....runtime.loop import EXIT_BROKEN_INVARIANT
from ....runtime.os_errors import os_reason
from .node_processes import Nodes

_START_TRIES = 3


class WatchedNodes:
    """The nodes that faults are injected into.

    `on_end` is called once for each end of a node that no fault of the run caused, with a sentence about it. An end is
    noticed by `look`, and at the latest before the node is given a signal or started again.
    """

    def __init__(self, nodes: Nodes, on_end: Callable[[int, str], None]) -> None:
        self._nodes = nodes
        self._on_end = on_end
        self._lock = threading.RLock()
        self._may_end: dict[int, bool] = {}
        """Nodes that a fault may end, and whether it may do so at any later time."""
        self._not_started: set[int] = set()
        """Nodes of which was reported that they could not be started."""
        self._running: dict[int, int] = {}
        """The process of each node, without the nodes of which the end is accounted for."""
        for node_id in nodes.ids:
            self._remember(node_id)

    @property
    def ids(self) -> list[int]:
        """See `Nodes`."""
        return self._nodes.ids

    def pid(self, node_id: int) -> int:
        """See `Nodes`."""
        return self._nodes.pid(node_id)

    def alive(self, node_id: int) -> bool:
        """See `Nodes`."""
        return self._nodes.alive(node_id)

    def exit_code(self, node_id: int) -> int | None:
        """See `Nodes`."""
        return self._nodes.exit_code(node_id)

    def last_log_line(self, node_id: int) -> str:
        """See `Nodes`."""
        return self._nodes.last_log_line(node_id)

    def signal(self, node_id: int, sent: signal.Signals) -> None:
        """See `Nodes`. The run itself ends the node with SIGKILL or SIGTERM."""
        self._look_at(node_id)
        if sent in (signal.SIGKILL, signal.SIGTERM):
            self._running.pop(node_id, None)
        self._nodes.signal(node_id, sent)

    def start(self, node_id: int) -> None:
        """Start a dead node and wait until it is ready. Does not raise: the heal at the end detects a failure."""
        self._look_at(node_id)
        for _ in range(_START_TRIES):
            try:
                self._nodes.start(node_id)
                break
            except (LocalNodeError, OSError) as error:
                if not self.alive(node_id):
                    self._failed_to_start(node_id, os_reason(error) if isinstance(error, OSError) else str(error))
        self._remember(node_id)

    def may_end(self, node_id: int, *, later: bool = False) -> None:
        """Expect that the node ends itself until `got_over` is called, or at any time: a fault makes its disk fail.

        A signal is still reported, and so is a broken invariant.
        """
        self._may_end[node_id] = later or self._may_end.get(node_id, False)

    def got_over(self, node_id: int) -> None:
        """Expect no more that the node ends itself, unless by a fault that may end it at any time."""
        self._look_at(node_id)
        if not self._may_end.get(node_id):
            self._may_end.pop(node_id, None)

    def look(self) -> None:
        """Report the nodes that have ended since the last look."""
        for node_id in self.ids:
            self._look_at(node_id)

    def _look_at(self, node_id: int) -> None:
        with self._lock:
            known = self._running.get(node_id)
            if known is None or self._process(node_id) == known:
                return
            del self._running[node_id]
            code = self.exit_code(node_id)
            if node_id in self._may_end and (code is None or (code >= 0 and code != EXIT_BROKEN_INVARIANT)):
                self._may_end.pop(node_id, None)
                return
            self._on_end(node_id, f"{self._how_it_ended(node_id, code)}, and no fault of this run ended it")
            self._remember(node_id)

    def _how_it_ended(self, node_id: int, code: int | None) -> str:
        if code is not None and code < 0:
            names = {one.value: one.name for one in signal.Signals}
            return f"node {node_id} was killed by {names.get(-code, f'signal {-code}')}"
        ended = "ended" if code is None else f"ended with exit code {code}"
        line = "" if self.alive(node_id) else self.last_log_line(node_id)
        return f"node {node_id} {ended}" + (f" (its log ends with: {line})" if line else "")

    def _failed_to_start(self, node_id: int, why: str) -> None:
        """Report it once, until the node runs again."""
        with self._lock:
            if node_id not in self._not_started:
                self._not_started.add(node_id)
                self._on_end(node_id, f"node {node_id} could not be started again: {why}")

    def _remember(self, node_id: int) -> None:
        """Take the process that the node has now, if it has one, for that of which the end is to be explained."""
        process = self._process(node_id)
        if process is not None and process != self._running.get(node_id):
            self._may_end.pop(node_id, None)
            self._not_started.discard(node_id)
            self._running[node_id] = process

    def _process(self, node_id: int) -> int | None:
        try:
            return self.pid(node_id) if self.alive(node_id) else None
        except LocalNodeError:  # it has ended in this moment
            return None
