"""The settings that replicas go by are those of the metadata.

Who judges a replica must not ask it for the minimum that it goes by: `required_isr` is what the metadata says that
its node has applied. "A leader goes by the min.insync.replicas of the metadata" as soon as that is applied. In the end
"all logs of a partition go by the same settings", whichever way they came to them: from the metadata at their start, by
a record, or by a snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable

from .....controller.configs.effective_configs import resolve
from .....controller.metadata.metadata_image import MetadataImage
from .....isr.leader.leader_state import LeaderState
from .....isr.replica import Replica
from .....isr.replica_manager import ReplicaManager
from .....log.config import LogConfig
from .....log.topic_configs import MIN_ISR_KEY
from .....wire.types import TopicPartition
from ..invariant_broken import InvariantBroken


def required_isr(image: MetadataImage, replica: Replica, leader: LeaderState, min_isr: int) -> int:
    """How many replicas must be in sync for this leader to commit; `min_isr` is the value of the nodes' files.

    It is what the leader says while that has not taken up the role that its node's image gives it.
    """
    partition = image.partition(replica.topic_id, replica.topic_partition.partition)
    if partition is None or leader.partition_epoch < partition.partition_epoch:
        return leader.effective_min_isr
    value = minimum(image, replica.topic_partition.topic, min_isr, leader.config.local_id)
    return max(leader.effective_min_isr, min(value, len(partition.replicas)))


def minimum(image: MetadataImage, topic: str, min_isr: int, broker_id: int | None = None) -> int:
    """The `min.insync.replicas` of a topic by the metadata; with `broker_id`, that for partitions which it leads."""
    return int(resolve(image, topic, MIN_ISR_KEY, {MIN_ISR_KEY: str(min_isr)}, broker_id=broker_id)[0])


def check_minimum(node_id: int, manager: ReplicaManager, image: MetadataImage, min_isr: int) -> None:
    """A node has just applied more metadata: its leaders go by the minimum that this says. Raises `InvariantBroken`.

    A lower one comes with the role of the same metadata (KIP-966).
    """
    for key, replica in manager.partitions.items():
        registration, leader = image.partition(replica.topic_id, key.partition), replica.partition.leader
        if registration is None or leader is None:
            continue
        expected, known = minimum(image, key.topic, min_isr, node_id), leader.config.min_isr
        if known < expected or (known > expected and not replica.partition.is_newer(registration)):
            detail = f"{key} on {node_id} goes by {known}, at {image.offset} the metadata says {expected}"
            raise InvariantBroken("a leader goes by the min.insync.replicas of the metadata", detail)


def check_settings(brokers: Iterable[tuple[int, ReplicaManager, MetadataImage]]) -> None:
    """Compare the logs of those brokers that know the newest metadata. Raises `InvariantBroken`."""
    known = list(brokers)
    newest = max((image.offset for _, _, image in known), default=-1)
    found: dict[TopicPartition, tuple[int, LogConfig]] = {}
    for node_id, manager, image in known:
        for key, replica in manager.partitions.items() if image.offset == newest else ():
            first, config = found.setdefault(key, (node_id, replica.log.config))
            if config != replica.log.config:
                detail = f"{key}: {config} on {first}, {replica.log.config} on {node_id}"
                raise InvariantBroken("all logs of a partition go by the same settings", detail)
