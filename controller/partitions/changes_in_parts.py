"""Changes of all partitions that something holds for, as a decision in parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from ...runtime.incremental_work import Pace
from ..metadata.metadata_image import MetadataImage, PartitionRegistration, TopicImage
from ..metadata.metadata_records import NO_LEADER, PartitionChangeRecord, Record
from ..result import ControllerResult, Decision

Change: TypeAlias = Callable[[TopicImage, int, PartitionRegistration], PartitionChangeRecord | None]
"""The change of a partition, from its topic, index and state; None if there is none."""

_PASSED_OVER_PER_ITEM = 32


def has_no_leader(partition: PartitionRegistration) -> bool:
    """Whether the partition has no leader."""
    return partition.leader == NO_LEADER


def change_partitions(
    image: MetadataImage,
    may_change: Callable[[PartitionRegistration], bool],
    change: Change,
    first: Sequence[Record] = (),
) -> Decision:
    """Change the partitions for which `may_change` holds; the `first` records come before them.

    Partitions that are created after the decision has come to their topic are left out.
    """
    pace = Pace()
    records = list(first)
    for topic_id in list(image.topics_by_id):
        topic = image.topics_by_id.get(topic_id)
        if topic is None:
            continue
        chosen = [index for index, partition in topic.partitions.items() if may_change(partition)]
        if pace.ends_step(1 + len(topic.partitions) // _PASSED_OVER_PER_ITEM):
            yield records
            records = []
        for index in chosen:
            topic, partition = image.topics_by_id.get(topic_id), image.partition(topic_id, index)
            changed = None
            if topic is not None and partition is not None and may_change(partition):
                changed = change(topic, index, partition)
            if changed is not None:
                records.append(changed)
            if pace.ends_step():
                yield records
                records = []
    return ControllerResult(records)
