"""The roles of a replica by the controller's records: the branches of ReceiveMetadataUpdate, and restarts.

Neither role changes the log. A follower finds out by its first fetch whether it has to truncate (KIP-595), and a new
leader starts from the high watermark that it knew as a follower.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from ..step_search import Action, Proposal, violated
from .partition_history import PartitionHistory
from .partition_state import NO_LEADER, PartitionState
from .replica_state import ReplicaState

Proposals = Iterator[Proposal[ReplicaState]]
Restart = Callable[[ReplicaState, ReplicaState], Proposal[ReplicaState]]
"""Which state a process starts from, by the last one that was observed and the first one that is."""


class RoleActions:
    """Changes by what the controller has committed about the partition."""

    def __init__(self, history: PartitionHistory) -> None:
        self._history = history

    @property
    def actions(self) -> list[Action[ReplicaState]]:
        """All of them."""
        return [self.become_leader, self.become_follower, self.remain]

    def become_leader(self, now: ReplicaState, after: ReplicaState) -> Proposals:
        """BecomeLeaderInNewEpoch: the epoch starts where the log ends, and the ISR is the controller's.

        What followers have is unknown, unless the replica has led the epoch just before.
        """
        if not after.is_leader or after.leader_epoch == now.leader_epoch:
            return
        one, failed = self._registration(now, after)
        failed += violated((one.leader == now.node, f"{_named(one.leader)} leads epoch {one.leader_epoch}"))
        led = replace(
            _with_metadata(now, after, one), leader=now.node, pending_isr=None, epoch_start_offset=now.end_offset
        )
        if now.is_leader and one.leader_epoch == now.leader_epoch + 1:
            for kept in self._known_offsets(now, after, one):
                yield Proposal("BecomeLeaderInNewEpoch", replace(led, fetch_offsets=kept), failed)
        yield Proposal("BecomeLeaderInNewEpoch", replace(led, fetch_offsets=frozenset()), failed)

    def become_follower(self, now: ReplicaState, after: ReplicaState) -> Proposals:
        """BecomeFollowerInNewEpoch, or WaitForLeaderChange while there is no leader: the log stays as it is."""
        if after.is_leader or after.leader_epoch == now.leader_epoch:
            return
        one, failed = self._registration(now, after)
        failed += violated(
            (one.leader == after.leader, f"{_named(one.leader)} leads epoch {one.leader_epoch}, not {after.leader}"),
        )
        name = "WaitForLeaderChange" if after.leader == NO_LEADER else "BecomeFollowerInNewEpoch"
        yield Proposal(name, _without_leadership(_with_metadata(now, after, one)), failed)

    def remain(self, now: ReplicaState, after: ReplicaState) -> Proposals:
        """RemainLeader, RemainFollower: another ISR in the same epoch, by metadata or as the answer to a proposal."""
        if after.partition_epoch == now.partition_epoch or after.leader_epoch != now.leader_epoch:
            return
        one, failed = self._registration(now, after)
        failed += violated(
            (one.leader_epoch == now.leader_epoch, f"partition epoch {after.partition_epoch} is of another leader")
        )
        remains = replace(_with_metadata(now, after, one), leader=now.leader, pending_isr=None)
        for kept in self._known_offsets(now, after, one):
            name = "RemainLeader" if now.is_leader else "RemainFollower"
            yield Proposal(name, replace(remains, fetch_offsets=kept), failed)

    def _known_offsets(
        self, now: ReplicaState, after: ReplicaState, one: PartitionState
    ) -> Iterator[frozenset[tuple[int, int]]]:
        """The fetch offsets that a leader goes on with: of those that have been replicas in each change of several.

        One that was taken away and added again begins with an empty log. The leader may forget all outside the ISR.
        """
        epochs = range(now.partition_epoch + 1, after.partition_epoch)
        changes = [self._history.registrations.get(epoch, one) for epoch in epochs]
        known = [pair for pair in now.fetch_offsets if all(pair[0] in change.replicas for change in (*changes, one))]
        yield frozenset(known)
        if changes:
            yield frozenset(pair for pair in known if pair[0] in one.isr)

    def _registration(self, now: ReplicaState, after: ReplicaState) -> tuple[PartitionState, tuple[str, ...]]:
        """What the controller has committed as the partition epoch `after`; what is wrong with acting on it."""
        found = self._history.registrations.get(after.partition_epoch)
        one = found or PartitionState(after.isr, after.isr, frozenset(), after.leader, after.leader_epoch)
        return one, violated(
            (found is not None, f"the controller has committed no partition epoch {after.partition_epoch}"),
            (after.partition_epoch > now.partition_epoch, f"partition epoch {now.partition_epoch} is known"),
            (one.leader_epoch >= now.leader_epoch, f"leader epoch {now.leader_epoch} is known"),
        )


def _with_metadata(now: ReplicaState, after: ReplicaState, one: PartitionState) -> ReplicaState:
    return replace(
        now,
        leader=one.leader,
        leader_epoch=one.leader_epoch,
        partition_epoch=after.partition_epoch,
        isr=one.isr,
        log_start_offset=after.log_start_offset,
        min_isr=after.min_isr,
    )


def _without_leadership(state: ReplicaState) -> ReplicaState:
    return replace(state, pending_isr=None, epoch_start_offset=-1, fetch_offsets=frozenset())


def _named(leader: int) -> str:
    return "nobody" if leader == NO_LEADER else str(leader)


@dataclass(frozen=True, slots=True)
class RestartWithLog:
    """CleanShutdown or UncleanShutdown, and a start with the same disk, which lost at most what was not durable.

    The role is forgotten. The high watermark may be an older one, as it is stored from time to time only.
    """

    durable_offset: int
    """Up to here the log was durable at the end of the process."""

    def __call__(self, now: ReplicaState, after: ReplicaState) -> Proposal[ReplicaState]:
        """The state at the start."""
        kept = now.log.common_prefix(after.log)
        end_offset = after.end_offset if after.log is kept else kept.end_offset
        failed = violated(
            (
                end_offset >= self.durable_offset,
                f"the log was durable up to {self.durable_offset}, {end_offset} is left",
            )
        )
        started = ReplicaState(now.node, kept, end_offset, min(now.high_watermark, after.high_watermark))
        return Proposal("UncleanShutdown", started, failed)


def restart_without_log(now: ReplicaState, after: ReplicaState) -> Proposal[ReplicaState]:
    """UncleanShutdown that loses the log: the disk is empty or an old one, or the replica was created again."""
    return Proposal("UncleanShutdown", ReplicaState(now.node, after.log, after.end_offset, after.high_watermark))
