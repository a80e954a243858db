"""The invariant "a replica that is added counts once it is in sync", between two states of a partition (KIP-455).

Until then the partition keeps the replicas that it had. A reassignment that is asked for again, or changed while it is
under way, must not forget which replicas are still to catch up.
"""

from __future__ import annotations

from .....controller.metadata.metadata_image import PartitionRegistration
from ..invariant_broken import InvariantBroken


def check_reassignment(name: str, before: PartitionRegistration, now: PartitionRegistration) -> None:
    """Judge one change of a partition; what lies between several is not known. Raises `InvariantBroken`."""
    if now.partition_epoch != before.partition_epoch + 1:
        return
    for replica in now.replicas:
        was_added = replica in before.adding_replicas or replica not in before.replicas
        is_counted = replica not in (*now.adding_replicas, *now.removing_replicas)
        if was_added and is_counted and replica not in now.isr:
            detail = f"{name}: {replica} is not in sync, from {before} to {now}"
            raise InvariantBroken("a replica that is added counts once it is in sync", detail)
