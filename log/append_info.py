"""The result of an append to a partition's log."""

from __future__ import annotations

from typing import NamedTuple

from ..wire.records import NO_TIMESTAMP
from .state.producer_state import UNKNOWN_DELTA, BatchMetadata


class AppendInfo(NamedTuple):
    """The result of an append. `log_append_time_ms` is -1 for CreateTime.

    A `duplicate` was in the log before. If its offsets are no longer known, `first_offset` is -1, and `last_offset` is
    the greatest that it may have.
    """

    first_offset: int
    last_offset: int
    max_timestamp: int
    log_append_time_ms: int
    size_bytes: int
    duplicate: bool

    @classmethod
    def nothing(cls, end_offset: int) -> AppendInfo:
        """Nothing was appended to a log that ends at `end_offset`."""
        return cls(end_offset, end_offset - 1, NO_TIMESTAMP, NO_TIMESTAMP, 0, False)

    @classmethod
    def of_duplicate(cls, batch: BatchMetadata, is_stamped: bool) -> AppendInfo:
        """The batch was in the log before; `is_stamped`: its timestamp is the broker's."""
        if batch.offset_delta == UNKNOWN_DELTA:
            return cls(-1, batch.last_offset, NO_TIMESTAMP, NO_TIMESTAMP, 0, True)
        append_time_ms = batch.timestamp if is_stamped else NO_TIMESTAMP
        return cls(batch.first_offset, batch.last_offset, batch.timestamp, append_time_ms, 0, True)
