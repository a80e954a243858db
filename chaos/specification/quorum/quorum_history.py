"""What the replicas of a quorum have done so far. It stands for the messages of the specification.

A vote counts if its voter gave it, whenever the answer arrives. A leader's entries can be fetched as long as the epoch
lasts, as its log only grows. So the history keeps, by epoch: who stood for election with which log, who voted for whom,
who led with which log and high watermark.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ....raft.types import ReplicaKey, RoleKind
from .replica_state import MetadataLog, ReplicaState


@dataclass(slots=True)
class EpochHistory:
    """One epoch."""

    prospective: dict[ReplicaKey, None] = field(default_factory=dict)
    """Who asked for pre-votes in it (KIP-996)."""
    candidates: dict[ReplicaKey, tuple[int, int]] = field(default_factory=dict)
    """The log positions with which they stand."""
    votes: dict[ReplicaKey, ReplicaKey] = field(default_factory=dict)
    leader: int | None = None
    leaders_log: MetadataLog | None = None
    """The longest log that its leader had."""
    high_watermark: int = 0
    """The highest that its leader had."""


@dataclass(slots=True)
class QuorumHistory:
    """All epochs, what is committed, and what is on the devices."""

    committed: MetadataLog
    """The log up to the highest high watermark of any replica."""
    epochs: dict[int, EpochHistory] = field(default_factory=dict)
    durable: dict[ReplicaKey, MetadataLog] = field(default_factory=dict)
    """The log on each device, also of processes that have ended. It is brought up to date when a leader commits."""
    removed: dict[ReplicaKey, tuple[int, MetadataLog]] = field(default_factory=dict)
    """The last epoch and the durable log of a device that was replaced: its last fetch may still be on its way."""

    def of(self, epoch: int) -> EpochHistory:
        """The history of an epoch, which may be empty."""
        return self.epochs.get(epoch, EpochHistory())

    def record(self, state: ReplicaState) -> None:
        """A replica has come into this state."""
        epoch = self.epochs.setdefault(state.epoch, EpochHistory())
        if state.voted_for is not None:
            epoch.votes[state.key] = state.voted_for
        if state.role is RoleKind.PROSPECTIVE:
            epoch.prospective[state.key] = None
        if state.role is RoleKind.CANDIDATE:
            epoch.candidates[state.key] = state.log_position
        if state.role is RoleKind.LEADER:
            epoch.leader, epoch.leaders_log = state.key.id, state.log
            epoch.high_watermark = max(epoch.high_watermark, state.high_watermark)
        if state.high_watermark > self.committed.end_offset:
            self.committed = state.log.up_to(state.high_watermark)

    def is_durable(self, voter: ReplicaKey, entry: MetadataLog, epoch: int) -> bool:
        """Whether a voter can have told the leader of `epoch` that it has the log up to `entry` on its device."""
        logs = [log for key, log in self.durable.items() if voter.matches(key)]
        logs += [log for key, (last, log) in self.removed.items() if voter.matches(key) and last == epoch]
        return any(log.has(entry) for log in logs)
