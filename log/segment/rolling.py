"""When a segment takes no more batches and the next one begins."""

from __future__ import annotations

from ...wire.records import BatchHeader
from ..config import MAX_INT32, LogConfig
from .segment import Segment


def fits(
    active: Segment, size_bytes: int, first: BatchHeader, last: BatchHeader, config: LogConfig, roll_after_ms: int
) -> bool:
    """Whether these batches belong in the active segment. Source: LogSegment.shouldRoll of Apache Kafka."""
    is_near = last[0] + last[6] - active.base_offset <= MAX_INT32
    if not active.size_bytes:
        return is_near and (size_bytes <= config.segment_bytes or first is last)
    waited_ms = last.max_timestamp - active.first_timestamp if active.first_timestamp >= 0 else 0
    return (
        active.size_bytes + size_bytes <= config.segment_bytes
        and waited_ms <= roll_after_ms
        and is_near
        and not active.is_index_full(config.segment_index_bytes)
    )
