"""What `raftwerk up` does when a node ends: it says how, and starts it again if that is asked for."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable

from ...cluster.command_line.cluster_address import options_of
from ...cluster.local.supervisor import STOPPED_CLEANLY, Child, Supervisor, has_stopped, last_line, node_pid

_RESTART_PAUSE_S = 1.0


class NodeDeaths:
    """The ends of a supervisor's nodes, also of those that `raftwerk start` has started meanwhile.

    With `restarts`, a node is started again a second after it has died; one that was stopped cleanly has not died.
    """

    def __init__(self, supervisor: Supervisor, *, restarts: bool, tell: Callable[[str], None]) -> None:
        self._supervisor = supervisor
        self._restarts = restarts
        self._tell = tell
        self._told: set[int] = set()
        """The processes of the supervisor whose end was told."""
        self._others: dict[int, int] = {}
        """By node, the process that another command has started."""
        self._due: dict[int, float] = {}

    def look(self) -> None:
        """Look once at all nodes; nodes that `raftwerk shrink` has taken out of the cluster are supervised no more."""
        now = time.monotonic()
        for node_id, child in list(self._supervisor.children.items()):
            if not os.path.exists(child.plan.properties_file):
                self._supervisor.leave_out(node_id)
            elif not child.alive:
                self._look_at_ended(child, now)

    def _look_at_ended(self, child: Child, now: float) -> None:
        node_id = child.plan.node_id
        if child.pid not in self._told:
            self._told.add(child.pid)
            self._has_ended(child, now)
        other = node_pid(child.plan)
        if other is not None:
            self._others[node_id] = other
            self._due.pop(node_id, None)
            return
        ended = self._others.pop(node_id, child.unseen_ended_pid)
        if ended is not None:
            child.newest_pid = ended
            was_stopped = has_stopped(child.plan)  # no other process learns its exit code
            child.others_ending = STOPPED_CLEANLY if was_stopped else "killed or has failed"
            self._has_ended(child, now)
        elif self._due.get(node_id, math.inf) <= now:
            del self._due[node_id]
            self._supervisor.start_node(node_id)

    def _has_ended(self, child: Child, now: float) -> None:
        if self._restarts and child.has_died:
            self._due[child.plan.node_id] = now + _RESTART_PAUSE_S
        has_failed = child.newest_pid is None and child.process.returncode > 0
        why = f": {last_line(child.plan.log_file, child.log_start)}" if has_failed else ""
        self._tell(f"node {child.plan.node_id} {child.ending_told}{why}; {next_step(child, restarts=self._restarts)}")


def next_step(child: Child, *, restarts: bool) -> str:
    """What becomes of a node that is down, or what starts it again. With `restarts`, nodes that die start again."""
    if restarts and child.has_died:
        return "starting it again"
    return f"raftwerk start {child.plan.node_id}{options_of(child.plan.directory)} starts it again"
