"""What a log gives back, and whom it tells."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from ..wire.records import NO_TIMESTAMP
from ..wire.types import TopicPartition
from .state.producer_state import UNKNOWN_DELTA, BatchMetadata

if TYPE_CHECKING:
    from .partition_log import PartitionLog


class AppendInfo(NamedTuple):
    """What an append did; `log_append_time_ms` is -1 for CreateTime. A `duplicate` was in the log before; where its
    place is forgotten, `first_offset` is -1, and `last_offset` the greatest that it may have."""

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


@dataclass(frozen=True, slots=True)
class LogDirView:
    """A log directory as DescribeLogDirs tells it: `futures` are copies that shall take another log's place."""

    path: str
    is_failed: bool
    total_bytes: int = -1
    usable_bytes: int = -1
    logs: Mapping[TopicPartition, PartitionLog] = field(default_factory=dict)
    futures: Mapping[TopicPartition, PartitionLog] = field(default_factory=dict)


def _ignore(log: PartitionLog, what: object) -> None:
    pass


@dataclass(frozen=True, slots=True)
class LogHooks:
    """Whom a log tells: that it failed for good, that its recovery point is about to be lowered (nor may a checkpoint
    say that it starts above that), and which files of deleted segments (renamed by then) to remove after
    `file.delete.delay.ms`; without that hook they go at once.
    `on_gaps`: offsets will be missing from it, at once if the flag is set; recovery has to know that then."""

    on_failed: Callable[[PartitionLog, OSError], None] = _ignore
    on_recovery_point_lowered: Callable[[PartitionLog, int], None] = _ignore
    on_files_deleted: Callable[[PartitionLog, list[str]], None] | None = None
    on_gaps: Callable[[PartitionLog, bool], None] = _ignore
