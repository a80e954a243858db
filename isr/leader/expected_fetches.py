"""Followers that are to fetch a partition and have not yet: their fetches are not parked for long.

A fetch that is parked does not know of partitions that its follower learns of meanwhile. Leader and followers learn of
a change within milliseconds of each other; so the leader lets a parked fetch of such a follower go soon, and parks the
next ones briefly, until the partition is among them. It need not be: a follower whose disk failed does not come.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...wire.types import TopicPartition
from ..purgatory.purgatory import Purgatory

HURRY_MS = 10
_EXPECTED_FOR_MS = 2_000


class ExpectedFetches:
    """By follower: what it has not fetched, and until when that is waited for."""

    def __init__(self, purgatory: Purgatory) -> None:
        self._purgatory = purgatory
        self._missing: dict[int, dict[TopicPartition, None]] = {}
        self._until_ms: dict[int, int] = {}

    def expect(self, topic_partition: TopicPartition, followers: Iterable[int], now_ms: int) -> None:
        """The followers will fetch the partition, with a new epoch or for the first time."""
        for replica_id in followers:
            self._missing.setdefault(replica_id, {})[topic_partition] = None
            self._until_ms[replica_id] = now_ms + _EXPECTED_FOR_MS
            self._purgatory.hurry(replica_id, HURRY_MS)

    def came(self, replica_id: int, topic_partition: TopicPartition) -> None:
        """The follower fetched it."""
        missing = self._missing.get(replica_id)
        if missing:
            missing.pop(topic_partition, None)

    def wait_ms(self, replica_id: int, wait_ms: int, now_ms: int) -> int:
        """How long a fetch of the follower may be parked that wants to wait for `wait_ms`."""
        missing = self._missing.get(replica_id)
        if not missing:
            return wait_ms
        if now_ms >= self._until_ms[replica_id]:
            missing.clear()
            return wait_ms
        return min(wait_ms, HURRY_MS)
