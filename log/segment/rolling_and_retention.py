"""When the active segment rolls, and which segments retention deletes: decisions without I/O.

Sources: LogSegment.shouldRoll and UnifiedLog.deletableSegments of Apache Kafka.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol

from ...wire.records import BatchHeader
from ..config import MAX_INT32, LogConfig
from .segment import Segment


class RollPolicy:
    """Knows when the active segment is full or old: `segment.bytes`, `segment.index.bytes`, `segment.ms`."""

    __slots__ = ("_rng", "_roll_after_ms", "config")

    def __init__(self, rng: random.Random, config: LogConfig) -> None:
        self._rng = rng
        self.set_config(config)

    def set_config(self, config: LogConfig) -> None:
        """Use these settings from now on."""
        self.config = config
        self.draw_jitter()

    def draw_jitter(self) -> None:
        """A new segment begins: draw its part of `segment.jitter.ms`, so that many partitions do not roll at once."""
        self._roll_after_ms = self.config.draw_segment_ms(self._rng)

    def fits(self, active: Segment, size_bytes: int, first: BatchHeader, last: BatchHeader) -> bool:
        """Whether batches of `size_bytes`, from `first` to `last`, may be appended to the active segment."""
        config = self.config
        is_near = last[0] + last[6] - active.base_offset <= MAX_INT32
        if not active.size_bytes:
            return is_near and (size_bytes <= config.segment_bytes or first is last)
        waited_ms = last.max_timestamp - active.first_timestamp if active.first_timestamp >= 0 else 0
        return (
            active.size_bytes + size_bytes <= config.segment_bytes
            and waited_ms <= self._roll_after_ms
            and is_near
            and not active.is_index_full(config.segment_index_bytes)
        )

    def is_due(self, active: Segment, now_ms: int) -> bool:
        """Whether the oldest record of the active segment is older than `segment.ms`.

        Compacted logs do not wait longer than `max.compaction.lag.ms`, as only rolled segments are compacted.
        """
        first_ms = active.first_timestamp
        if not active.size_bytes or first_ms < 0:
            return False
        limit_ms = self._roll_after_ms
        if self.config.is_compacted:
            limit_ms = min(limit_ms, self.config.max_compaction_lag_ms)
        return now_ms - first_ms > limit_ms


class SegmentFacts(Protocol):
    """What `count_expired` looks at; tests give made-up segments."""

    @property
    def next_offset(self) -> int:
        """The offset after the segment's last record."""
        ...

    @property
    def size_bytes(self) -> int:
        """Bytes of all batches."""
        ...

    def largest_timestamp(self) -> int:
        """-1 when no record has a timestamp: time does not delete such a segment."""
        ...


def count_expired(
    segments: Sequence[SegmentFacts], config: LogConfig, log_start_offset: int, high_watermark: int, now_ms: int
) -> int:
    """How many of the oldest segments retention deletes.

    Segments before the log's start go; with cleanup.policy delete also those beyond `retention.bytes` and older than
    `retention.ms`. A segment with records that are not committed stays. The active one goes if it is too old, but not
    when it is empty.
    """
    excess_bytes = -1
    if config.is_deleted and config.retention_bytes >= 0:
        excess_bytes = sum(segment.size_bytes for segment in segments) - config.retention_bytes
    for at, segment in enumerate(segments):
        is_last = at == len(segments) - 1
        if segment.next_offset > high_watermark or (is_last and not segment.size_bytes):
            return at
        excess_bytes -= segment.size_bytes
        if not (
            (not is_last and segment.next_offset <= log_start_offset)
            or excess_bytes >= 0
            or (config.is_deleted and _is_too_old(segment, config.retention_ms, now_ms))
        ):
            return at
    return len(segments)


def _is_too_old(segment: SegmentFacts, retention_ms: int, now_ms: int) -> bool:
    if retention_ms < 0:
        return False
    newest_ms = segment.largest_timestamp()
    return newest_ms >= 0 and now_ms - newest_ms > retention_ms
