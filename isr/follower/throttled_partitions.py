"""The throttled partitions of one fetcher: which of them pause until the quota allows more bytes (KIP-73)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..throttling.throttles import Throttle
from .fetched_partition import FetchedPartition
from .follower_fetch_session import PartitionKey


class ThrottledPartitions:
    """Pauses throttled partitions that are not in sync. Costs nothing while no partition is throttled."""

    def __init__(self, throttle: Throttle) -> None:
        self._throttle = throttle
        self._throttled: dict[PartitionKey, None] = {}
        self._paused: dict[PartitionKey, None] = {}
        self._version = 0

    def __contains__(self, key: PartitionKey) -> bool:
        """Whether the partition is paused."""
        return key in self._paused

    def __bool__(self) -> bool:
        """Whether any partition is paused."""
        return bool(self._paused)

    def on_partitions_changed(self) -> None:
        """The fetcher fetches other partitions than before."""
        self._version = -1

    def update(self, partitions: Mapping[PartitionKey, FetchedPartition], now_ms: int) -> Iterable[PartitionKey]:
        """Pause or resume partitions, by what the quota allows now; returns those that changed."""
        if self._version != self._throttle.version:
            self._version = self._throttle.version
            self._find_throttled(partitions)
        if not self._throttled and not self._paused:
            return ()
        is_allowed = self._throttle.quota.available_bytes(now_ms) > 0
        before = self._paused
        self._paused = {} if is_allowed else {key: None for key in self._throttled if not partitions[key].is_in_sync}
        resumed = [key for key in before if key not in self._paused]
        return resumed + [key for key in self._paused if key not in before]

    def _find_throttled(self, partitions: Mapping[PartitionKey, FetchedPartition]) -> None:
        throttle = self._throttle
        self._throttled = {}
        if not throttle.is_idle:
            for key, fetched in partitions.items():
                if throttle.is_throttled(fetched.topic_partition):
                    self._throttled[key] = None

    def max_bytes(self, key: PartitionKey, fetched: FetchedPartition, wanted_bytes: int, now_ms: int) -> int:
        """How much to fetch of a partition: the throttled ones share what the quota allows."""
        if key not in self._throttled or fetched.is_in_sync:
            return wanted_bytes
        share = self._throttle.quota.available_bytes(now_ms) / len(self._throttled)
        return int(min(wanted_bytes, max(share, 1)))

    def record(self, key: PartitionKey, size_bytes: int, now_ms: int) -> None:
        """So many bytes of the partition were fetched."""
        if key in self._throttled:
            self._throttle.quota.record(size_bytes, now_ms)

    def wait_ms(self, now_ms: int) -> int:
        """How long until paused partitions may be fetched."""
        return self._throttle.quota.wait_ms(now_ms)
