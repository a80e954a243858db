"""One partition that a follower fetches."""

from __future__ import annotations

from dataclasses import dataclass

from ...wire.types import TopicPartition
from ..replica import Replica


@dataclass(slots=True)
class FetchedPartition:
    """One partition that is fetched. After an error it is fetched again from `not_before_ms` on."""

    replica: Replica
    leader_epoch: int
    failures: int = 0
    not_before_ms: int = 0
    last_error: int = 0
    has_committed: bool = False
    """Whether it has all committed records, by the last answer."""
    local_id: int = -1

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition's name."""
        return self.replica.topic_partition

    @property
    def is_in_sync(self) -> bool:
        """Whether acks=all may wait for this replica."""
        return self.has_committed or self.local_id in self.replica.partition.follower.isr
