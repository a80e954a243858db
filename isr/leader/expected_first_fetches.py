"""The followers that should fetch a partition and have not yet fetched it: their fetches are not parked for long.

A parked fetch does not contain the partitions that its follower learns about meanwhile. Leader and followers learn of a
change within milliseconds of each other. So the leader answers the parked fetch of such a follower soon, and parks the
next ones only briefly, until one contains the partition. After two seconds it gives up: the follower's disk may have
failed.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...wire.types import TopicPartition
from ..purgatory.purgatory import Purgatory

EXPECTED_WAIT_MS = 10
_EXPECTED_FOR_MS = 2_000


class ExpectedFetches:
    """By follower: the partitions that it has not fetched yet, and until when they are expected."""

    def __init__(self, purgatory: Purgatory) -> None:
        self._purgatory = purgatory
        self._missing: dict[int, dict[TopicPartition, None]] = {}
        self._until_ms: dict[int, int] = {}

    def expect(self, topic_partition: TopicPartition, followers: Iterable[int], now_ms: int) -> None:
        """The followers will fetch the partition in a new epoch, or for the first time."""
        for replica_id in followers:
            self._missing.setdefault(replica_id, {})[topic_partition] = None
            self._until_ms[replica_id] = now_ms + _EXPECTED_FOR_MS
            self._purgatory.shorten_wait(replica_id, EXPECTED_WAIT_MS)

    def on_fetched(self, replica_id: int, topic_partition: TopicPartition) -> None:
        """The follower has fetched the partition."""
        missing = self._missing.get(replica_id)
        if missing:
            missing.pop(topic_partition, None)

    def wait_ms(self, replica_id: int, wait_ms: int, now_ms: int) -> int:
        """How long a fetch of the follower may be parked; `wait_ms` is what it asks for."""
        missing = self._missing.get(replica_id)
        if not missing:
            return wait_ms
        if now_ms >= self._until_ms[replica_id]:
            missing.clear()
            return wait_ms
        return min(wait_ms, EXPECTED_WAIT_MS)
