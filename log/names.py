"""Names of partitions' directories."""

from __future__ import annotations

from ..wire.types import TopicPartition


def parse_dir_name(name: str) -> TopicPartition | None:
    """The partition whose directory is called `name`, None for any other directory."""
    topic, dash, partition = name.rpartition("-")
    if not topic or not dash or not partition.isdecimal() or str(int(partition)) != partition:
        return None
    return TopicPartition(topic, int(partition))


def is_partition_dir(name: str) -> bool:
    """Whether a directory of this name holds a partition."""
    return parse_dir_name(name) is not None
