"""The invariant "replicas have acted on the newest metadata in the end", whether a record or a snapshot told of it.

A replica that was not told of a change keeps a former ISR, leader or set of replicas: its proposals of an ISR are
refused for ever, and it fetches from a broker that leads no more.
"""

from __future__ import annotations

from collections.abc import Iterable

from .....controller.metadata.metadata_image import MetadataImage
from .....isr.replica_manager import ReplicaManager
from ..invariant_broken import InvariantBroken


def check_roles(brokers: Iterable[tuple[int, ReplicaManager, MetadataImage]]) -> None:
    """Compare the epochs of all replicas with those of the metadata that their nodes know. Raises `InvariantBroken`."""
    for node_id, manager, image in brokers:
        for key, replica in manager.partitions.items():
            registration = image.partition(replica.topic_id, key.partition)
            if registration is not None and replica.partition.is_newer(registration):
                known = f"epochs {replica.partition.leader_epoch} and {replica.partition.partition_epoch}"
                detail = f"{key} on {node_id} has acted on {known}, the metadata has {registration}"
                raise InvariantBroken("replicas have acted on the newest metadata in the end", detail)
