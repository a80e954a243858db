"""The invariant "a leader waits for all whom the controller holds in sync": any of them may lead next (KIP-497).

A leader counts a replica from when it proposes it, until it knows that the controller has not carried that out, or has
removed it again. It is compared whenever the leader changes, not only when that commits something.
"""

from __future__ import annotations

from .....controller.metadata.metadata_image import PartitionRegistration
from .....isr.leader.leader_state import LeaderState
from ..invariant_broken import InvariantBroken


def check_counted(registration: PartitionRegistration | None, leader: LeaderState, where: str) -> None:
    """Compare whom a leader waits for with the ISR of its partition. Raises `InvariantBroken`."""
    if registration is None or registration.leader_epoch != leader.leader_epoch:
        return
    if registration.partition_epoch < leader.partition_epoch:
        return  # no node has applied yet what the leader was told
    ignored = [member for member in registration.isr if member not in leader.isr_state.maximal_isr]
    if ignored:
        raise InvariantBroken("a leader waits for all whom the controller holds in sync", f"{where}: {ignored}")
