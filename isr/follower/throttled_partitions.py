"""The throttled partitions of one fetcher: which of them rest until the quota has room again (KIP-73)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from ...wire.types import TopicPartition
from ..throttling.throttles import Throttle
from .fetch_session import PartitionKey


class Source(Protocol):
    """A partition that is fetched."""

    @property
    def topic_partition(self) -> TopicPartition: ...

    @property
    def is_in_sync(self) -> bool:
        """It has all that is committed, so that it is waited for."""
        ...


class ThrottledPartitions:
    """Follows a fetcher's sources; costs nothing while nothing is throttled."""

    def __init__(self, throttle: Throttle) -> None:
        self._throttle = throttle
        self._throttled: dict[PartitionKey, None] = {}
        self._held: dict[PartitionKey, None] = {}
        self._version = 0

    def __contains__(self, key: PartitionKey) -> bool:
        """Whether it rests."""
        return key in self._held

    def __bool__(self) -> bool:
        return bool(self._held)

    def on_sources_changed(self) -> None:
        """There are others."""
        self._version = -1

    def review(self, sources: Mapping[PartitionKey, Source], now_ms: int) -> Iterable[PartitionKey]:
        """Hold what is throttled and not waited for while there is no room; gives what is held or let go by that."""
        if self._version != self._throttle.version:
            self._version = self._throttle.version
            self._find_throttled(sources)
        if not self._throttled and not self._held:
            return ()
        has_room = self._throttle.quota.room_bytes(now_ms) > 0
        before = self._held
        self._held = {} if has_room else {key: None for key in self._throttled if not sources[key].is_in_sync}
        gone = [key for key in before if key not in self._held]
        return gone + [key for key in self._held if key not in before]

    def _find_throttled(self, sources: Mapping[PartitionKey, Source]) -> None:
        throttle = self._throttle
        self._throttled = {}
        if not throttle.is_idle:
            for key, source in sources.items():
                if throttle.is_throttled(source.topic_partition):
                    self._throttled[key] = None

    def max_bytes(self, key: PartitionKey, source: Source, wanted_bytes: int, now_ms: int) -> int:
        """How much to ask of a partition: the throttled ones share what there is room for."""
        if key not in self._throttled or source.is_in_sync:
            return wanted_bytes
        share = self._throttle.quota.room_bytes(now_ms) / len(self._throttled)
        return int(min(wanted_bytes, max(share, 1)))

    def took(self, key: PartitionKey, size_bytes: int, now_ms: int) -> None:
        """So much of it has come."""
        if key in self._throttled:
            self._throttle.quota.record(size_bytes, now_ms)

    def wait_ms(self, now_ms: int) -> int:
        """How long until some of what is held may be asked for."""
        return self._throttle.quota.wait_ms(now_ms)
