"""The restarts of a replica: RestartWithState, and RestartWithoutState for another disk."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ....raft.types import RoleKind
from ..step_search import Proposal, violated
from .election_actions import Proposals
from .replica_state import MetadataLog, ReplicaState


@dataclass(frozen=True, slots=True)
class RestartWithState:
    """A process ended, and another one has the same disk, of which it lost at most what was not durable.

    The epoch, the vote, the leader and the log are stored. The high watermark is not, but snapshots are. A process that
    ends in the midst of an event may have written to its log in it and not to its quorum-state: it has the leader and
    the vote of before then, or neither in an epoch that only its log has.
    """

    durable: MetadataLog
    """What was on the device at the end of the process."""
    observed_epoch: int
    observed_leader: int | None
    """The epoch and the leader after the last event that it finished."""

    def __call__(self, now: ReplicaState, after: ReplicaState) -> Proposals:
        """Propose the state at the start."""
        kept = now.log.common_prefix(after.log)
        failed = violated(
            (
                kept.has(now.log.common_prefix(self.durable)),
                f"the log was durable up to {self.durable.end_offset}, {kept.end_offset} is left",
            ),
        )
        started = replace(
            now, log=kept, role=RoleKind.UNATTACHED, high_watermark=min(now.high_watermark, after.high_watermark)
        )
        yield Proposal("RestartWithState", started, failed)
        if (now.epoch, now.leader) == (self.observed_epoch, self.observed_leader):
            return
        yield Proposal("RestartWithState", replace(started, leader=None), failed)
        if kept.epoch == now.epoch > self.observed_epoch:
            yield Proposal("RestartWithState", replace(started, leader=None, voted_for=None), failed)


def restart_without_state(now: ReplicaState, after: ReplicaState) -> Proposals:
    """RestartWithoutState: the disk is empty, or an old one; the state is what it holds."""
    root = next(entry for entry in now.log.backwards() if entry.parent is None)
    empty = ReplicaState(after.key, root, root, after.root_voters)
    yield Proposal("RestartWithoutState", empty)
    yield Proposal("RestartWithoutState", replace(after, role=RoleKind.UNATTACHED))
