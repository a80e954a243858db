"""The specification of the metadata quorum: each observed change of a replica must be a step of it.

`observe` takes the state of a replica after an event, and looks for the actions that lead there from its state before.
The properties of the specification are checked after that: NoLogDivergence, LeaderHasAllAckedValues; and
NeverTwoLeadersInSameEpoch is a condition of BecomeLeader. TLC has shown for the published specification that its
actions keep them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ....raft.types import ReplicaKey, RoleKind
from ....raft.voters.voter_set import VoterSet
from ..log_entry import empty_log
from ..step_search import Action, Deviation, Proposal, explain
from .election_actions import ElectionActions
from .log_actions import DIVERGED, SUCCEEDED, LogActions
from .quorum_history import QuorumHistory
from .replica_state import MetadataLog, ReplicaState
from .restart_actions import RestartWithState, restart_without_state


@dataclass(frozen=True, slots=True)
class StoredElection:
    """The epoch and the vote that are on a replica's device."""

    epoch: int
    voted_for: ReplicaKey | None

    def __str__(self) -> str:
        return f"epoch {self.epoch} and {'no vote' if self.voted_for is None else f'a vote for {self.voted_for.id}'}"


class QuorumSpecification:
    """The states of all replicas, by node id, and their history."""

    def __init__(self) -> None:
        self.root: MetadataLog = empty_log()
        self.history = QuorumHistory(self.root)
        self.states: dict[int, ReplicaState] = {}
        self.root_voters: dict[int, VoterSet] = {}
        """The voters that count for a node until its log has a set of voters."""
        elections, logs = ElectionActions(self.history), LogActions(self.history)
        self._log_actions: list[Action[ReplicaState]] = logs.actions
        self._actions: list[Action[ReplicaState]] = [*elections.actions, *logs.actions]
        self._restarts: dict[int, Action[ReplicaState]] = {}
        """How the replicas have started that were not observed since."""

    def on_start(self, node_id: int, root_voters: VoterSet) -> None:
        """A process has started. `root_voters` count until the log has a set of voters, as it was formatted."""
        if node_id not in self.states:
            self.states[node_id] = ReplicaState(ReplicaKey(node_id), self.root, self.root, root_voters)
            self._restarts[node_id] = restart_without_state
        if self._restarts[node_id] is restart_without_state:
            self.root_voters[node_id] = root_voters

    def on_end(self, node_id: int, durable: MetadataLog) -> None:
        """A process has ended; its device has the log `durable`."""
        state = self.states[node_id]
        self.history.durable[state.key] = durable
        self._restarts.setdefault(node_id, RestartWithState(durable, state.epoch, state.leader))

    def on_end_as_leader(self, node_id: int, epoch: int) -> Deviation | None:
        """A process ends in the event that elected it, of which others may hear; None if it may have been elected."""
        before = self.states[node_id]
        if before.epoch != epoch or self.history.of(epoch).leader is not None:
            return None
        elected = replace(before, role=RoleKind.LEADER, leader=node_id)
        path = explain(before, elected, self._actions)
        if isinstance(path, Deviation):
            return path
        for step in path:
            self.history.record(step.state)
        return None

    def on_disk_replaced(self, node_id: int) -> None:
        """The node, whose process has ended, has an empty disk or an old one."""
        state = self.states.get(node_id)
        if state is not None:
            durable = self.history.durable.pop(state.key, self.root)
            self.history.removed[state.key] = state.epoch, durable
            self._restarts[node_id] = restart_without_state

    def observe(self, after: ReplicaState) -> Deviation | None:
        """A replica is in this state after an event; None if steps of the specification lead there."""
        before = self.states[after.key.id]
        restart = self._restarts.pop(after.key.id, None)
        path = self._path(before, after, restart)
        if isinstance(path, Deviation):
            return path
        answers = {step.action for step in path} & {SUCCEEDED, DIVERGED}
        if len(answers) > 1 and restart is None:
            told = f"one event cut the log and took over {after.log}, committed up to {after.high_watermark}"
            return Deviation(told, f"not {DIVERGED}: that answer tells only where to cut")
        newest = max((epoch for epoch, one in self.history.epochs.items() if one.leader is not None), default=0)
        committed = self.history.committed
        for step in path:
            self.history.record(step.state)
        self.states[after.key.id] = after
        return _broken_property(after, [step.state for step in path], committed, newest)

    def _path(
        self, before: ReplicaState, after: ReplicaState, restart: Action[ReplicaState] | None
    ) -> list[Proposal[ReplicaState]] | Deviation:
        if restart is not None:
            return explain(before, after, [restart, *self._actions])
        if before.election == after.election:  # most changes need no search
            path = explain(before, after, self._log_actions)
            if not isinstance(path, Deviation):
                return path
        return explain(before, after, self._actions)

    def stored_differently(self, state: ReplicaState, stored: StoredElection) -> Deviation | None:
        """What is wrong if a replica's device has another epoch or vote than it acts upon."""
        if (stored.epoch, stored.voted_for) == (state.epoch, state.voted_for):
            return None
        acts = StoredElection(state.epoch, state.voted_for)
        return Deviation(
            f"the device has {stored}", f"not stable storage of currentEpoch and votedFor: it acts on {acts}"
        )


def _broken_property(
    after: ReplicaState, states: Sequence[ReplicaState], committed: MetadataLog, newest: int
) -> Deviation | None:
    mine = after.log.up_to(after.high_watermark)
    if not (mine.has(committed) or committed.has(mine)):
        shared = mine.common_prefix(committed).end_offset
        return Deviation(
            f"committed are {mine} and {committed}", f"not NoLogDivergence: they are the same up to {shared} only"
        )
    for state in states:
        is_new = state.role is RoleKind.LEADER and state.epoch > newest
        if is_new and not state.log.has(committed):
            return Deviation(
                f"{state.log} leads epoch {state.epoch}", f"not LeaderHasAllAckedValues: {committed} is committed"
            )
    return None
