"""Small value types that all packages share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeVar

TopicT = TypeVar("TopicT")

STRING_BYTES_MAX = 2**15 - 1
"""The longest string of a message. Apache Kafka and its clients refuse longer ones in every version."""


class TopicPartition(NamedTuple):
    """One partition of a named topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def by_topic(partitions: Iterable[tuple[TopicT, int]]) -> dict[TopicT, list[int]]:
    """The numbers of the partitions by the name or id of their topic, both in the order of the first mention."""
    topics: dict[TopicT, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics


def is_under_replicated(isr: tuple[int, ...], replicas: tuple[int, ...], adding: tuple[int, ...]) -> bool:
    """Whether a partition lacks replicas in sync.

    Those that a reassignment is `adding` are not wanted yet: as in Apache Kafka, `replicas` without them are the
    replication factor until it is done.
    """
    return len(isr) < len(set(replicas).difference(adding))


class EpochEndOffset(NamedTuple):
    """A leader epoch and the offset after its last record; see `UNKNOWN_EPOCH_END`."""

    epoch: int
    end_offset: int


UNKNOWN_EPOCH_END = EpochEndOffset(-1, -1)
"""The answer for an epoch that a log does not know."""


class LeaderIdAndEpoch(NamedTuple):
    """The leader of a partition and its epoch; -1 where there is none, or where it is not known."""

    leader_id: int
    leader_epoch: int


class SnapshotId(NamedTuple):
    """A snapshot of the metadata log: the offset after its last record and that record's epoch (KIP-630)."""

    end_offset: int
    epoch: int
