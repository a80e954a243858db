"""The state of one replica of a partition: `replicaState` and `replicaLog` of the specification of Kafka replication.

The model follows `Kip320.tla` (J. Gustafson, kafka-specification) and, for what came with KRaft,
`kafka_replication_v3_5_simple.tla` (J. Vanlightly, kafka-tlaplus): ISRs are proposed by AlterPartition (KIP-497), and
the answer to a fetch tells where the logs diverge (KIP-595). What other replicas did is in `PartitionHistory`, which
stands for the messages of the specification: a message can say only what its sender was at some time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..log_entry import LogEntry
from .partition_state import NO_LEADER

ReplicaLog = LogEntry[None]
"""A log of a partition as a chain of batches."""
NO_EPOCH = -1


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """One replica. The fields from `pending_isr` on are those of a leader."""

    node: int
    log: ReplicaLog
    end_offset: int
    """Where the log ends. It is after the last batch, unless the log begins in the middle of a batch and is empty."""
    high_watermark: int = 0
    leader: int = NO_LEADER
    leader_epoch: int = NO_EPOCH
    partition_epoch: int = NO_EPOCH
    isr: frozenset[int] = frozenset()
    """What the controller has committed, as far as the replica knows."""
    pending_isr: frozenset[int] | None = None
    """What the leader has proposed to the controller."""
    epoch_start_offset: int = -1
    """Where the log ended when the leader's epoch began."""
    fetch_offsets: frozenset[tuple[int, int]] = frozenset()
    """Node and log end offset of each follower that has fetched from this leader."""
    log_start_offset: int = field(default=0, compare=False)
    min_isr: int = field(default=1, compare=False)
    """How many must be in sync before the leader's high watermark advances (KIP-966)."""

    @property
    def is_leader(self) -> bool:
        """Whether the replica presumes to lead."""
        return self.leader == self.node

    @property
    def maximal_isr(self) -> frozenset[int]:
        """Whom the high watermark waits for."""
        return self.isr | (self.pending_isr or frozenset())

    def fetch_offset_of(self, follower: int) -> int:
        """Where a follower's log ends, as the leader knows; -1 before it has fetched."""
        return next((offset for node, offset in self.fetch_offsets if node == follower), -1)
