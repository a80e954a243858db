"""The settings of a topic as one node has applied them, by time: read from the topic's records in its metadata."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from .....wire.compression import Compression

_CODECS = {"uncompressed": Compression.NONE, **{one.name.lower(): one for one in Compression if one}}
"""By the values of compression.type; `producer` has none."""


class TopicSettings(NamedTuple):
    """What the judges of a topic look at; times are in milliseconds."""

    policies: tuple[str, ...]
    codec: int | None
    """The codec of all batches; None: the producer's."""
    is_stamped: bool
    """Whether records carry the time of the leader's append."""
    min_lag_ms: int
    delete_retention_ms: int
    retention_ms: int

    @classmethod
    def of(cls, values: Mapping[str, str]) -> TopicSettings:
        """The settings of a topic whose own values are these."""
        return cls(
            tuple(values.get("cleanup.policy", "delete").split(",")),
            _CODECS.get(values.get("compression.type", "producer")),
            values.get("message.timestamp.type") == "LogAppendTime",
            int(values.get("min.compaction.lag.ms", "0")),
            int(values.get("delete.retention.ms", "86400000")),
            int(values.get("retention.ms", "604800000")),
        )


class SettingsSeen:
    """The settings of one topic on one node, with the virtual times from which on they were in force."""

    def __init__(self) -> None:
        self._seen: list[tuple[float, TopicSettings]] = []

    def take(self, now_s: float, settings: TopicSettings) -> None:
        """The node goes by these settings now."""
        if not self._seen or self._seen[-1][1] != settings:
            self._seen.append((now_s, settings))

    @property
    def present(self) -> TopicSettings:
        """The settings in force."""
        return self._seen[-1][1]

    @property
    def least_lag_ms(self) -> int:
        """The smallest `min.compaction.lag.ms` that was ever in force."""
        return min(settings.min_lag_ms for _, settings in self._seen)

    def since(self, time_s: float) -> list[TopicSettings]:
        """All that were in force at some moment since then, the present ones first."""
        found = []
        for begun_s, settings in reversed(self._seen):
            found.append(settings)
            if begun_s < time_s:
                break
        return found
