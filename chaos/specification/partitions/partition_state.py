"""The state of a partition as the controller has committed it: `quorumState` of the specification of Kafka replication.

The model follows `KafkaReplication.tla` and `Kip320.tla` (J. Gustafson, kafka-specification). It has eligible leader
replicas (KIP-966), unclean elections with recovery (KIP-704) and reassignments (KIP-455) besides.
"""

from __future__ import annotations

from dataclasses import dataclass

NO_LEADER = -1


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A partition after a record of the metadata log; `leader` is -1 for none."""

    replicas: frozenset[int]
    isr: frozenset[int]
    elr: frozenset[int]
    leader: int
    leader_epoch: int
    is_recovering: bool = False

    def __str__(self) -> str:
        recovering = ", recovering" if self.is_recovering else ""
        members = f"isr {sorted(self.isr)}, elr {sorted(self.elr)} of {sorted(self.replicas)}"
        return f"leader {self.leader} epoch {self.leader_epoch}, {members}{recovering}"
