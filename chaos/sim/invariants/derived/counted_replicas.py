"""The invariant "a leader waits for all whom the controller holds in sync": any of them may lead next (KIP-497).

A leader counts a replica from when it proposes it, until it knows that the controller has not carried that out, or has
removed it again. It is compared whenever the leader or its partition changes, not only when something is committed.
And "a leader asks all who may be elected" before it answers from memory: those of the ISR and of the ELR (KIP-966).
"""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from .....controller.metadata.metadata_image import PartitionRegistration
from .....isr.leader.leader_state import LeaderState
from .....isr.replica_manager import ReplicaManager
from .....wire.types import TopicPartition
from ..invariant_broken import InvariantBroken


def check_leader(
    manager: ReplicaManager, key: TopicPartition, topic_id: UUID, registration: PartitionRegistration | None
) -> None:
    """Compare a broker that leads a partition with what is committed of that, as `check_counted`."""
    replica = manager.partitions.get(key)
    if replica is None or replica.offline or replica.topic_id != topic_id:
        return
    leader = replica.partition.leader
    if leader is not None:
        where = f"{key.topic}-{key.partition} on {leader.config.local_id}"
        check_counted(registration, leader, manager.who_confirms(replica), where)


def check_counted(
    registration: PartitionRegistration | None, leader: LeaderState, asked: Collection[int], where: str
) -> None:
    """Compare whom a leader waits for, and whom it asks, with the ISR and the ELR. Raises `InvariantBroken`."""
    if registration is None or registration.leader_epoch != leader.leader_epoch:
        return
    if registration.partition_epoch < leader.partition_epoch:
        return  # no node has applied yet what the leader was told
    ignored = [member for member in registration.isr if member not in leader.isr_state.maximal_isr]
    if ignored:
        raise InvariantBroken("a leader waits for all whom the controller holds in sync", f"{where}: {ignored}")
    others = [one for one in (*registration.isr, *registration.elr) if one != leader.config.local_id]
    if not all(one in asked for one in others):
        raise InvariantBroken("a leader asks all who may be elected", f"{where}: {asked}, not all of {others}")
