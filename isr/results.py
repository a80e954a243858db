"""Parameters and results of the replica manager's operations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from ..wire.fetch import FetchResponse
from ..wire.produce import ProducePartitionResponse

CONSUMER_REPLICA_ID = -1
DEBUGGING_REPLICA_ID = -2
READ_COMMITTED = 1
"""The isolation level of consumers that see no record of an open or aborted transaction."""


@dataclass(slots=True)
class FetchParams:
    """The fields of a fetch request that hold for all its partitions. `replica_id` >= 0 is a follower."""

    replica_id: int = CONSUMER_REPLICA_ID
    replica_epoch: int = -1
    max_wait_ms: int = 0
    min_bytes: int = 1
    max_bytes: int = 0x7FFFFFFF
    isolation_level: int = 0
    client_rack: str = ""
    uses_topic_ids: bool = False
    """The request identifies topics by their ids."""
    from_follower_allowed: bool = False
    """A consumer may read from a replica that is not the leader (KIP-392)."""
    slice_bytes_min: int | None = None
    """Committed records of at least so many bytes may be answered by a slice of their file (sendfile); None: never."""
    connection: object = None
    """Where the request came from: a follower has one fetch under way on a connection."""
    may_read: Callable[[str], bool] | None = None
    """Whether the fetcher may read a topic; None: all topics."""


class ListOffsetResult(NamedTuple):
    """Answer of ListOffsets: offset, timestamp and epoch are -1 when there is none."""

    error_code: int
    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = -1


class EpochEndResult(NamedTuple):
    """Answer of OffsetForLeaderEpoch."""

    error_code: int
    leader_epoch: int = -1
    end_offset: int = -1


class DeletedRecords(NamedTuple):
    """Answer of DeleteRecords for one partition: offsets are -1 where it failed."""

    error_code: int
    low_watermark: int = -1
    required_offset: int = -1

    @property
    def is_behind(self) -> bool:
        """Whether the log of some replica still starts below `required_offset`."""
        return not self.error_code and self.low_watermark < self.required_offset


AppendDone = Callable[[list[ProducePartitionResponse]], None]
FetchDone = Callable[[FetchResponse], object]
