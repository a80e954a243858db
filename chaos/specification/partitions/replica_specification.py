"""The specification of the replicas of a partition: each observed change of one must be a step of it.

`observe` takes the state of a replica after an event, and looks for the actions that lead there from its state before.
"""

from __future__ import annotations

from ..step_search import Deviation, Proposal, explain
from .follower_actions import FollowerActions
from .leader_actions import LeaderActions
from .partition_history import PartitionHistory
from .replica_state import ReplicaState
from .role_actions import Restart, RestartWithLog, RoleActions, restart_without_log


class ReplicaSpecification:
    """The states of the replicas of one partition, by node id, and their history."""

    def __init__(self) -> None:
        self.history = PartitionHistory()
        self.states: dict[int, ReplicaState] = {}
        self._leader_actions = LeaderActions(self.history).actions
        self._follower_actions = FollowerActions(self.history).actions
        roles = RoleActions(self.history).actions
        self._actions = [*roles, *self._leader_actions, *self._follower_actions]
        self._restarts: dict[int, Restart] = {}
        """How the replicas have started that were not observed since."""

    def on_created(self, node_id: int) -> None:
        """A running node has a replica that it had not before, or has created it again."""
        if node_id not in self.states:
            self.states[node_id] = ReplicaState(node_id, self.history.root, 0)
        self._restarts.setdefault(node_id, restart_without_log)

    def on_end(self, node_id: int, durable_offset: int) -> None:
        """A process has ended; its log was durable up to this offset."""
        if node_id in self.states:
            self._restarts.setdefault(node_id, RestartWithLog(durable_offset))

    def on_log_lost(self, node_id: int) -> None:
        """The node's disk is empty or an old one, or has failed in part, so that its next log may be any."""
        if node_id in self.states:
            self._restarts[node_id] = restart_without_log

    def adopt(self, after: ReplicaState) -> None:
        """A replica is in this state, which is not judged since its disk holds damaged batches."""
        self._restarts.pop(after.node, None)
        self.states[after.node] = after
        self.history.record(after)

    def observe(self, after: ReplicaState) -> Deviation | None:
        """A replica is in this state after an event; None if steps of the specification lead there."""
        before, restart = self.states[after.node], self._restarts.pop(after.node, None)
        path = self._path(before, after, restart)
        if isinstance(path, Deviation):
            return path
        for step in path:
            self.history.record(step.state)
        self.states[after.node] = after
        self.history.record(after)
        return None

    def _path(
        self, before: ReplicaState, after: ReplicaState, restart: Restart | None
    ) -> list[Proposal[ReplicaState]] | Deviation:
        if restart is not None:
            return self._path_of_restart(before, after, restart)
        if before.partition_epoch == after.partition_epoch:  # most changes are of a known role
            actions = self._leader_actions if before.is_leader else self._follower_actions
            path = explain(before, after, actions)
            if not isinstance(path, Deviation):
                return path
        return explain(before, after, self._actions)

    def _path_of_restart(
        self, before: ReplicaState, after: ReplicaState, restart: Restart
    ) -> list[Proposal[ReplicaState]] | Deviation:
        """Whatever a replica did, it has started first. If it was removed meanwhile, its log was deleted."""
        if self.history.was_removed(after.node, before.partition_epoch, after.partition_epoch):
            restart = restart_without_log
        step = restart(before, after)
        if step.violated:
            return Deviation(f"log from {before.log} to {after.log}", f"not {step.action}: {step.violated[0]}")
        path = explain(step.state, after, self._actions)
        return path if isinstance(path, Deviation) else [step, *path]
