"""Eligible leader replicas (KIP-966): replicas outside the ISR that still hold every committed record.

A leader does not move its high watermark while the ISR is smaller than `min.insync.replicas`. A replica that leaves an
ISR which is then that small therefore still holds every committed record. It stays eligible to lead (it is in the ELR)
until the ISR is large enough again, or until the replica restarts uncleanly and may have lost its tail.

This makes an empty ISR safe. When the last member of an ISR loses what its disk had not synced, it is not elected as
long as an eligible replica that kept its data may come back. The last known leader is remembered when no replica is
left.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...runtime.invariants import sometimes
from ...wire.errors import ErrorCode, ProtocolError
from ..metadata.metadata_image import MetadataImage, PartitionRegistration, TopicImage
from ..metadata.metadata_records import NO_LEADER, PartitionChangeRecord, Record

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
