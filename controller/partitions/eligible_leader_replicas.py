"""Eligible leader replicas (KIP-966): replicas outside the ISR that still hold every committed record.

A leader does not move its high watermark while the ISR is smaller than `min.insync.replicas`. A replica that leaves an
ISR which is then that small therefore still holds every committed record. It stays eligible to lead (it is in the ELR)
until the ISR is large enough again, or until the replica restarts uncleanly and may have lost its tail.

This makes an empty ISR safe. When the last member of an ISR loses what its disk had not synced, it is not elected as
long as an eligible replica that kept its data may come back. The last known leader is remembered when no replica is
left.

Leaders and controllers must go by the same `min.insync.replicas`: a leader that commits with fewer replicas than the
controller assumes has records that the ELR misses. Files of settings differ, above all while they are being changed.
So with ELR the metadata have a value for the cluster, and the files' values count no more (Apache Kafka 4.1 and later:
`ActivationRecordsGenerator`, `ConfigurationControlManager.maybeGenerateElrSafetyRecords`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from itertools import islice

from ...log.topic_configs import MIN_ISR_KEY
from ...runtime.invariants import sometimes
from ...wire.errors import ErrorCode, ProtocolError
from ..metadata.metadata_image import BROKER_RESOURCE, MetadataImage, PartitionRegistration, TopicImage
from ..metadata.metadata_records import NO_LEADER, ConfigRecord, PartitionChangeRecord, Record
from ..result import ControllerResult, Decision

_logger = logging.getLogger(__name__)

ELRS_PER_BATCH = 250
"""ELRs that are emptied in one batch of records, before the change that makes them wrong is made with the last ones."""


def is_isr_large_enough(isr: tuple[int, ...], replicas: tuple[int, ...], min_insync_replicas: int) -> bool:
    """Whether records are committed under this ISR, so that the partition needs no ELR."""
    return len(isr) >= min(min_insync_replicas, len(replicas))


def elr_beside(
    partition: PartitionRegistration, isr: tuple[int, ...], unclean_shutdown: int | None = None
) -> tuple[int, ...]:
    """The replicas that are eligible beside a new `isr` that is not large enough.

    A broker that stopped uncleanly (`unclean_shutdown`) is not among them.
    """
    candidates = [replica for replica in dict.fromkeys((*partition.elr, *partition.isr)) if replica not in isr]
    sometimes(unclean_shutdown in partition.elr, "a replica left the ELR after an unclean stop of its broker")
    return tuple(r for r in candidates if r in partition.replicas and r != unclean_shutdown)


def last_known_elr_after(partition: PartitionRegistration, isr: tuple[int, ...], leader: int) -> tuple[int, ...]:
    """The last known leader, when the partition gets neither a `leader` nor an `isr`."""
    if leader != NO_LEADER:
        return ()
    if not isr and partition.leader != NO_LEADER:
        return (partition.leader,)
    return partition.last_known_elr


def clear_elr(topics: Iterable[TopicImage]) -> Iterator[Record]:
    """Empty the ELRs of `topics`: under another `min.insync.replicas`, their members may miss committed records.

    Partitions without a leader keep theirs: nothing is committed meanwhile, and only the ELR tells who may lead.
    """
    for topic in topics:
        for index, partition in topic.partitions.items():
            if partition.leader != NO_LEADER and (partition.elr or partition.last_known_elr):
                yield PartitionChangeRecord(topic.topic_id, index, elr=(), last_known_elr=())


def make_elr_safe(image: MetadataImage, static_min_isr: int) -> list[Record]:
    """What has to be recorded before ELR is switched on: one `min.insync.replicas` for all, and none of one broker."""
    of_cluster = [] if _has_cluster_min_isr(image) else [_cluster_min_isr(static_min_isr)]
    of_brokers = [
        ConfigRecord(resource_type, resource_name, MIN_ISR_KEY, None)
        for (resource_type, resource_name), values in image.configs.items()
        if resource_type == BROKER_RESOURCE and resource_name and MIN_ISR_KEY in values
    ]
    return [*of_cluster, *of_brokers]


def record_min_isr(image: MetadataImage, static_min_isr: int) -> Decision:
    """A new active controller with ELR records its `min.insync.replicas` for the cluster, unless there is one.

    Where the brokers went by their own values until now, the members of ELRs may miss committed records.
    """
    while image.elr_enabled and not _has_cluster_min_isr(image):
        cleared = list(islice(clear_elr(image.topics_by_id.values()), ELRS_PER_BATCH))
        if len(cleared) < ELRS_PER_BATCH:
            return ControllerResult([*cleared, _cluster_min_isr(static_min_isr)])
        yield cleared
    return ControllerResult()


def _has_cluster_min_isr(image: MetadataImage) -> bool:
    return MIN_ISR_KEY in image.configs.get((BROKER_RESOURCE, ""), {})


def _cluster_min_isr(static_min_isr: int) -> ConfigRecord:
    _logger.info("%s=%d of this controller's settings now holds for the cluster", MIN_ISR_KEY, static_min_isr)
    return ConfigRecord(BROKER_RESOURCE, "", MIN_ISR_KEY, str(static_min_isr))


def switch_off_elr(image: MetadataImage) -> Iterator[Record]:
    """Empty all ELRs. Raises `ProtocolError(INVALID_UPDATE_VERSION)` at once if a partition depends on its ELR."""
    for topic, index, partition in image.all_partitions():
        if not partition.isr:
            message = f"{topic.name}-{index} has eligible leader replicas and no ISR: bring one of them back first."
            raise ProtocolError(ErrorCode.INVALID_UPDATE_VERSION, message)
    return (
        PartitionChangeRecord(topic.topic_id, index, elr=(), last_known_elr=())
        for topic, index, partition in image.all_partitions()
        if partition.elr or partition.last_known_elr
    )
