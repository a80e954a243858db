"""The log as the quorum sees it (Kafka's RaftLog). `PartitionRaftLog` is the real one; tests have one in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ...runtime.ports import Buffer
from ...wire.types import EpochEndOffset, SnapshotId
from ..voters.voter_set import ControlRecord, VoterHistory


class RaftLog(Protocol):
    """Batches of records by offset, each with the epoch of its leader. Methods that write may raise `StorageError`.

    A snapshot that ends where the log starts replaces the records before it, which are committed.
    """

    @property
    def start(self) -> SnapshotId:
        """The offset of the first record and the epoch of the record before it; `LOG_BEGIN` if nothing was deleted."""
        ...

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        """The newest durable snapshot."""
        ...

    @property
    def voters(self) -> VoterHistory:
        """The voters by the records of the log and of its snapshot; it changes with the log."""
        ...

    @property
    def end_offset(self) -> int:
        """The offset of the next record."""
        ...

    @property
    def durable_offset(self) -> int:
        """All below survives a loss of power. It is at most `end_offset`."""
        ...

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record, in the snapshot if the log is empty; 0 when there was none."""
        ...

    def end_offset_for(self, epoch: int) -> EpochEndOffset:
        """The largest epoch of the log that is <= `epoch`, with its end offset; (-1, -1) when there is none."""
        ...

    def append_records(self, records: Sequence[bytes], epoch: int) -> int:
        """Append one batch of data records; returns the last offset."""
        ...

    def append_controls(self, records: Sequence[ControlRecord], epoch: int) -> int:
        """Append one batch of control records; returns the last offset."""
        ...

    def append_fetched(self, records: Buffer, leader_epoch: int) -> None:
        """Append batches from the leader of this epoch, which must continue this log.

        Raises `ProtocolError`, and appends nothing, when they are damaged or the first one is of a greater epoch; later
        ones of a greater epoch are left out.
        """
        ...

    def truncate_to(self, offset: int) -> None:
        """Remove all records at and above `offset`."""
        ...

    def read(self, offset: int, max_bytes: int) -> Buffer:
        """Whole batches from `offset`, at least one while there are any. `ProtocolError` where the log is damaged."""
        ...

    def read_snapshot(self, snapshot_id: SnapshotId, position: int, max_bytes: int) -> tuple[int, Buffer] | None:
        """The size of a snapshot in bytes and the part from `position` on, which is empty outside of the snapshot.

        None when there is no such snapshot.
        """
        ...

    def receive_snapshot(self, snapshot_id: SnapshotId, position: int, data: Buffer) -> None:
        """Write a part of the leader's snapshot; position 0 begins it anew."""
        ...

    def install_snapshot(self, snapshot_id: SnapshotId) -> bool:
        """Make a complete snapshot durable, and begin an empty log at its end.

        Returns False, and changes nothing, when the snapshot is damaged.
        """
        ...
