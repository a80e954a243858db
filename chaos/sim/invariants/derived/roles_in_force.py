"""What brokers do is what the metadata says, whether a record or a snapshot told of it.

"Replicas have acted on the newest metadata in the end": one that was not told of a change keeps a former ISR, leader or
set of replicas. "A coordinator has loaded its partition in its leader's epoch", whenever its node has applied metadata:
one that leads on in a later epoch answers from the memory of a former one, which other leaders may have changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .....broker.broker import Broker
from .....broker.coordinators.led_partitions import LedPartitions
from .....broker.groups.group_config import OFFSETS_TOPIC
from .....broker.transactions.transaction_config import TRANSACTION_TOPIC
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


def check_coordinators(node_id: int, broker: Broker, image: MetadataImage) -> None:
    """A broker has just applied metadata: compare its coordinators' epochs with it. Raises `InvariantBroken`."""
    if broker.groups is None or broker.transactions is None:
        return
    coordinators: dict[str, LedPartitions[Any]] = {
        OFFSETS_TOPIC: broker.groups.partitions,
        TRANSACTION_TOPIC: broker.transactions.partitions,
    }
    for name, led in coordinators.items():
        topic = image.topics_by_name.get(name)
        for partition, shard in led.shards.items():
            registration = None if topic is None else topic.partitions.get(partition)
            if registration is None or (registration.leader, registration.leader_epoch) != (
                node_id,
                shard.leader_epoch,
            ):
                detail = f"{name}-{partition} on {node_id} is of epoch {shard.leader_epoch}: {registration}"
                raise InvariantBroken("a coordinator has loaded its partition in its leader's epoch", detail)
