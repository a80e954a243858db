"""The log as the quorum sees it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ...runtime.ports import Buffer
from ...wire.types import EpochEndOffset, SnapshotId
from ..voters.voter_set import ControlRecord, VoterHistory


class RaftLog(Protocol):
    """Batches of records by offset, each with the epoch of its leader. Writing methods may raise `StorageError`.

    Where the log starts, a snapshot stands for what was before it, and that is committed.
    """

    @property
    def start(self) -> SnapshotId:
        """The offset of the first record, and the epoch of the record before it; `LOG_BEGIN` while nothing is cut."""
        ...

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        """The newest durable snapshot."""
        ...

    @property
    def voters(self) -> VoterHistory:
        """What the log's records say of the voters, its snapshots' included; it changes as the log does."""
        ...

    @property
    def end_offset(self) -> int:
        """The offset of the next record."""
        ...

    @property
    def durable_offset(self) -> int:
        """All below would survive a loss of power; at most `end_offset`, and never ahead of a truncation."""
        ...

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record, in the snapshot if the log has none; 0 when there never was one."""
        ...

    def end_offset_for(self, epoch: int) -> EpochEndOffset:
        """The largest epoch of the log that is <= `epoch`, with its end offset; (-1, -1) when there is none."""
        ...

    def append_records(self, records: Sequence[bytes], epoch: int) -> int:
        """One batch of data records; returns the last offset."""
        ...

    def append_controls(self, records: Sequence[ControlRecord], epoch: int) -> int:
        """One batch of control records; returns the last offset."""
        ...

    def append_fetched(self, records: Buffer) -> None:
        """Batches as a leader sent them, which must continue this log; raises `ProtocolError`, and appends nothing,
        when they are damaged."""
        ...

    def truncate_to(self, offset: int) -> None:
        """Remove all records at and above `offset`."""
        ...

    def read(self, offset: int, max_bytes: int) -> Buffer:
        """Whole batches from `offset`, at least one while there are any."""
        ...

    def read_snapshot(self, snapshot_id: SnapshotId, position: int, max_bytes: int) -> tuple[int, Buffer] | None:
        """The size of a snapshot in bytes and a part of it; None when there is no such snapshot."""
        ...

    def receive_snapshot(self, snapshot_id: SnapshotId, position: int, data: Buffer) -> None:
        """A part of a leader's snapshot; position 0 begins it anew."""
        ...

    def install_snapshot(self, snapshot_id: SnapshotId) -> bool:
        """The snapshot is there whole: make it durable, and the log empty and starting at its end. False, and all is
        as before, when it turns out damaged."""
        ...
