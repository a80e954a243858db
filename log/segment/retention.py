"""Which segments a log may let go: pure decisions.

Segments go from the oldest on, and none that holds what is not committed. The active one goes too when all of it is
too old; an empty one never does. Source: UnifiedLog.deletableSegments of Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..config import LogConfig


class SegmentFacts(Protocol):
    """What a decision looks at."""

    @property
    def next_offset(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    def largest_timestamp(self) -> int:
        """-1 when no record has one: such a segment is not let go by time."""
        ...


def count_expired(
    segments: Sequence[SegmentFacts], config: LogConfig, log_start_offset: int, high_watermark: int, now_ms: int
) -> int:
    """How many of the first segments go: by the log's start, and, with cleanup.policy delete, by size and time."""
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
