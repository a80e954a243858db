"""What the controller and the replicas of a partition have done so far: the messages of the specification.

A leader's log only grows while its epoch lasts, so a follower may have fetched any part of the longest one. A fetch
counts for a leader if the follower had that log in the leader's epoch, whenever the fetch arrives.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..log_entry import empty_log
from .partition_state import PartitionState
from .replica_state import ReplicaLog, ReplicaState


@dataclass(slots=True)
class LeaderEpochHistory:
    """One leader epoch."""

    leader: int | None = None
    leaders_log: ReplicaLog | None = None
    """The longest log that its leader had."""
    high_watermark: int = 0
    """The highest that its leader had."""
    log_start_offset: int = 0
    """The highest that its leader had."""
    followers_logs: dict[int, list[ReplicaLog]] = field(default_factory=dict)
    """The logs that followers had in this epoch, without those that are prefixes of later or earlier ones."""


class PartitionHistory:
    """All epochs of a partition, and all batches of its replicas."""

    def __init__(self) -> None:
        self.root: ReplicaLog = empty_log()
        self.epochs: dict[int, LeaderEpochHistory] = {}
        self.registrations: dict[int, PartitionState] = {}
        """What the controller has committed, by partition epoch."""
        self.unclean_epochs: list[int] = []
        """The leader epochs that began with an unclean election."""
        self._entries: dict[tuple[int, int, object], ReplicaLog] = {}

    def of(self, leader_epoch: int) -> LeaderEpochHistory:
        """The history of an epoch, which may be empty."""
        return self.epochs.get(leader_epoch, LeaderEpochHistory())

    @property
    def log_start_offset(self) -> int:
        """The highest that any leader had. One that starts again may have a lower one than it had."""
        return max((epoch.log_start_offset for epoch in self.epochs.values()), default=0)

    def register(self, partition_epoch: int, state: PartitionState) -> None:
        """The controller has committed this state."""
        self.registrations[partition_epoch] = state
        if state.is_recovering and state.leader_epoch not in self.unclean_epochs:
            self.unclean_epochs.append(state.leader_epoch)

    def is_unclean(self, leader_epoch: int) -> bool:
        """Whether committed records may have been lost in this epoch or before."""
        return any(epoch <= leader_epoch for epoch in self.unclean_epochs)

    def was_removed(self, node: int, after_epoch: int, epoch: int) -> bool:
        """Whether the node was no replica between two partition epochs, so that its log was deleted."""
        between = (one for at, one in self.registrations.items() if after_epoch < at <= epoch)
        return any(node not in one.replicas for one in between)

    def record(self, state: ReplicaState) -> None:
        """A replica has come into this state."""
        if state.leader_epoch < 0:
            return
        epoch = self.epochs.setdefault(state.leader_epoch, LeaderEpochHistory())
        if state.is_leader:
            epoch.leader, epoch.leaders_log = state.node, state.log
            epoch.high_watermark = max(epoch.high_watermark, state.high_watermark)
            epoch.log_start_offset = max(epoch.log_start_offset, state.log_start_offset)
            return
        logs = epoch.followers_logs.setdefault(state.node, [])
        if not logs or not logs[-1].has(state.log):
            logs[:] = [log for log in logs if not state.log.has(log)]
            logs.append(state.log)

    def has_had(self, follower: int, leader_epoch: int, log: ReplicaLog) -> bool:
        """Whether a follower's log began with `log` while it followed in this epoch."""
        return any(one.has(log) for one in self.of(leader_epoch).followers_logs.get(follower, ()))

    # -- batches

    def known(self, end_offset: int, epoch: int, digest: object) -> ReplicaLog | None:
        """The log up to a batch that some replica has had."""
        return self._entries.get((end_offset, epoch, digest))

    def follow(self, log: ReplicaLog, end_offset: int, epoch: int, digest: object) -> ReplicaLog:
        """The log with one batch more, or the known one that ends with this batch.

        They differ where a leader's log was compacted: its followers do not get the batches before.
        """
        key = end_offset, epoch, digest
        found = self._entries.get(key)
        if found is None:
            found = self._entries[key] = log.follow(end_offset, epoch, digest)
        return found
