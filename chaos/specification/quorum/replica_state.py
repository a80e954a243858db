"""The state of one replica of the metadata quorum, as the specification of KRaft has it.

The model follows `KRaftWithReconfig.tla` (J. Vanlightly, raft-tlaplus, "pull-raft"): `currentEpoch`, `state`,
`votedFor`, `leader`, `log`, `highWatermark` are the fields of `ReplicaState`. `config`, the voters that count, follows
from the log. What other replicas did is in `QuorumHistory`, which stands for the messages of the specification: a
message can say only what its sender was at some time.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....raft.types import ReplicaKey, RoleKind
from ....raft.voters.voter_set import NO_VOTERS, VoterSet
from ..log_entry import LogEntry

MetadataLog = LogEntry[VoterSet]
"""A metadata log. The content of an entry is the set of voters that it makes count."""


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """One replica. Fields that are not the specification's: `root_voters` count while the log has no set of voters;
    `log_start` is the log up to the end of the oldest snapshot (KIP-630).
    """

    key: ReplicaKey
    log: MetadataLog
    log_start: MetadataLog
    root_voters: VoterSet = NO_VOTERS
    role: RoleKind = RoleKind.UNATTACHED
    epoch: int = 0
    leader: int | None = None
    voted_for: ReplicaKey | None = None
    high_watermark: int = 0

    @property
    def voters(self) -> VoterSet:
        """The voters that count: those of the last record about them, committed or not."""
        return self.voters_and_end()[0]

    def voters_and_end(self, log: MetadataLog | None = None) -> tuple[VoterSet, int]:
        """The voters that count in this log or a prefix of it, and the end offset of their entry."""
        for entry in (log or self.log).backwards():
            if entry.content is not None:
                return entry.content, entry.end_offset
        return self.root_voters, 0

    @property
    def election(self) -> tuple[RoleKind, int, int | None, ReplicaKey | None]:
        """What elections change."""
        return self.role, self.epoch, self.leader, self.voted_for

    @property
    def may_stand(self) -> bool:
        """Whether it may stand for election: as a voter, or while its removal is not known to be committed."""
        voters, end_offset = self.voters_and_end()
        if voters.is_voter(self.key):
            return True
        before, _ = self.voters_and_end(self.log.up_to(end_offset - 1)) if end_offset else (voters, 0)
        return end_offset > self.high_watermark and before.is_voter(self.key)

    @property
    def log_position(self) -> tuple[int, int]:
        """What a vote compares: the last epoch, then the end offset."""
        return self.log.epoch, self.log.end_offset
